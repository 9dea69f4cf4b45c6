//! One picture as an encoder takes it: its views, and where their patches are.

use mlx::Array;

/// One picture. Each view is encoded on its own; the features of all follow one another.
pub struct EncoderInput {
    /// A picture as a whole; its tiles, in the order of the prompt; or the frames of a video.
    pub views: Vec<View>,
}

/// Views of equal size.
pub struct View {
    /// Patches `[count · rows · columns, elements]`, or pixels `[count, channels, height, width]`, normalized.
    pub pixels: Array,
    /// Where the patches are.
    pub grid: Grid,
}

/// Patches of views of equal size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Grid {
    /// How many views: tiles, or frames of a video. Patches of different ones do not attend to each other.
    pub count: usize,
    pub rows: usize,
    pub columns: usize,
}

impl Grid {
    /// Patches of one view.
    pub fn view(&self) -> usize {
        self.rows * self.columns
    }

    /// Patches of all views.
    pub fn patches(&self) -> usize {
        self.count * self.view()
    }

    /// The same with squares of patches as one. Squares at the end may be incomplete.
    pub fn merged(&self, side: usize) -> Self {
        let merged = |patches: usize| patches.div_ceil(side.max(1));
        Self { rows: merged(self.rows), columns: merged(self.columns), ..*self }
    }

    /// Row and column of each patch of a view whose patches come in squares of this side, which divides both.
    pub(super) fn places_in_squares(&self, side: usize) -> Vec<[usize; 2]> {
        let side = side.max(1);
        let merged = self.merged(side);
        let squares = (0..merged.view()).map(|square| [square / merged.columns, square % merged.columns]);
        let within = |[row, column]: [usize; 2]| {
            (0..side * side).map(move |patch| [row * side + patch / side, column * side + patch % side])
        };
        squares.flat_map(within).collect()
    }
}

/// Squares of a view's patches in the order of the windows they are in, and how many each window has.
///
/// Windows come row by row, and the squares in each row by row; those at the end may be smaller.
pub(super) fn windows(squares: Grid, side: usize) -> (Vec<usize>, Vec<usize>) {
    let side = side.max(1);
    let across = squares.merged(side);
    let (mut order, mut counts) = (Vec::with_capacity(squares.view()), Vec::new());
    for window in 0..across.view() {
        let (top, left) = (window / across.columns * side, window % across.columns * side);
        let before = order.len();
        for row in top..(top + side).min(squares.rows) {
            let columns = left..(left + side).min(squares.columns);
            order.extend(columns.map(|column| row * squares.columns + column));
        }
        counts.push(order.len() - before);
    }
    (order, counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_are_adjacent() {
        let grid = Grid { count: 1, rows: 2, columns: 4 };
        let places = grid.places_in_squares(2);
        assert_eq!(places[..4], [[0, 0], [0, 1], [1, 0], [1, 1]]);
        assert_eq!(places[4..], [[0, 2], [0, 3], [1, 2], [1, 3]]);
    }

    #[test]
    fn windows_at_the_end_are_cut() {
        let (order, counts) = windows(Grid { count: 1, rows: 3, columns: 3 }, 2);
        assert_eq!(order, [0, 1, 3, 4, 2, 5, 6, 7, 8]);
        assert_eq!(counts, [4, 2, 2, 1]);
    }
}
