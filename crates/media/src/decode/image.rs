//! Pictures of every format: turned as their EXIF says, in RGB with 8 bits a channel.
//!
//! Invariant: colours are the bytes of the file; colour profiles are not applied, as no processor applies them.

use std::io::Cursor;

use ::image::metadata::Orientation;
use ::image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader};
use omnibus_picture::{CHANNELS, Image};

use super::format::{Format, describe};
use super::webp;
use crate::error::{Error, one_line};
use crate::limits::Limits;

/// Formats of pictures, for messages.
pub(super) const SUPPORTED: &str = "JPEG, PNG, WebP, GIF, BMP and TIFF";

/// Formats of pictures that ffmpeg may decode, for messages.
const WITH_FFMPEG: &str = "JPEG, PNG, WebP, GIF, BMP and TIFF, and with --ffmpeg this one";

/// Memory that a decoder may use beside a picture's own pixels: palettes, metadata, tables.
const DECODER_BYTES: u64 = 64 << 20;

/// Most bytes of a pixel while it is decoded.
const PIXEL_BYTES: u64 = 16;

/// What becomes of transparency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Alpha {
    /// The picture is blended over white, as vLLM and transformers do it.
    #[default]
    OverWhite,
    /// Alpha is dropped, whatever colour stands behind it, as mlx-vlm does it.
    Dropped,
}

/// Decodes a picture; of an animated one the first frame.
///
/// The picture is turned upright by its EXIF orientation. Grey becomes RGB, palettes their colours, CMYK is converted
/// without a profile, and of 16 bits a channel the upper 8 are kept (Pillow clips 16-bit grey instead).
pub fn decode_image(bytes: &[u8], limits: &Limits, alpha: Alpha) -> Result<Image, Error> {
    super::check_file("image", bytes, limits)?;
    let (format, decoder_format) = match Format::of(bytes) {
        Some(Format::Jpeg) => (Format::Jpeg, ImageFormat::Jpeg),
        Some(Format::Png) => (Format::Png, ImageFormat::Png),
        Some(Format::WebP) => (Format::WebP, ImageFormat::WebP),
        Some(Format::Gif) => (Format::Gif, ImageFormat::Gif),
        Some(Format::Bmp) => (Format::Bmp, ImageFormat::Bmp),
        Some(Format::Tiff) => (Format::Tiff, ImageFormat::Tiff),
        _ => return Err(unsupported(bytes)),
    };
    super::contained(format.name(), || decode(bytes, format, decoder_format, limits, alpha))
}

fn decode(
    bytes: &[u8],
    format: Format,
    decoder_format: ImageFormat,
    limits: &Limits,
    alpha: Alpha,
) -> Result<Image, Error> {
    let broken = |error: ImageError| error_of(format, error);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), decoder_format);
    reader.limits(decoder_limits(limits));
    let mut decoder = reader.into_decoder().map_err(broken)?;
    let (width, height) = decoder.dimensions();
    check_dimensions("image", width, height, limits)?;
    // A picture with a damaged EXIF block is still a picture.
    let orientation = match format {
        Format::WebP => webp::exif(bytes).and_then(Orientation::from_exif_chunk),
        _ => decoder.orientation().ok(),
    };
    let orientation = orientation.unwrap_or(Orientation::NoTransforms);
    let mut picture = DynamicImage::from_decoder(decoder).map_err(broken)?;
    picture.apply_orientation(orientation);
    rgb(picture, alpha)
}

/// Compares a picture's size with the limits, before it is decoded.
pub(super) fn check_dimensions(
    what: &'static str,
    width: u32,
    height: u32,
    limits: &Limits,
) -> Result<(), Error> {
    if width == 0 || height == 0 {
        return Err(Error::Empty { what, missing: "pixels" });
    }
    let side = width.max(height);
    if side > limits.side {
        let (found, most) = (u64::from(side), u64::from(limits.side));
        return Err(Error::TooLarge { what, found, most, unit: "pixels to a side" });
    }
    let found = u64::from(width) * u64::from(height);
    if found > limits.pixels {
        return Err(Error::TooLarge { what, found, most: limits.pixels, unit: "pixels" });
    }
    Ok(())
}

