//! What an encoder takes of a fixture's pictures and videos, from the processors' outputs.

use mlx::{Array, Dtype};
use omnibus_model::encoders::{Encoder, EncoderBlueprint, EncoderInput, Features, Grid, View};

use super::PictureFixture;

impl PictureFixture {
    /// Features of a case's pictures, one after the other; `None` if there are neither whole pixels in the fixture nor
    /// pictures to make them of.
    pub fn encoded(&self, case: &str, encoder: &Encoder) -> Option<Features> {
        let mut encoded = self.encoded_apart(case, encoder)?;
        if encoded.len() == 1 {
            return encoded.pop();
        }
        let joined = |parts: Vec<&Array>| mlx::concatenate(&parts, 0).unwrap();
        let layers = encoded.first()?.deepstack.len();
        let layer = |layer: usize| joined(encoded.iter().map(|of| &of.deepstack[layer]).collect());
        Some(Features {
            rows: joined(encoded.iter().map(|of| &of.rows).collect()),
            deepstack: (0..layers).map(layer).collect(),
        })
    }

    /// Features of each of a case's pictures; `None` if they cannot be encoded.
    pub fn encoded_apart(&self, case: &str, encoder: &Encoder) -> Option<Vec<Features>> {
        let inputs = self.inputs(case, encoder.blueprint())?;
        Some(inputs.iter().map(|input| encoder.encode(input).unwrap()).collect())
    }

    fn inputs(&self, case: &str, encoder: &EncoderBlueprint) -> Option<Vec<EncoderInput>> {
        match self.input(case, encoder) {
            Some(input) => Some(vec![input]),
            None => self.made(case, encoder),
        }
    }

    /// What the encoder takes of a case's pictures, one after the other; `None` if the fixture has no whole pixels.
    pub fn input(&self, case: &str, encoder: &EncoderBlueprint) -> Option<EncoderInput> {
        let size = encoder.patches.size as i32;
        let video = self.array("pixel_values_videos", case);
        let grids = match video {
            Some(_) => self.numbers("video_grid_thw", case),
            None => self.numbers("image_grid_thw", case).or_else(|| self.numbers("image_grid_hws", case)),
        };
        let (shapes, sizes) = (self.numbers("spatial_shapes", case), self.numbers("image_sizes", case));
        let views = match (self.array("pixel_values", case).or(video), grids, shapes, sizes) {
            (None, ..) => self.listed(case).iter().map(|pixels| of_planes(pixels, size)).collect(),
            (Some(pixels), Some(grids), ..) => of_grids(pixels, &grids),
            (Some(pixels), None, Some(shapes), _) => of_padded_patches(pixels, &shapes),
            (Some(pixels), None, None, Some(sizes)) => of_padded_planes(pixels, &sizes, size),
            (Some(pixels), None, None, None) => vec![of_planes(pixels, size)],
        };
        (!views.is_empty()).then(|| views.into())
    }

    /// The rows of an integer array, if the fixture has it.
    fn numbers(&self, what: &str, case: &str) -> Option<Vec<Vec<i32>>> {
        let array = self.array(what, case)?;
        let width = *array.shape().last()? as usize;
        let numbers = array.astype(Dtype::I32).unwrap().to_vec::<i32>().unwrap();
        Some(numbers.chunks(width).map(<[i32]>::to_vec).collect())
    }

    /// Pixels of pictures that a processor does not join.
    fn listed(&self, case: &str) -> Vec<&Array> {
        (0..).map_while(|index| self.array("pixel_values", &format!("{case}.{index}"))).collect()
    }
}

fn grid(count: i32, rows: i32, columns: i32) -> Grid {
    Grid { count: count as usize, rows: rows as usize, columns: columns as usize }
}

/// Patches of all pictures end to end, by their numbers of frames (perhaps), rows and columns.
pub(super) fn of_grids(pixels: &Array, grids: &[Vec<i32>]) -> Vec<View> {
    let all: i32 = grids.iter().map(|grid| grid.iter().product::<i32>()).sum();
    let patches = pixels.reshape(&[all, -1]).unwrap();
    let mut first = 0;
    let view = |of: &Vec<i32>| {
        let [.., rows, columns] = **of else { panic!("rows and columns") };
        let after = first + of.iter().product::<i32>();
        let pixels = patches.slice(&[first, 0], &[after, patches.dim(1).unwrap()]).unwrap();
        let count = (after - first) / (rows * columns);
        first = after;
        View { pixels, grid: grid(count, rows, columns) }
    };
    grids.iter().map(view).collect()
}

/// Patches of each picture, filled up behind.
pub(super) fn of_padded_patches(pixels: &Array, shapes: &[Vec<i32>]) -> Vec<View> {
    let view = |(index, shape): (usize, &Vec<i32>)| {
        let (index, patches, elements) = (index as i32, shape[0] * shape[1], pixels.dim(2).unwrap());
        let patches = pixels.slice(&[index, 0, 0], &[index + 1, patches, elements]).unwrap();
        View { pixels: patches.squeeze(&[0]).unwrap(), grid: grid(1, shape[0], shape[1]) }
    };
    shapes.iter().enumerate().map(view).collect()
}

/// Colours of each picture, filled up on the right and below.
pub(super) fn of_padded_planes(pixels: &Array, sizes: &[Vec<i32>], patch: i32) -> Vec<View> {
    let view = |(index, of): (usize, &Vec<i32>)| {
        let index = index as i32;
        let pixels = pixels.slice(&[index, 0, 0, 0], &[index + 1, 3, of[0], of[1]]).unwrap();
        View { pixels, grid: grid(1, of[0] / patch, of[1] / patch) }
    };
    sizes.iter().enumerate().map(view).collect()
}

/// Colours of pictures or tiles of one size.
pub(super) fn of_planes(pixels: &Array, patch: i32) -> View {
    let [.., height, width] = *pixels.shape() else { panic!("pixels {:?}", pixels.shape()) };
    let pixels = pixels.reshape(&[-1, 3, height, width]).unwrap();
    let grid = grid(pixels.dim(0).unwrap(), height / patch, width / patch);
    View { pixels, grid }
}
