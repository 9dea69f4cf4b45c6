//! SigLIP 2 with any aspect ratio: the largest size whose patches fit, padded with a mask.

use omnibus_picture::{Filter, Image, PassOrder, resize};

use super::geometry::Size;
use super::levels::{Arithmetic, HALF, Levels};
use super::patches::{self, PatchGrid};
use super::settings::{ConfigFiles, Settings};
use crate::error::Error;
use crate::features::{Expansion, Features, Tensor, check_size};

/// How exactly the reference searches for the scale.
const EPSILON: f64 = 1e-5;

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Siglip2 {
    levels: Levels,
    filter: Filter,
    patch: usize,
    max_patches: usize,
}

impl Siglip2 {
    pub fn read(files: &ConfigFiles) -> Result<Siglip2, Error> {
        let settings = Settings::image(files);
        settings.must_resize()?;
        let siglip = Siglip2 {
            levels: Levels::read(&settings, &HALF, Arithmetic::Float64)?,
            filter: settings.filter("resample")?.unwrap_or(Filter::Bilinear),
            patch: settings.count("patch_size")?.unwrap_or(16),
            max_patches: settings.count("max_num_patches")?.unwrap_or(256),
        };
        if siglip.patch > 1024 {
            return Err(settings.wrong("patch_size", "must not be over 1024"));
        }
        Ok(siglip)
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let size = self.target(Size::of(image));
        let image = resize(image, size.width, size.height, self.filter, PassOrder::Pillow13)?;
        let grid = PatchGrid::of(&image, self.patch);
        if grid.count() > self.max_patches {
            return Err(Error::unsuitable(
                "image",
                format!("it needs more than {} patches", self.max_patches),
            ));
        }
        let [pixels, mask] = padded_patches(&[image], &self.levels, self.patch, self.max_patches)?;
        let shapes = vec![grid.rows as i64, grid.columns as i64];
        let tensors = [
            ("pixel_values", pixels),
            ("pixel_attention_mask", mask),
            ("spatial_shapes", Tensor::i64(&[1, 2], shapes)),
        ];
        let expansion = Expansion::repeated("<image>", grid.count());
        Ok(Features::new(tensors, expansion).with_grid(1, grid.rows, grid.columns))
    }

    /// The largest size in whole patches whose patches fit, found by halving as the reference does.
    fn target(&self, size: Size) -> Size {
        let patch = self.patch as f64;
        let scaled = |scale: f64, side: u32| {
            let side = (f64::from(side) * scale / patch).ceil() * patch;
            side.max(patch)
        };
        let (mut low, mut high) = (EPSILON / 10.0, 100.0);
        while high - low >= EPSILON {
            let scale = (low + high) / 2.0;
            let patches = scaled(scale, size.height) / patch * (scaled(scale, size.width) / patch);
            if patches <= self.max_patches as f64 {
                low = scale;
            } else {
                high = scale;
            }
        }
        Size { height: scaled(low, size.height) as u32, width: scaled(low, size.width) as u32 }
    }
}

/// Patches of each picture with the channel last, padded with 0 to `most`, and a mask of the real ones.
/// No picture has more than `most` patches.
pub(crate) fn padded_patches(
    images: &[Image],
    levels: &Levels,
    patch: usize,
    most: usize,
) -> Result<[Tensor; 2], Error> {
    let width = 3 * patch * patch;
    let shape = [images.len(), most, width];
    let mut values = Vec::with_capacity(check_size("image", &shape)?);
    let mut mask = Vec::with_capacity(images.len() * most);
    for (index, image) in images.iter().enumerate() {
        let real = PatchGrid::of(image, patch).count();
        patches::append_channel_last(&mut values, image, levels, patch);
        values.resize((index + 1) * most * width, 0.0);
        mask.extend((0..most).map(|at| i64::from(at < real)));
    }
    Ok([Tensor::f32(&shape, values), Tensor::i64(&[images.len(), most], mask)])
}
