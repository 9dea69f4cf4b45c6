//! Kimi-VL: at most so many patches, cropped or padded to merged patches, patches row by row.

use omnibus_picture::{Filter, Image, PassOrder, resize};

use super::levels::{Arithmetic, CLIP, Levels};
use super::patches::{self, PatchGrid};
use super::settings::{ConfigFiles, Settings};
use crate::error::Error;
use crate::features::{Expansion, Features, Tensor, check_size};

/// Rows and columns of the encoder's position table.
const POSITIONS: usize = 512;

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KimiVl {
    levels: Levels,
    patch: u32,
    merge: (u32, u32),
    max_patches: usize,
    pads: bool,
}

impl KimiVl {
    pub fn read(files: &ConfigFiles) -> Result<KimiVl, Error> {
        let settings = Settings::image(files);
        let kernel = settings.numbers("merge_kernel_size")?;
        let merge = match kernel.as_deref() {
            None => (2, 2),
            Some([rows, columns]) if (1.0..=64.0).contains(rows) && (1.0..=64.0).contains(columns) => {
                (*rows as u32, *columns as u32)
            }
            Some(_) => return Err(settings.wrong("merge_kernel_size", "must be two numbers from 1 to 64")),
        };
        Ok(KimiVl {
            levels: Levels::read(&settings, &CLIP, Arithmetic::Divide)?,
            patch: settings.side("patch_size")?.unwrap_or(14),
            merge,
            max_patches: settings.count("in_token_limit")?.unwrap_or(4096),
            pads: settings.flag("pad_input")?.unwrap_or(false),
        })
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let image = self.whole_patches(&self.shrunk(image)?)?;
        let side = self.patch as usize;
        let grid = PatchGrid::of(&image, side);
        if grid.rows >= POSITIONS || grid.columns >= POSITIONS {
            return Err(Error::unsuitable("image", format!("it has {POSITIONS} or more patches to a side")));
        }
        let shape = [grid.count(), 3, side, side];
        let mut values = Vec::with_capacity(check_size("image", &shape)?);
        patches::append_raster(&mut values, &image, &self.levels, side, 1);
        let (rows, columns) = (grid.rows / self.merge.0 as usize, grid.columns / self.merge.1 as usize);
        let tensors = [
            ("pixel_values", Tensor::f32(&shape, values)),
            ("image_grid_hws", Tensor::i64(&[1, 2], vec![grid.rows as i64, grid.columns as i64])),
        ];
        Ok(Features::new(tensors, Expansion::repeated("<|media_pad|>", rows * columns))
            .with_grid(1, rows, columns))
    }

    /// At most `max_patches`.
    fn shrunk(&self, image: &Image) -> Result<Image, Error> {
        let patches = PatchGrid::of(image, self.patch as usize).count();
        if patches <= self.max_patches {
            return Ok(image.clone());
        }
        let scale = (self.max_patches as f64 / patches as f64).sqrt();
        let side = |side: u32| (f64::from(side) * scale) as u32;
        Ok(resize(image, side(image.width()), side(image.height()), Filter::Bicubic, PassOrder::Pillow13)?)
    }

    /// Sides that are multiples of merged patches: padded with black, or cropped to the middle.
    fn whole_patches(&self, image: &Image) -> Result<Image, Error> {
        let unit = (self.patch.saturating_mul(self.merge.1), self.patch.saturating_mul(self.merge.0));
        let (width, height) = (image.width(), image.height());
        if self.pads {
            let up = |side: u32, unit: u32| {
                side.checked_next_multiple_of(unit)
                    .ok_or_else(|| Error::unsuitable("image", "it would be padded beyond all bounds"))
            };
            let canvas = (up(width, unit.0)?, up(height, unit.1)?);
            check_size("image", &[canvas.0 as usize, canvas.1 as usize, 3])?;
            return Ok(image.on_canvas(canvas, (0, 0), [0; 3])?);
        }
        let (new_width, new_height) = (width - width % unit.0, height - height % unit.1);
        if new_width == 0 || new_height == 0 {
            let least = format!("it needs at least {}x{} pixels", unit.0, unit.1);
            return Err(Error::unsuitable("image", least));
        }
        Ok(image.crop((width - new_width) / 2, (height - new_height) / 2, new_width, new_height)?)
    }
}
