//! PaddleOCR-VL: smart resize as Qwen-VL, patches row by row.

use omnibus_picture::{Image, PassOrder, resize};

use super::levels::Arithmetic;
use super::patches::{self, PatchGrid};
use super::qwen_vl::{QWEN2, QwenVl, Small, Variant};
use super::settings::{ConfigFiles, Settings};
use crate::error::Error;
use crate::features::{Expansion, Features, Tensor, check_size};

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PaddleOcrVl(QwenVl);

pub(crate) const PADDLEOCR: Variant = Variant {
    small: Small::Rounded,
    min_pixels: 384 * 384,
    max_pixels: 1536 * 1536,
    token: "<|IMAGE_PLACEHOLDER|>",
    ..QWEN2
};
pub(crate) const MLX_PADDLEOCR: Variant =
    Variant { arithmetic: Arithmetic::AllFloat64, min_pixels: 147_384, max_pixels: 2_822_400, ..PADDLEOCR };

impl PaddleOcrVl {
    pub fn read(files: &ConfigFiles, variant: &Variant) -> Result<PaddleOcrVl, Error> {
        let temporal = Settings::image(files).count("temporal_patch_size")?;
        let qwen = QwenVl::read(files, variant)?;
        Ok(PaddleOcrVl(QwenVl { temporal: temporal.unwrap_or(1), ..qwen }))
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let PaddleOcrVl(qwen) = self;
        let size = qwen.target(image)?;
        let image = resize(image, size.width, size.height, qwen.filter, PassOrder::Pillow13)?;
        let grid = PatchGrid::of(&image, qwen.patch);
        let shape = [grid.count(), 3 * qwen.temporal, qwen.patch, qwen.patch];
        let mut values = Vec::with_capacity(check_size("image", &shape)?);
        patches::append_raster(&mut values, &image, &qwen.levels, qwen.patch, qwen.temporal);
        let (rows, columns) = (grid.rows / qwen.merge, grid.columns / qwen.merge);
        let tensors = [
            ("pixel_values", Tensor::f32(&shape, values)),
            ("image_grid_thw", Tensor::i64(&[1, 3], vec![1, grid.rows as i64, grid.columns as i64])),
        ];
        Ok(Features::new(tensors, Expansion::repeated(qwen.token, rows * columns))
            .with_grid(1, rows, columns))
    }
}
