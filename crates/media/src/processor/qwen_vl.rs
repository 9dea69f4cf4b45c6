//! Smart resize to a multiple of merged patches, patches flat and grouped by merge: Qwen-VL, GLM-4V, dots.ocr.

use omnibus_picture::{Filter, Image, PassOrder, resize};

use super::geometry::{Size, SmartResize, smart_resize};
use super::levels::{Arithmetic, CLIP, Defaults, HALF, Levels};
use super::patches::{self, PatchGrid};
use super::settings::{ConfigFiles, Settings};
use crate::error::Error;
use crate::features::{Expansion, Features, Tensor, check_size};

/// What sets one kind apart from another.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Variant {
    pub arithmetic: Arithmetic,
    pub small: Small,
    pub patch: usize,
    pub min_pixels: usize,
    pub max_pixels: usize,
    /// The placeholder token.
    pub token: &'static str,
}

/// What happens to pictures with a side shorter than a merged patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Small {
    /// Nothing special.
    AsIs,
    /// They are enlarged first, and pixels are counted for all frames of a step in time.
    EnlargedAllFrames,
    /// They are enlarged first, with rounding.
    Rounded,
}

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QwenVl {
    pub levels: Levels,
    pub small: Small,
    pub filter: Filter,
    pub patch: usize,
    pub merge: usize,
    pub temporal: usize,
    pub min_pixels: usize,
    pub max_pixels: usize,
    pub token: &'static str,
}

pub(crate) const QWEN2: Variant = Variant {
    arithmetic: Arithmetic::Float64,
    small: Small::AsIs,
    patch: 14,
    min_pixels: 56 * 56,
    max_pixels: 28 * 28 * 1280,
    token: "<|image_pad|>",
};
pub(crate) const MLX_QWEN2: Variant = Variant { arithmetic: Arithmetic::Float32, ..QWEN2 };
pub(crate) const MLX_QWEN3: Variant = Variant { patch: 16, ..MLX_QWEN2 };
pub(crate) const GLM4V: Variant = Variant {
    small: Small::EnlargedAllFrames,
    min_pixels: 112 * 112,
    max_pixels: 28 * 28 * 15_000,
    token: "<|image|>",
    ..QWEN2
};
pub(crate) const DOTS_OCR: Variant = Variant { token: "<|imgpad|>", ..QWEN2 };

impl QwenVl {
    pub fn read(files: &ConfigFiles, variant: &Variant) -> Result<QwenVl, Error> {
        QwenVl::read_from(&Settings::image(files), variant)
    }

    pub fn read_from(settings: &Settings, variant: &Variant) -> Result<QwenVl, Error> {
        settings.must_resize()?;
        let defaults: &Defaults = if variant.patch == 16 { &HALF } else { &CLIP };
        let pixels = |field, edge, default| -> Result<usize, Error> {
            Ok(settings.count(field)?.or(settings.inner("size", edge)?).unwrap_or(default))
        };
        // mlx-vlm's own Qwen processors read no filter.
        let filter = match variant.arithmetic {
            Arithmetic::Float32 => None,
            _ => settings.filter("resample")?,
        };
        let qwen = QwenVl {
            levels: Levels::read(settings, defaults, variant.arithmetic)?,
            small: variant.small,
            filter: filter.unwrap_or(Filter::Bicubic),
            patch: settings.count("patch_size")?.unwrap_or(variant.patch),
            merge: settings.count("merge_size")?.unwrap_or(2),
            temporal: settings.count("temporal_patch_size")?.unwrap_or(2),
            min_pixels: pixels("min_pixels", "shortest_edge", variant.min_pixels)?,
            max_pixels: pixels("max_pixels", "longest_edge", variant.max_pixels)?,
            token: variant.token,
        };
        let factor = qwen.patch.saturating_mul(qwen.merge);
        if factor > 4096 || qwen.temporal > 64 {
            return Err(
                settings.wrong("patch_size", "is too large, with `merge_size` and `temporal_patch_size`")
            );
        }
        if qwen.max_pixels < qwen.min_pixels {
            return Err(settings.wrong("max_pixels", "must not be less than `min_pixels`"));
        }
        Ok(qwen)
    }

    /// Side of a group of merged patches.
    pub fn factor(&self) -> u32 {
        (self.patch * self.merge) as u32
    }

    /// The size of a picture before it is cut into patches.
    pub fn target(&self, image: &Image) -> Result<Size, Error> {
        let (frames, size) = match self.small {
            Small::AsIs => (1.0, Size::of(image)),
            Small::EnlargedAllFrames => (self.temporal as f64, enlarged(Size::of(image), self.factor())),
            Small::Rounded => (1.0, enlarged_rounded(Size::of(image), self.factor())),
        };
        let bounds = SmartResize {
            factor: self.factor(),
            min_pixels: self.min_pixels as f64,
            max_pixels: self.max_pixels as f64,
            frames,
            rounded_frames: frames,
        };
        smart_resize(size, &bounds)
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let size = self.target(image)?;
        let image = resize(image, size.width, size.height, self.filter, PassOrder::Pillow13)?;
        let grid = PatchGrid::of(&image, self.patch);
        let shape = [grid.count(), 3 * self.temporal * self.patch * self.patch];
        let mut values = Vec::with_capacity(check_size("image", &shape)?);
        patches::append_merged(
            &mut values,
            &vec![&image; self.temporal],
            &self.levels,
            self.patch,
            self.merge,
        );
        let (rows, columns) = (grid.rows / self.merge, grid.columns / self.merge);
        let tensors = [
            ("pixel_values", Tensor::f32(&shape, values)),
            ("image_grid_thw", Tensor::i64(&[1, 3], vec![1, grid.rows as i64, grid.columns as i64])),
        ];
        Ok(Features::new(tensors, Expansion::repeated(self.token, rows * columns))
            .with_grid(1, rows, columns))
    }
}

/// GLM-4V enlarges what is smaller than a merged patch, and truncates.
fn enlarged(size: Size, factor: u32) -> Size {
    if size.height >= factor && size.width >= factor {
        return size;
    }
    let factor = f64::from(factor);
    let scale = (factor / f64::from(size.height)).max(factor / f64::from(size.width));
    let side = |side: u32| (f64::from(side) * scale) as u32;
    Size { height: side(size.height), width: side(size.width) }
}

/// PaddleOCR-VL enlarges one side after the other, and rounds.
fn enlarged_rounded(size: Size, factor: u32) -> Size {
    let other = |side: u32, short: u32| {
        (f64::from(side) * f64::from(factor) / f64::from(short)).round_ties_even() as u32
    };
    let Size { mut height, mut width } = size;
    if height < factor {
        (width, height) = (other(width, height), factor);
    }
    if width < factor {
        (height, width) = (other(height, width), factor);
    }
    Size { height, width }
}
