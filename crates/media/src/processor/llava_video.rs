//! Videos of LLaVA-OneVision: frames resized to the encoder's size, and features of each pooled to half their rows and
//! columns.

use omnibus_picture::Image;

use super::geometry::Size;
use super::levels::{Arithmetic, HALF, Levels};
use super::patches;
use super::settings::{ConfigFiles, Settings};
use super::whole_image::{Fit, Target};
use crate::clip::{Clip, Sampling};
use crate::error::Error;
use crate::features::{Expansion, Features, Layout, Tensor, check_size};

/// Frames of a video whose processor does not say how many.
const FRAMES: usize = 32;

/// Settings of the video processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LlavaVideo {
    fit: Fit,
    levels: Levels,
    frames: usize,
    /// Rows and columns of a frame's features.
    side: usize,
}

impl LlavaVideo {
    pub fn read(files: &ConfigFiles) -> Result<LlavaVideo, Error> {
        let (settings, prompt) = (Settings::video(files), Settings::prompt(files));
        let tokens = prompt.count("num_image_tokens")?.unwrap_or(729);
        Ok(LlavaVideo {
            fit: Fit::read(&settings, Target::Exact(Size::square(384)), None)?,
            levels: Levels::read(&settings, &HALF, Arithmetic::Float32)?,
            frames: settings.count("num_frames")?.unwrap_or(FRAMES),
            side: tokens.isqrt().div_ceil(2),
        })
    }

    pub fn sampling(&self) -> Sampling {
        Sampling::Count(self.frames)
    }

    pub fn video(&self, clip: &Clip) -> Result<Features, Error> {
        let fitted = clip.frames().iter().map(|frame| self.fit.apply(&frame.image));
        let frames = fitted.collect::<Result<Vec<Image>, Error>>()?;
        let size = frames.first().map_or(Size::square(1), Size::of);
        let shape = [1, frames.len(), 3, size.height as usize, size.width as usize];
        check_size("video", &shape)?;
        let pixels = Tensor::f32(&shape, patches::stack_planes(&frames, &self.levels));
        // A learned vector ends the video.
        let count = frames.len() * self.side * self.side + 1;
        let expansion = Expansion::repeated("<video>", count);
        let features = Features::new([("pixel_values_videos", pixels)], expansion);
        Ok(features.with_layout(Layout::Frames([self.side; 2])))
    }
}
