//! Gemma 4: as many pooled patches as fit, with the aspect ratio kept.

use omnibus_picture::{Filter, Image, PassOrder, resize};

use super::geometry::Size;
use super::levels::{Arithmetic, Levels, PLAIN};
use super::patches::{self, PatchGrid};
use super::settings::{ConfigFiles, Settings};
use crate::error::Error;
use crate::features::{Expansion, Features, Tensor, check_size};

/// In which form the encoder takes pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Padded patches with their positions, as transformers.
    Patches,
    /// The picture itself, as mlx-vlm.
    Planes,
}

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gemma4 {
    form: Form,
    levels: Levels,
    filter: Filter,
    patch: usize,
    pool: usize,
    max_tokens: usize,
}

impl Gemma4 {
    pub fn read(files: &ConfigFiles, form: Form) -> Result<Gemma4, Error> {
        let settings = Settings::image(files);
        settings.must_resize()?;
        let (arithmetic, filter) = match form {
            Form::Patches => (Arithmetic::Float64, settings.filter("resample")?),
            // mlx-vlm reads no filter.
            Form::Planes => (Arithmetic::Float32, None),
        };
        let gemma = Gemma4 {
            form,
            levels: Levels::read(&settings, &PLAIN, arithmetic)?,
            filter: filter.unwrap_or(Filter::Bicubic),
            patch: settings.count("patch_size")?.unwrap_or(16),
            pool: settings.count("pooling_kernel_size")?.unwrap_or(3),
            max_tokens: settings.count("max_soft_tokens")?.unwrap_or(280),
        };
        if gemma.patch.saturating_mul(gemma.pool) > 4096 || gemma.max_tokens > 1 << 16 {
            return Err(settings
                .wrong("patch_size", "is too large, with `pooling_kernel_size` and `max_soft_tokens`"));
        }
        Ok(gemma)
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let size = self.target(Size::of(image))?;
        let image = resize(image, size.width, size.height, self.filter, PassOrder::Pillow13)?;
        let grid = PatchGrid::of(&image, self.patch);
        let (rows, columns) = (grid.rows / self.pool, grid.columns / self.pool);
        let tokens = rows * columns;
        let mut expansion = Expansion::empty("<|image|>", "<|image|>");
        expansion.text("<|image>").tokens(tokens).text("<image|>");
        let count = Tensor::i64(&[1], vec![tokens as i64]);
        let tensors = match self.form {
            Form::Planes => vec![("num_soft_tokens", count), ("pixel_values", self.planes(&image)?)],
            Form::Patches => {
                let [pixels, positions] = self.patches(&image, grid)?;
                vec![
                    ("num_soft_tokens_per_image", count),
                    ("pixel_values", pixels),
                    ("image_position_ids", positions),
                ]
            }
        };
        Ok(Features::new(tensors, expansion).with_grid(1, rows, columns))
    }

    fn planes(&self, image: &Image) -> Result<Tensor, Error> {
        let shape = [1, 3, image.height() as usize, image.width() as usize];
        let mut values = Vec::with_capacity(check_size("image", &shape)?);
        patches::append_planes(&mut values, image, &self.levels);
        Ok(Tensor::f32(&shape, values))
    }

    /// Patches padded with 0, and their columns and rows padded with -1.
    fn patches(&self, image: &Image, grid: PatchGrid) -> Result<[Tensor; 2], Error> {
        let most = self.max_tokens * self.pool * self.pool;
        let shape = [1, most, 3 * self.patch * self.patch];
        let elements = check_size("image", &shape)?;
        let mut values = Vec::with_capacity(elements);
        patches::append_channel_last(&mut values, image, &self.levels, self.patch);
        values.resize(elements, 0.0);
        let place = |index: usize| [(index % grid.columns) as i64, (index / grid.columns) as i64];
        let mut positions: Vec<i64> = (0..grid.count()).flat_map(place).collect();
        positions.resize(2 * most, -1);
        Ok([Tensor::f32(&shape, values), Tensor::i64(&[1, most, 2], positions)])
    }

    /// The largest size whose pooled patches are at most `max_tokens`.
    fn target(&self, size: Size) -> Result<Size, Error> {
        let side = self.patch * self.pool;
        let pixels = (self.max_tokens * self.pool * self.pool * self.patch * self.patch) as f64;
        let (height, width) = (f64::from(size.height), f64::from(size.width));
        let factor = (pixels / (height * width)).sqrt();
        let steps = |length: f64| (factor * length / side as f64).floor() as usize * side;
        let longest = self.max_tokens * side;
        let along = |long: f64, short: f64| ((long / short).floor() as usize * side).min(longest);
        let (new_height, new_width) = match (steps(height), steps(width)) {
            (0, 0) => return Err(Error::unsuitable("image", "its size would be rounded to 0x0 pixels")),
            (0, _) => (side, along(width, height)),
            (_, 0) => (along(height, width), side),
            sides => sides,
        };
        if (new_height * new_width) as f64 > pixels {
            return Err(Error::unsuitable("image", format!("it needs more than {} tokens", self.max_tokens)));
        }
        Ok(Size { height: new_height as u32, width: new_width as u32 })
    }
}
