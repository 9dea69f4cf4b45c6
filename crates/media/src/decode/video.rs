//! Video: GIF, WebP and PNG animations and H.264 in MP4 and Matroska; everything else through ffmpeg.
//!
//! Invariant: a process is started only for bytes in a known format that no library here decodes.

use super::animation;
use super::ffmpeg::Ffmpeg;
use super::format::{Format, describe};
use super::h264;
use super::keeping::SUPPORTED;
use crate::clip::{Clip, Sampling};
use crate::error::Error;
use crate::limits::Limits;

/// Decodes the frames of a video that `sampling` keeps. Formats and codecs that no library here decodes go through
/// `ffmpeg`, where the user has one.
pub fn decode_video(
    bytes: &[u8],
    limits: &Limits,
    sampling: &Sampling,
    ffmpeg: Option<&Ffmpeg>,
) -> Result<Clip, Error> {
    super::check_file("video", bytes, limits)?;
    let format = Format::of(bytes);
    let decoded = match format {
        Some(format @ (Format::Gif | Format::WebP | Format::Png)) => {
            super::contained(format.name(), || animation::decode(bytes, format, limits, sampling))
        }
        Some(format @ (Format::Mp4 | Format::Matroska)) => {
            super::contained(format.name(), || h264::decode(bytes, format, limits, sampling))
        }
        _ => Err(Error::Unsupported { what: "video", found: describe(bytes), supported: SUPPORTED }),
    };
    match (decoded, ffmpeg) {
        // Bytes of no known format are not worth a process.
        (Err(Error::Unsupported { .. }), Some(ffmpeg)) if format.is_some() => {
            ffmpeg.decode_video(bytes, limits, sampling)
        }
        (decoded, _) => decoded,
    }
}
