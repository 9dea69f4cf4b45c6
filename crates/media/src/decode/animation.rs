//! Animated GIF, WebP and PNG as video.

use std::io::Cursor;

use ::image::codecs::gif::GifDecoder;
use ::image::codecs::png::PngDecoder;
use ::image::codecs::webp::WebPDecoder;
use ::image::{AnimationDecoder, Frames, ImageDecoder, ImageError};

use super::format::Format;
use super::image::{check_dimensions, decoder_limits, error_of, rgb};
use super::keeping::{Keeping, rate_of};
use crate::clip::{Clip, Sampling};
use crate::decode::Alpha;
use crate::error::Error;
use crate::limits::Limits;

/// Frames without a delay are shown for so long, as browsers do.
const DELAY_S: f64 = 0.1;

/// Most frames of an animation.
const FRAMES_MAX: usize = 20_000;

/// Decodes twice: once to count, since sampling needs to know how many frames there are, and once to keep.
pub(super) fn decode(
    bytes: &[u8],
    format: Format,
    limits: &Limits,
    sampling: &Sampling,
) -> Result<Clip, Error> {
    let mut starts = Vec::new();
    let mut seconds = 0.0;
    let mut decoded = 0u64;
    for frame in frames(bytes, format, limits)? {
        let frame = frame.map_err(|error| error_of(format, error))?;
        decoded += u64::from(frame.buffer().width()) * u64::from(frame.buffer().height());
        starts.push(seconds);
        seconds += delay(&frame);
        if decoded > limits.decoded_pixels {
            let (found, most) = (decoded, limits.decoded_pixels);
            return Err(Error::TooLarge { what: "video", found, most, unit: "pixels in all of its frames" });
        }
        if starts.len() > FRAMES_MAX {
            let (found, most) = (starts.len() as u64, FRAMES_MAX as u64);
            return Err(Error::TooLarge { what: "video", found, most, unit: "frames" });
        }
        if seconds > limits.seconds {
            let (found, most) = (seconds.ceil() as u64, limits.seconds as u64);
            return Err(Error::TooLarge { what: "video", found, most, unit: "seconds" });
        }
    }
    let rate = rate_of(starts.len(), seconds);
    let mut keeping = Keeping::new(starts.len(), rate, sampling, limits)?;
    for (frame, start) in frames(bytes, format, limits)?.zip(&starts) {
        let frame = frame.map_err(|error| error_of(format, error))?;
        if keeping.wants(frame.buffer().width(), frame.buffer().height())? {
            keeping.keep(rgb(frame.into_buffer().into(), Alpha::OverWhite)?, *start);
        }
        if keeping.is_done() {
            break;
        }
    }
    keeping.finish(starts.len(), rate)
}

fn frames<'a>(bytes: &'a [u8], format: Format, limits: &Limits) -> Result<Frames<'a>, Error> {
    let broken = |error: ImageError| error_of(format, error);
    let data = Cursor::new(bytes);
    match format {
        Format::Gif => Ok(bounded(GifDecoder::new(data).map_err(broken)?, format, limits)?.into_frames()),
        Format::WebP => Ok(bounded(WebPDecoder::new(data).map_err(broken)?, format, limits)?.into_frames()),
        _ => {
            let decoder = bounded(PngDecoder::new(data).map_err(broken)?, format, limits)?;
            Ok(decoder.apng().map_err(broken)?.into_frames())
        }
    }
}

/// A decoder whose canvas is within the limits.
fn bounded<D: ImageDecoder>(mut decoder: D, format: Format, limits: &Limits) -> Result<D, Error> {
    let (width, height) = decoder.dimensions();
    check_dimensions("video", width, height, limits)?;
    decoder.set_limits(decoder_limits(limits)).map_err(|error| error_of(format, error))?;
    Ok(decoder)
}

fn delay(frame: &::image::Frame) -> f64 {
    let (numerator, denominator) = frame.delay().numer_denom_ms();
    let seconds = f64::from(numerator) / f64::from(denominator.max(1)) / 1000.0;
    if seconds > 0.0 { seconds } else { DELAY_S }
}
