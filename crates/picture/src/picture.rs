//! A picture: RGB, 8 bits a channel, rows from the top.
//!
//! Invariant: `pixels` has exactly `3 * width * height` bytes, and neither side is 0.

use crate::error::Error;

/// Colour channels of every picture.
pub const CHANNELS: usize = 3;

/// A picture in RGB with 8 bits a channel.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({}x{})", self.width, self.height)
    }
}

impl Image {
    /// A picture of `width` x `height` from `[height, width, 3]` bytes.
    pub fn new(width: u32, height: u32, pixels: Vec<u8>) -> Result<Image, Error> {
        if width == 0 || height == 0 {
            return Err(Error::Empty);
        }
        let wanted = u64::from(width) * u64::from(height) * CHANNELS as u64;
        if pixels.len() as u64 != wanted {
            return Err(Error::WrongSize { bytes: pixels.len(), width, height });
        }
        Ok(Image { width, height, pixels })
    }

    /// A picture in one colour.
    pub fn filled(width: u32, height: u32, colour: [u8; CHANNELS]) -> Result<Image, Error> {
        Image::new(width, height, colour.repeat(width as usize * height as usize))
    }

    /// Width in pixels, at least 1.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height in pixels, at least 1.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// `[height, width, 3]` bytes.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The rows from the top, `3 * width` bytes each.
    pub fn rows(&self) -> std::slice::ChunksExact<'_, u8> {
        self.pixels.chunks_exact(CHANNELS * self.width as usize)
    }

    /// The part of `width` x `height` from (`left`, `top`), less what lies outside of the picture.
    /// Fails if all of it lies outside.
    pub fn crop(&self, left: u32, top: u32, width: u32, height: u32) -> Result<Image, Error> {
        let width = width.min(self.width.saturating_sub(left));
        let height = height.min(self.height.saturating_sub(top));
        let mut pixels = Vec::with_capacity(CHANNELS * width as usize * height as usize);
        let (from, len) = (CHANNELS * left as usize, CHANNELS * width as usize);
        for row in self.rows().skip(top as usize).take(height as usize) {
            pixels.extend(row.iter().skip(from).take(len));
        }
        Image::new(width, height, pixels)
    }

    /// Rows as columns.
    pub fn transposed(&self) -> Result<Image, Error> {
        let (width, height) = (self.width as usize, self.height as usize);
        let mut pixels = Vec::with_capacity(self.pixels.len());
        for (x, y) in (0..width).flat_map(|x| (0..height).map(move |y| (x, y))) {
            let at = CHANNELS * (y * width + x);
            pixels.extend_from_slice(&self.pixels[at..at + CHANNELS]);
        }
        Image::new(self.height, self.width, pixels)
    }

    /// This picture at (`left`, `top`) on a canvas in one colour. The canvas must hold it.
    pub fn on_canvas(
        &self,
        (width, height): (u32, u32),
        (left, top): (u32, u32),
        colour: [u8; CHANNELS],
    ) -> Result<Image, Error> {
        assert!(
            left + self.width <= width && top + self.height <= height,
            "a picture fits on its canvas: {self:?} at {left}, {top} on {width}x{height}"
        );
        let mut canvas = Image::filled(width, height, colour)?;
        let (from, len) = (CHANNELS * left as usize, CHANNELS * self.width as usize);
        let rows = canvas.pixels.chunks_exact_mut(CHANNELS * width as usize).skip(top as usize);
        for (to, row) in rows.zip(self.rows()) {
            to[from..from + len].copy_from_slice(row);
        }
        Ok(canvas)
    }
}
