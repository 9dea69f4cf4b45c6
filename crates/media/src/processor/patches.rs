//! Pictures as float32 planes, and as patches in the orders that encoders take.
//!
//! Invariant: sides are multiples of the patch, and of the patch times the merge where patches are merged.

use omnibus_picture::{CHANNELS, Image};

use super::levels::Levels;

/// Appends `[3, height, width]`.
pub(crate) fn append_planes(values: &mut Vec<f32>, image: &Image, levels: &Levels) {
    for channel in 0..CHANNELS {
        let table = levels.channel(channel);
        let pixels = image.pixels().iter().skip(channel).step_by(CHANNELS);
        values.extend(pixels.map(|level| table[usize::from(*level)]));
    }
}

/// `[pictures, 3, height, width]` of pictures that have the same size.
pub(crate) fn stack_planes(images: &[Image], levels: &Levels) -> Vec<f32> {
    let mut values = Vec::with_capacity(images.iter().map(|image| image.pixels().len()).sum());
    for image in images {
        append_planes(&mut values, image, levels);
    }
    values
}

/// Rows and columns of patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PatchGrid {
    pub rows: usize,
    pub columns: usize,
}

impl PatchGrid {
    pub fn of(image: &Image, patch: usize) -> PatchGrid {
        PatchGrid { rows: image.height() as usize / patch, columns: image.width() as usize / patch }
    }

    pub fn count(self) -> usize {
        self.rows * self.columns
    }
}

/// One patch of a picture.
struct Patch<'a> {
    image: &'a Image,
    levels: &'a Levels,
    top: usize,
    left: usize,
    side: usize,
}

impl Patch<'_> {
    /// The patch's bytes in a row of pixels, `3 * side` of them.
    fn row(&self, y: usize) -> &[u8] {
        let start = CHANNELS * ((self.top + y) * self.image.width() as usize + self.left);
        &self.image.pixels()[start..start + CHANNELS * self.side]
    }

    /// Appends the `[side, side]` plane of a channel.
    fn append_plane(&self, values: &mut Vec<f32>, channel: usize) {
        let table = self.levels.channel(channel);
        for y in 0..self.side {
            let pixels = self.row(y).iter().skip(channel).step_by(CHANNELS);
            values.extend(pixels.map(|level| table[usize::from(*level)]));
        }
    }
}

/// Patches of one step in time, merge group by merge group, in the order of axes
/// `[rows/merge, columns/merge, merge, merge, 3, frames, side, side]`.
pub(crate) fn append_merged(
    values: &mut Vec<f32>,
    frames: &[&Image],
    levels: &Levels,
    side: usize,
    merge: usize,
) {
    let Some(first) = frames.first() else { return };
    let grid = PatchGrid::of(first, side);
    for row in (0..grid.rows).step_by(merge) {
        for column in (0..grid.columns).step_by(merge) {
            for inner in 0..merge * merge {
                let (top, left) = ((row + inner / merge) * side, (column + inner % merge) * side);
                for channel in 0..CHANNELS {
                    for image in frames {
                        Patch { image, levels, top, left, side }.append_plane(values, channel);
                    }
                }
            }
        }
    }
}

/// Patches row by row, `[rows * columns, 3, side, side]`, each plane `repeats` times.
pub(crate) fn append_raster(
    values: &mut Vec<f32>,
    image: &Image,
    levels: &Levels,
    side: usize,
    repeats: usize,
) {
    let grid = PatchGrid::of(image, side);
    for index in 0..grid.count() {
        let (top, left) = (index / grid.columns * side, index % grid.columns * side);
        for channel in 0..CHANNELS {
            for _ in 0..repeats {
                Patch { image, levels, top, left, side }.append_plane(values, channel);
            }
        }
    }
}

/// Patches row by row with the channel last, `[rows * columns, side, side, 3]`.
pub(crate) fn append_channel_last(values: &mut Vec<f32>, image: &Image, levels: &Levels, side: usize) {
    let grid = PatchGrid::of(image, side);
    for index in 0..grid.count() {
        let (top, left) = (index / grid.columns * side, index % grid.columns * side);
        let patch = Patch { image, levels, top, left, side };
        for y in 0..side {
            let levels = patch.row(y).iter().enumerate();
            values.extend(levels.map(|(at, level)| patch.levels.value(at % CHANNELS, *level)));
        }
    }
}
