//! Generated pictures and sounds, the formulas of the reference.

use omnibus_media::Image;

pub fn hash(x: u32, y: u32, k: u32) -> u32 {
    let h = x
        .wrapping_mul(0x9E37_79B1)
        .wrapping_add(y.wrapping_mul(0x85EB_CA77))
        .wrapping_add(k.wrapping_mul(0xC2B2_AE3D));
    let h = (h ^ (h >> 15)).wrapping_mul(0x2C1B_3C6D);
    h ^ (h >> 12)
}

/// A picture with ramps, checks and noise: integers from a formula.
pub fn image(width: u32, height: u32, seed: u32) -> Image {
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
    Image::new(width, height, pixels).unwrap()
}

/// Sound at 16 kHz: integers from a formula, over 32768.
#[allow(dead_code, reason = "the example of parity has none")]
pub fn sound(samples: i64, seed: i64) -> Vec<f32> {
    let sample = |n: i64| {
        let tri = (((n * (20 + seed % 7)) & 4095) - 2048).abs() - 1024;
        let slow = (((n * 3) & 65_535) - 32_768).abs() >> 3;
        let noise = i64::from(hash(n as u32, 0, 3 * seed as u32) >> 20) - 2048;
        (((tri * slow) >> 8) + noise).clamp(-32_768, 32_767) as f32 / 32_768.0
    };
    (0..samples).map(sample).collect()
}
