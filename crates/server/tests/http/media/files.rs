//! Pictures of the reference's formula, as files of several formats.

use std::io::Cursor;

use base64::Engine as _;
use image::{ImageFormat, RgbImage};
use omnibus_testing::formulas::{crc32, pixels};

/// A generated picture.
#[derive(Debug, Clone)]
pub struct Picture(RgbImage);

impl Picture {
    /// The reference's picture of this size and seed.
    pub fn new(width: u32, height: u32, seed: u32) -> Self {
        Self(RgbImage::from_raw(width, height, pixels(width, height, seed)).unwrap())
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

/// An animated PNG of pictures of one size, two a second.
pub fn animation(pictures: &[Picture]) -> Vec<u8> {
    let whole: Vec<Vec<(Vec<u8>, Vec<u8>)>> = pictures.iter().map(|picture| chunks(&picture.png())).collect();
    let head = &whole[0][0].1;
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    push(&mut file, b"IHDR", head);
    let frames = pictures.len() as u32;
    push(&mut file, b"acTL", &[frames.to_be_bytes(), [0; 4]].concat());
    let mut sequence = 0u32;
    let mut next = || {
        sequence += 1;
        (sequence - 1).to_be_bytes()
    };
    for (index, chunks) in whole.iter().enumerate() {
        // Number, width and height, no offset, a delay of 1/2 s, drawn over what was there.
        let control = [&next()[..], &head[..8], &[0; 8], &[0, 1, 0, 2], &[0, 0]].concat();
        push(&mut file, b"fcTL", &control);
        for (_, data) in chunks.iter().filter(|(kind, _)| kind == b"IDAT") {
            match index {
                0 => push(&mut file, b"IDAT", data),
                _ => push(&mut file, b"fdAT", &[&next()[..], data].concat()),
            }
        }
    }
    push(&mut file, b"IEND", &[]);
    file
}

/// The chunks of a PNG, by type.
fn chunks(png: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut rest, mut chunks) = (&png[8..], Vec::new());
    while let [a, b, c, d, tail @ ..] = rest {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        chunks.push((tail[..4].to_vec(), tail[4..4 + length].to_vec()));
        rest = &tail[4 + length + 4..];
    }
    chunks
}

fn push(file: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    let body = [&kind[..], data].concat();
    file.extend((data.len() as u32).to_be_bytes());
    file.extend(&body);
    file.extend(crc32(&body).to_be_bytes());
}

pub fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

pub fn data_url(mime: &str, bytes: &[u8]) -> String {
    format!("data:{mime};base64,{}", base64(bytes))
}
