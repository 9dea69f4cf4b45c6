//! Pillow's resize of 8-bit pictures, byte for byte: integer weights of 22 bits, one axis after the other.
//!
//! Invariant: no floating point after the weights, so that every machine gives the same bytes.

use crate::error::Error;
use crate::picture::{CHANNELS, Image};

/// Bits after the point of a weight.
const BITS: u32 = 22;

/// Most pixels of a resized picture, also between its two passes. Target sizes come from files of a model.
const PIXELS_MAX: u64 = 64 << 20;

/// How a pixel is weighed from its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Filter {
    /// The pixel under the centre.
    Nearest,
    /// Windowed sinc over 3 pixels to each side.
    Lanczos,
    /// Triangle over 1 pixel to each side.
    Bilinear,
    /// Keys' cubic with a = -0.5 over 2 pixels to each side.
    Bicubic,
    /// Mean of the pixels under the new one.
    Box,
    /// Hamming-windowed sinc over 1 pixel to each side.
    Hamming,
}

impl Filter {
    /// The filter with Pillow's number, which is `resample` in processor configs.
    pub fn from_pillow(number: u64) -> Option<Filter> {
        match number {
            0 => Some(Filter::Nearest),
            1 => Some(Filter::Lanczos),
            2 => Some(Filter::Bilinear),
            3 => Some(Filter::Bicubic),
            4 => Some(Filter::Box),
            5 => Some(Filter::Hamming),
            _ => None,
        }
    }

    /// How far it reaches to each side, in source pixels when enlarging.
    fn radius(self) -> f64 {
        match self {
            Filter::Nearest => 0.0,
            Filter::Box => 0.5,
            Filter::Bilinear | Filter::Hamming => 1.0,
            Filter::Bicubic => 2.0,
            Filter::Lanczos => 3.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        match self {
            Filter::Nearest => 0.0,
            Filter::Box => f64::from(x > -0.5 && x <= 0.5),
            Filter::Bilinear => (1.0 - x.abs()).max(0.0),
            Filter::Hamming => hamming(x.abs()),
            Filter::Bicubic => bicubic(x.abs()),
            Filter::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Filter::Lanczos => 0.0,
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * std::f64::consts::PI;
    x.sin() / x
}

fn bicubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * A
    } else {
        0.0
    }
}

fn hamming(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    if x >= 1.0 {
        return 0.0;
    }
    let x = x * std::f64::consts::PI;
    x.sin() / x * (0.54 + 0.46 * x.cos())
}

/// Which axis is resized first. The bytes differ, as a picture is rounded to 8 bits in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PassOrder {
    /// Pillow 13: columns first where the height shrinks by more than twice what the width shrinks.
    Pillow13,
    /// Pillow 12 and older, and torchvision: always the rows.
    RowsFirst,
}

/// Resizes to `width` x `height` as Pillow does.
pub fn resize(
    image: &Image,
    width: u32,
    height: u32,
    filter: Filter,
    order: PassOrder,
) -> Result<Image, Error> {
    if width == 0 || height == 0 {
        return Err(Error::NothingLeft { width, height });
    }
    let shrinks = |from: u32, to: u32| i64::from(from) - i64::from(to);
    let columns_first = order == PassOrder::Pillow13
        && image.height() > height
        && shrinks(image.height(), height) > 2 * shrinks(image.width(), width);
    let between = if columns_first { (image.width(), height) } else { (width, image.height()) };
    let pixels = |(width, height): (u32, u32)| u64::from(width) * u64::from(height);
    let found = pixels((width, height)).max(pixels(between));
    if found > PIXELS_MAX {
        return Err(Error::TooLarge { found, most: PIXELS_MAX });
    }
    if filter == Filter::Nearest {
        return nearest(image, width, height);
    }
    if columns_first {
        resize_rows(&resize_columns(image, height, filter)?, width, filter)
    } else {
        resize_columns(&resize_rows(image, width, filter)?, height, filter)
    }
}

