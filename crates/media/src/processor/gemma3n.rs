//! Gemma 3n: the picture at the encoder's size, rescaled only.

use omnibus_picture::{Filter, Image};

use super::geometry::Size;
use super::levels::{Arithmetic, Levels, PLAIN};
use super::patches;
use super::settings::{ConfigFiles, Settings};
use super::whole_image::{Fit, Target};
use crate::error::Error;
use crate::features::{Expansion, Features, Tensor, check_size};

/// Settings of the processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gemma3n {
    fit: Fit,
    levels: Levels,
    tokens: usize,
}

impl Gemma3n {
    /// What a file leaves out is as published.
    pub fn read(files: &ConfigFiles) -> Result<Gemma3n, Error> {
        let (settings, prompt) = (Settings::image(files), Settings::prompt(files));
        let fit = Fit::read(&settings, Target::Exact(Size::square(768)), None)?;
        let filter = settings.filter("resample")?.unwrap_or(Filter::Bilinear);
        let levels = Levels::read(&settings, &PLAIN, Arithmetic::Float64)?;
        if fit.size().is_none() {
            return Err(settings.wrong("size", "must be a height and a width"));
        }
        let tokens = match settings.count("image_seq_length")?.or(prompt.count("image_seq_length")?) {
            Some(tokens) => tokens,
            None => prompt.count("vision_soft_tokens_per_image")?.unwrap_or(256),
        };
        Ok(Gemma3n { fit: Fit { filter, ..fit }, levels, tokens })
    }

    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        let image = self.fit.apply(image)?;
        let shape = [1, 3, image.height() as usize, image.width() as usize];
        check_size("image", &shape)?;
        let pixels = Tensor::f32(&shape, patches::stack_planes(&[image], &self.levels));
        let mut expansion = Expansion::empty("<image_soft_token>", "<image_soft_token>");
        expansion.text("\n\n<start_of_image>").tokens(self.tokens).text("<end_of_image>\n\n");
        Ok(Features::new([("pixel_values", pixels)], expansion))
    }
}
