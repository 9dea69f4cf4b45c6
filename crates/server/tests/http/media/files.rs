//! Pictures of the reference's formula, as files of several formats.

use std::io::Cursor;

use base64::Engine as _;
use image::{ImageFormat, RgbImage};

/// A generated picture.
#[derive(Debug, Clone)]
pub struct Picture(RgbImage);

fn hash(x: u32, y: u32, k: u32) -> u32 {
    let h = x
        .wrapping_mul(0x9E37_79B1)
        .wrapping_add(y.wrapping_mul(0x85EB_CA77))
        .wrapping_add(k.wrapping_mul(0xC2B2_AE3D));
    let h = (h ^ (h >> 15)).wrapping_mul(0x2C1B_3C6D);
    h ^ (h >> 12)
}

impl Picture {
    /// The reference's picture of this size and seed.
    pub fn new(width: u32, height: u32, seed: u32) -> Self {
        let level = |x: u32, y: u32, c: u32| {
            let (a, b) = (3 + 2 * c + seed % 5, 7 - 2 * c + seed % 3);
            let ramp = (x.wrapping_mul(a).wrapping_add(y.wrapping_mul(b)) >> 1) & 127;
            let check = (((x >> 3) ^ (y >> 3) ^ (seed >> c)) & 1) * 64;
            (ramp + check + (hash(x, y, c + 3 * seed) >> 26)) as u8
        };
        Self(RgbImage::from_fn(width, height, |x, y| image::Rgb([0, 1, 2].map(|c| level(x, y, c)))))
    }

    /// That of the golden case `one`.
    pub fn one() -> Self {
        Self::new(61, 47, 11)
    }

    pub fn png(&self) -> Vec<u8> {
        self.file(ImageFormat::Png)
    }

    pub fn file(&self, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        self.0.write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }
}

pub fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

pub fn data_url(mime: &str, bytes: &[u8]) -> String {
    format!("data:{mime};base64,{}", base64(bytes))
}