/// The weights of one new pixel: the first source pixel, and a weight for it and each that follows.
struct Taps {
    first: usize,
    weights: Vec<i32>,
}

fn taps(from: u32, to: u32, filter: Filter) -> Vec<Taps> {
    let scale = f64::from(from) / f64::from(to);
    let stretch = scale.max(1.0);
    let support = filter.radius() * stretch;
    let one = f64::from(1u32 << BITS);
    let pixel = |index: u32| {
        let centre = (f64::from(index) + 0.5) * scale;
        // `as` truncates towards zero and saturates, as is meant here.
        let first = ((centre - support + 0.5).max(0.0)) as u32;
        let end = ((centre + support + 0.5) as u32).min(from);
        let weigh = |at: u32| filter.weight((f64::from(at) - centre + 0.5) * (1.0 / stretch));
        let weights: Vec<f64> = (first..end).map(weigh).collect();
        let total: f64 = weights.iter().sum();
        let factor = if total == 0.0 { 1.0 } else { 1.0 / total };
        let integer = |weight: f64| {
            let weight = weight * factor;
            (weight * one + if weight >= 0.0 { 0.5 } else { -0.5 }) as i32
        };
        Taps { first: first as usize, weights: weights.into_iter().map(integer).collect() }
    };
    (0..to).map(pixel).collect()
}

/// Half of the last place, so that the shift rounds.
const HALF: i32 = 1 << (BITS - 1);

fn byte(sum: i32) -> u8 {
    (sum >> BITS).clamp(0, 255) as u8
}

fn resize_rows(image: &Image, width: u32, filter: Filter) -> Result<Image, Error> {
    if image.width() == width {
        return Ok(image.clone());
    }
    let taps = taps(image.width(), width, filter);
    let mut pixels = Vec::with_capacity(CHANNELS * width as usize * image.height() as usize);
    for row in image.rows() {
        for tap in &taps {
            let mut sums = [HALF; CHANNELS];
            let from = row[CHANNELS * tap.first..].chunks_exact(CHANNELS);
            for (pixel, weight) in from.zip(&tap.weights) {
                for (sum, value) in sums.iter_mut().zip(pixel) {
                    *sum += i32::from(*value) * weight;
                }
            }
            pixels.extend(sums.map(byte));
        }
    }
    Image::new(width, image.height(), pixels)
}

fn resize_columns(image: &Image, height: u32, filter: Filter) -> Result<Image, Error> {
    if image.height() == height {
        return Ok(image.clone());
    }
    let row_bytes = CHANNELS * image.width() as usize;
    let mut pixels = Vec::with_capacity(row_bytes * height as usize);
    let mut sums = vec![HALF; row_bytes];
    for tap in taps(image.height(), height, filter) {
        sums.fill(HALF);
        for (row, weight) in image.rows().skip(tap.first).zip(&tap.weights) {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += i32::from(*value) * weight;
            }
        }
        pixels.extend(sums.iter().map(|sum| byte(*sum)));
    }
    Image::new(image.width(), height, pixels)
}

fn nearest(image: &Image, width: u32, height: u32) -> Result<Image, Error> {
    let columns = nearest_sources(image.width(), width);
    let mut pixels = Vec::with_capacity(CHANNELS * width as usize * height as usize);
    for y in nearest_sources(image.height(), height) {
        let row = image.rows().nth(y).unwrap_or_default();
        for x in &columns {
            pixels.extend(row.iter().skip(CHANNELS * x).take(CHANNELS));
        }
    }
    Image::new(width, height, pixels)
}

/// Pillow adds the scale again and again, and its rounding errors with it.
fn nearest_sources(from: u32, to: u32) -> Vec<usize> {
    let scale = f64::from(from) / f64::from(to);
    let mut at = scale * 0.5;
    let mut sources = Vec::with_capacity(to as usize);
    for _ in 0..to {
        sources.push((at as usize).min(from as usize - 1));
        at += scale;
    }
    sources
}
