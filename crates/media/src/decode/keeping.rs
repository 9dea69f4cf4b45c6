//! The frames of a video that are kept while all are decoded.
//!
//! Invariant: only frames that are kept stay in memory; their number, their pixels and all pixels that are decoded have
//! limits.

use omnibus_picture::Image;

use crate::clip::{Clip, Frame, Sampling};
use crate::error::Error;
use crate::limits::Limits;

/// Formats of video, for messages.
pub(super) const SUPPORTED: &str =
    "MP4 and Matroska with H.264, animated GIF, WebP and PNG, and with ffmpeg all others";

/// Keeps the frames that were chosen, while all are decoded.
pub(super) struct Keeping {
    indices: Vec<usize>,
    kept: Vec<Frame>,
    next: usize,
    pixels: u64,
    decoded: u64,
    limits: Limits,
}

impl Keeping {
    pub fn new(total: usize, rate: f64, sampling: &Sampling, limits: &Limits) -> Result<Keeping, Error> {
        let indices = sampling.indices(total, rate);
        if indices.is_empty() {
            return Err(Error::Empty { what: "video", missing: "frames" });
        }
        if indices.len() > limits.frames {
            let (found, most) = (indices.len() as u64, limits.frames as u64);
            return Err(Error::TooLarge { what: "video", found, most, unit: "frames" });
        }
        Ok(Keeping { indices, kept: Vec::new(), next: 0, pixels: 0, decoded: 0, limits: limits.clone() })
    }

    /// Counts a frame of a size, and says whether it is kept.
    pub fn wants(&mut self, width: u32, height: u32) -> Result<bool, Error> {
        super::image::check_dimensions("video", width, height, &self.limits)?;
        let pixels = u64::from(width) * u64::from(height);
        self.decoded += pixels;
        let over = |found, most, unit| Err(Error::TooLarge { what: "video", found, most, unit });
        if self.decoded > self.limits.decoded_pixels {
            return over(self.decoded, self.limits.decoded_pixels, "pixels in all of its frames");
        }
        let wanted = self.keeps_next();
        if wanted {
            self.pixels += pixels;
            if self.pixels > self.limits.clip_pixels {
                return over(self.pixels, self.limits.clip_pixels, "pixels in the frames that are kept");
            }
        } else {
            self.pass();
        }
        Ok(wanted)
    }

    /// Whether the next frame is kept.
    pub fn keeps_next(&self) -> bool {
        self.indices.contains(&self.next)
    }

    /// Leaves the next frame out.
    pub fn pass(&mut self) {
        self.next += 1;
    }

    /// Keeps the frame that was wanted.
    pub fn keep(&mut self, image: Image, seconds: f64) {
        self.kept.push(Frame { image, index: self.next, seconds });
        self.next += 1;
    }

    /// Whether no later frame is kept.
    pub fn is_done(&self) -> bool {
        self.indices.last().is_none_or(|last| self.next > *last)
    }

    pub fn finish(self, total: usize, rate: f64) -> Result<Clip, Error> {
        Clip::new(self.kept, total, rate)
    }
}

/// Frames per second, of frames at `seconds`. A video of one frame has 1.
pub(super) fn rate_of(frames: usize, seconds: f64) -> f64 {
    if frames > 1 && seconds > 0.0 { frames as f64 / seconds } else { 1.0 }
}
