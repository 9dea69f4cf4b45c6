//! Video as frames with times, and which frames of a video are kept.
//!
//! Invariant: a clip has at least one frame, all frames have the same size, and times do not decrease.

use omnibus_picture::Image;

use crate::error::Error;

/// A frame that was kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// Its pixels.
    pub image: Image,
    /// Which frame of the whole video it is, from 0.
    pub index: usize,
    /// When it is shown, in seconds from the first frame.
    pub seconds: f64,
}

/// The frames that were kept of a video.
#[derive(Debug, Clone, PartialEq)]
pub struct Clip {
    frames: Vec<Frame>,
    total: usize,
    rate: f64,
}

impl Clip {
    /// A clip from frames, of a video of `total` frames, `rate` a second.
    pub fn new(frames: Vec<Frame>, total: usize, rate: f64) -> Result<Clip, Error> {
        let Some(first) = frames.first() else {
            return Err(Error::Empty { what: "video", missing: "frames" });
        };
        let size = (first.image.width(), first.image.height());
        if frames.iter().any(|frame| (frame.image.width(), frame.image.height()) != size) {
            return Err(Error::Broken {
                format: "video",
                detail: "its frames have different sizes".to_owned(),
            });
        }
        Ok(Clip { frames, total, rate })
    }

    /// The frames that were kept, in order.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// How many frames the whole video has.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Frames per second of the whole video.
    pub fn rate(&self) -> f64 {
        self.rate
    }
}

/// Which frames of a video are kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sampling {
    /// So many a second, at least `min` and at most `max`, spread from the first to the last. Qwen3-VL.
    Rate {
        /// Frames per second.
        fps: f64,
        /// Fewest frames, if the video has as many.
        min: usize,
        /// Most frames.
        max: usize,
    },
    /// So many a second within bounds, a multiple of `multiple`, each at the beginning of its share. Qwen2-VL.
    RateInSteps {
        /// Frames per second.
        fps: f64,
        /// Fewest frames, if the video has as many.
        min: usize,
        /// Most frames.
        max: usize,
        /// The number of frames is a multiple of this, or all of them if there are fewer.
        multiple: usize,
    },
    /// At most so many, spread from the first to the last. Gemma 4.
    Count(usize),
}

impl Sampling {
    /// The frames to keep of a video of `total` frames, `rate` a second: increasing, and at least one if there are any.
    pub fn indices(&self, total: usize, rate: f64) -> Vec<usize> {
        if total == 0 {
            return Vec::new();
        }
        let seconds = if rate > 0.0 { total as f64 / rate } else { 0.0 };
        match *self {
            Sampling::Rate { fps, min, max } => {
                let wanted = (seconds * fps) as usize;
                spread(total, wanted.max(min).min(max).min(total))
            }
            Sampling::RateInSteps { fps, min, max, multiple } => {
                let multiple = multiple.max(1);
                let most = max.min(total) / multiple * multiple;
                let wanted = (seconds * fps).max(min as f64).min(most as f64) as usize / multiple * multiple;
                if wanted == 0 {
                    return (0..total.min(max.max(1))).collect();
                }
                let share = total as f64 / wanted as f64;
                (0..wanted).map(|index| ((index as f64 * share) as usize).min(total - 1)).collect()
            }
            Sampling::Count(most) => spread(total, most.min(total)),
        }
    }
}

/// `count` whole numbers from 0 to `total - 1`, equally far apart but for rounding, halves to even.
fn spread(total: usize, count: usize) -> Vec<usize> {
    if count <= 1 {
        return vec![0];
    }
    let step = (total - 1) as f64 / (count - 1) as f64;
    let index =
        |at: usize| if at + 1 == count { total - 1 } else { (at as f64 * step).round_ties_even() as usize };
    (0..count).map(index).collect()
}
