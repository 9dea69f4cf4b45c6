//! DeepSeek-VL: the longer side to the encoder's size, the rest in the mean colour.

use omnibus_picture::{Filter, Image, PassOrder, resize};

use super::levels::{Arithmetic, CLIP, Levels};
use super::patches;
use super::settings::{ConfigFiles, Settings};
use crate::error::Error;
use crate::features::{Expansion, Features, Tensor, check_size};

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DeepseekVl {
    levels: Levels,
    filter: Filter,
    side: u32,
    shortest: u32,
    background: [u8; 3],
    tokens: usize,
}

impl DeepseekVl {
    pub fn read(files: &ConfigFiles) -> Result<DeepseekVl, Error> {
        let settings = Settings::image(files);
        settings.must_resize()?;
        let (height, width) = settings.box_size("size")?.unwrap_or((384, 384));
        if height != width {
            return Err(settings.wrong("size", "must have the same height and width"));
        }
        let mean = settings.channels("image_mean")?.unwrap_or(CLIP.mean);
        Ok(DeepseekVl {
            levels: Levels::read(&settings, &CLIP, Arithmetic::Float64)?,
            filter: settings.filter("resample")?.unwrap_or(Filter::Bicubic),
            side: height,
            shortest: settings.side("min_size")?.unwrap_or(14),
            background: mean.map(|mean| (mean * 255.0) as u8),
            tokens: Settings::prompt(files).count("num_image_tokens")?.unwrap_or(576),
        })
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let longest = image.width().max(image.height());
        let scale = f64::from(self.side) / f64::from(longest);
        let scaled = |side: u32| ((f64::from(side) * scale).round_ties_even() as u32).max(self.shortest);
        let (width, height) = (scaled(image.width()), scaled(image.height()));
        let resized = resize(image, width, height, self.filter, PassOrder::Pillow13)?;
        let side = width.max(height);
        let at = ((side - width) / 2, (side - height) / 2);
        let square = resized.on_canvas((side, side), at, self.background)?;
        let shape = [1, 3, side as usize, side as usize];
        check_size("image", &shape)?;
        let pixels = Tensor::f32(&shape, patches::stack_planes(&[square], &self.levels));
        let expansion = Expansion::repeated("<image_placeholder>", self.tokens);
        Ok(Features::new([("pixel_values", pixels)], expansion))
    }
}
