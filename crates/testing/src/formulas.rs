//! Generated pictures and sounds by the formulas of the reference.

use std::path::{Path, PathBuf};

/// 32 bits that look random, of a pixel's place and channel.
pub fn hash(x: u32, y: u32, k: u32) -> u32 {
    let h = x
        .wrapping_mul(0x9E37_79B1)
        .wrapping_add(y.wrapping_mul(0x85EB_CA77))
        .wrapping_add(k.wrapping_mul(0xC2B2_AE3D));
    let h = (h ^ (h >> 15)).wrapping_mul(0x2C1B_3C6D);
    h ^ (h >> 12)
}

/// A picture with ramps, checks and noise: red, green and blue of each pixel, row by row.
pub fn pixels(width: u32, height: u32, seed: u32) -> Vec<u8> {
    let mut pixels = Vec::new();
    for y in 0..height {
        for x in 0..width {
            for c in 0..3 {
                let (a, b) = (3 + 2 * c + seed % 5, 7 - 2 * c + seed % 3);
                let ramp = (x.wrapping_mul(a).wrapping_add(y.wrapping_mul(b)) >> 1) & 127;
                let check = (((x >> 3) ^ (y >> 3) ^ (seed >> c)) & 1) * 64;
                pixels.push((ramp + check + (hash(x, y, c + 3 * seed) >> 26)) as u8);
            }
        }
    }
    pixels
}

/// Sound at 16 kHz: integers from a formula, over 32768.
pub fn sound(samples: i64, seed: i64) -> Vec<f32> {
    let sample = |n: i64| {
        let tri = (((n * (20 + seed % 7)) & 4095) - 2048).abs() - 1024;
        let slow = (((n * 3) & 65_535) - 32_768).abs() >> 3;
        let noise = i64::from(hash(n as u32, 0, 3 * seed as u32) >> 20) - 2048;
        (((tri * slow) >> 8) + noise).clamp(-32_768, 32_767) as f32 / 32_768.0
    };
    (0..samples).map(sample).collect()
}

/// CRC-32 as zlib counts it.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// The folder of the repository's pictures.
pub fn images() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../media/tests/fixtures/images")
}

#[test]
fn generated_pictures_and_sounds_are_those_of_the_reference() {
    let red: Vec<u8> = pixels(5, 3, 7).iter().step_by(3).copied().collect();
    assert_eq!(red, [78, 84, 81, 89, 119, 71, 129, 98, 104, 138, 91, 100, 94, 107, 141]);
    let end = pixels(300, 180, 11)[3 * (300 * 180 - 3)..].to_vec();
    assert_eq!(end, [178, 127, 199, 164, 154, 185, 186, 168, 222]);
    let start: Vec<i32> = sound(6, 3).iter().map(|value| (value * 32_768.0) as i32).collect();
    assert_eq!(start, [17_221, 16_956, 13_698, 14_614, 14_223, 13_157]);
    assert_eq!(sound(16_000, 3)[15_999] * 32_768.0, 963.0);
}
