//! One picture as an encoder takes it: its views, and where their patches are.

use mlx::Array;

/// One picture. Each view is encoded on its own.
pub struct EncoderInput {
    /// A picture as a whole; its tiles, in the order of the prompt; or the frames of a video.
    pub views: Vec<View>,
    /// How the views' features become the picture's.
    pub layout: Layout,
}

/// How the features of views become those of a picture.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Layout {
    /// They follow one another.
    #[default]
    Views,
    /// The features of the first view come first, then those of a canvas that the other views are tiles of.
    Canvas(Canvas),
    /// Each view is resized to so many rows and columns: frames of a video (LLaVA-OneVision).
    Frames([usize; 2]),
    /// They are encoded together, and the first `count` of them are the picture's (Llama 3.2 Vision).
    Tiles {
        /// The number of the shape in which tiles lie, from 1.
        shape: usize,
        #[allow(missing_docs)]
        count: usize,
    },
    /// Each feature is pooled from so many rows of the last layer, by their numbers over all views; -1 stands for none
    /// (Molmo 2).
    Pools {
        /// Rows of a feature.
        count: usize,
        /// So many for each feature.
        rows: Vec<i32>,
    },
}

/// A picture on a grid of square tiles, which it need not fill. All sizes are of rows, then of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canvas {
    /// Tiles, row by row.
    pub tiles: [usize; 2],
    /// Features in the middle of the canvas that show the picture; the others show what fills it up.
    pub shown: [usize; 2],
    /// What those are resized to.
    pub resized: [usize; 2],
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

impl From<Vec<View>> for EncoderInput {
    fn from(views: Vec<View>) -> Self {
        Self { views, layout: Layout::Views }
    }
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

    /// This grid with squares of patches as one. Squares at the end may be incomplete.
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