pub(super) fn decoder_limits(limits: &Limits) -> ::image::Limits {
    let mut most = ::image::Limits::default();
    most.max_alloc = Some(limits.pixels.saturating_mul(PIXEL_BYTES).saturating_add(DECODER_BYTES));
    // Sides are compared by `check_dimensions`, which says what is wrong.
    most
}

pub(super) fn unsupported(bytes: &[u8]) -> Error {
    let supported = match Format::of(bytes) {
        Some(Format::Avif | Format::Heic) => WITH_FFMPEG,
        _ => SUPPORTED,
    };
    Error::Unsupported { what: "image", found: describe(bytes), supported }
}

pub(super) fn error_of(format: Format, error: ImageError) -> Error {
    let detail = match &error {
        ImageError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            "it ends too early".to_owned()
        }
        ImageError::Limits(_) => "decoding it needs more memory than the limit of pixels allows".to_owned(),
        other => one_line(&other.to_string()),
    };
    Error::Broken { format: format.name(), detail }
}

/// RGB with 8 bits a channel.
pub(super) fn rgb(picture: DynamicImage, alpha: Alpha) -> Result<Image, Error> {
    let (width, height) = (picture.width(), picture.height());
    let upper = |value: u16| (value >> 8) as u8;
    let pixels = match picture {
        DynamicImage::ImageRgb8(picture) => picture.into_raw(),
        DynamicImage::ImageLuma8(picture) => {
            picture.into_raw().into_iter().flat_map(|y| [y; CHANNELS]).collect()
        }
        DynamicImage::ImageLuma16(picture) => {
            picture.into_raw().into_iter().flat_map(|y| [upper(y); CHANNELS]).collect()
        }
        DynamicImage::ImageRgb16(picture) => picture.into_raw().into_iter().map(upper).collect(),
        DynamicImage::ImageLumaA8(picture) => {
            blended(picture.into_raw().chunks_exact(2), alpha, |p| [p[0], p[0], p[0], p[1]])
        }
        DynamicImage::ImageLumaA16(picture) => blended(picture.into_raw().chunks_exact(2), alpha, |p| {
            [upper(p[0]), upper(p[0]), upper(p[0]), upper(p[1])]
        }),
        DynamicImage::ImageRgba8(picture) => {
            blended(picture.into_raw().chunks_exact(4), alpha, |p| [p[0], p[1], p[2], p[3]])
        }
        DynamicImage::ImageRgba16(picture) => blended(picture.into_raw().chunks_exact(4), alpha, |p| {
            [upper(p[0]), upper(p[1]), upper(p[2]), upper(p[3])]
        }),
        // Floats come from formats that are not enabled, but for some TIFFs.
        other => other.into_rgb8().into_raw(),
    };
    Ok(Image::new(width, height, pixels)?)
}

fn blended<'a, T: 'a>(
    pixels: impl Iterator<Item = &'a [T]>,
    alpha: Alpha,
    rgba: impl Fn(&[T]) -> [u8; 4],
) -> Vec<u8> {
    pixels
        .flat_map(|pixel| {
            let [red, green, blue, opacity] = rgba(pixel);
            match alpha {
                Alpha::Dropped => [red, green, blue],
                Alpha::OverWhite => [red, green, blue].map(|level| over_white(level, opacity)),
            }
        })
        .collect()
}

/// Pillow's alpha composite over opaque white, in its integers.
fn over_white(level: u8, opacity: u8) -> u8 {
    const ONE: u32 = 255 << 7;
    let share = (u32::from(opacity) * 255 * 255 * (1 << 7)) / (255 * 255);
    let mixed = u32::from(level) * share + 255 * (ONE - share) + (0x80 << 7);
    ((((mixed >> 8) + mixed) >> 8) >> 7) as u8
}
