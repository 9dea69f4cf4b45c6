//! Videos of Qwen-VL: frames resized alike, and patches of two frames at a time.

use omnibus_picture::{Image, PassOrder, resize};

use super::geometry::{Size, SmartResize, smart_resize};
use super::patches::{self, PatchGrid};
use super::qwen_vl::{QwenVl, Variant};
use super::settings::{ConfigFiles, Settings};
use crate::clip::{Clip, Sampling};
use crate::error::Error;
use crate::features::{Expansion, Features, Tensor, check_size};

/// How a video stands in a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stamps {
    /// One run of features. Qwen2-VL and Qwen2.5-VL.
    None,
    /// The time before the features of each step. Qwen3-VL and later.
    Seconds,
}

/// Settings of the video processor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QwenVideo {
    qwen: QwenVl,
    stamps: Stamps,
    fps: f64,
    min_frames: usize,
    max_frames: usize,
}

const START: &str = "<|vision_start|>";
const TOKEN: &str = "<|video_pad|>";
const END: &str = "<|vision_end|>";

impl QwenVideo {
    pub fn read(files: &ConfigFiles, variant: &Variant, stamps: Stamps) -> Result<QwenVideo, Error> {
        let settings = Settings::video(files);
        let variant = Variant { min_pixels: 128 * 32 * 32, max_pixels: 768 * 32 * 32, ..variant.clone() };
        let fps = settings.number("fps")?.unwrap_or(2.0);
        if fps <= 0.0 {
            return Err(settings.wrong("fps", "must be more than 0"));
        }
        Ok(QwenVideo {
            qwen: QwenVl::read_from(&settings, &variant)?,
            stamps,
            fps,
            min_frames: settings.count("min_frames")?.unwrap_or(4),
            max_frames: settings.count("max_frames")?.unwrap_or(768),
        })
    }

    pub fn sampling(&self) -> Sampling {
        let QwenVideo { fps, min_frames: min, max_frames: max, .. } = *self;
        match self.stamps {
            Stamps::None => Sampling::RateInSteps { fps, min, max, multiple: self.qwen.temporal },
            Stamps::Seconds => Sampling::Rate { fps, min, max },
        }
    }

    pub fn video(&self, clip: &Clip) -> Result<Features, Error> {
        let QwenVl { patch, merge, temporal, .. } = self.qwen;
        let frames = clip.frames();
        let steps = frames.len().div_ceil(temporal);
        let size = self.target(&frames[0].image, frames.len())?;
        let (rows, columns) = (size.height as usize / patch, size.width as usize / patch);
        let grid = PatchGrid { rows, columns };
        let shape = [steps * grid.count(), 3 * temporal * patch * patch];
        let mut values = Vec::with_capacity(check_size("video", &shape)?);
        for step in frames.chunks(temporal) {
            let fit =
                |image: &Image| resize(image, size.width, size.height, self.qwen.filter, PassOrder::Pillow13);
            let images: Vec<Image> = step.iter().map(|frame| fit(&frame.image)).collect::<Result<_, _>>()?;
            // The last frame fills up the last step.
            let filled: Vec<&Image> =
                (0..temporal).map(|index| &images[index.min(images.len() - 1)]).collect();
            patches::append_merged(&mut values, &filled, &self.qwen.levels, patch, merge);
        }
        let tensors = [
            ("pixel_values_videos", Tensor::f32(&shape, values)),
            ("video_grid_thw", Tensor::i64(&[1, 3], vec![steps as i64, rows as i64, columns as i64])),
        ];
        let (rows, columns) = (rows / merge, columns / merge);
        let features = Features::new(tensors, self.expansion(clip, rows * columns));
        let seconds = frames.chunks(temporal).map(|step| step[0].seconds).collect();
        Ok(Features { seconds, ..features.with_grid(steps, rows, columns) })
    }

    fn target(&self, first: &Image, frames: usize) -> Result<Size, Error> {
        let size = Size::of(first);
        let factor = self.qwen.factor();
        if size.height < factor || size.width < factor {
            return Err(Error::unsuitable("video", format!("its sides must be at least {factor} pixels")));
        }
        let bounds = SmartResize {
            factor,
            min_pixels: self.qwen.min_pixels as f64,
            max_pixels: self.qwen.max_pixels as f64,
            frames: frames as f64,
            rounded_frames: frames.next_multiple_of(self.qwen.temporal) as f64,
        };
        smart_resize(size, &bounds)
    }

    fn expansion(&self, clip: &Clip, tokens: usize) -> Expansion {
        let temporal = self.qwen.temporal;
        let steps = clip.frames().chunks(temporal);
        match self.stamps {
            Stamps::None => Expansion::repeated(TOKEN, tokens * steps.len()),
            Stamps::Seconds => {
                let mut expansion = Expansion::empty(&[START, TOKEN, END].concat(), TOKEN);
                for step in steps {
                    let (first, last) = (step[0].seconds, step[step.len() - 1].seconds);
                    let middle = (first + last) / 2.0;
                    expansion.text(&format!("<{middle:.1} seconds>")).text(START).tokens(tokens).text(END);
                }
                expansion
            }
        }
    }
}
