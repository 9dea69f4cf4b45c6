//! Generated sounds, the formulas of the reference, and where it is.

#![allow(clippy::print_stdout, reason = "says what is skipped")]

#[path = "generated.rs"]
mod generated;

pub use generated::{image, sound};

/// CRC-32 as zlib counts it.
pub fn crc32(bytes: impl IntoIterator<Item = u8>) -> u32 {
    let table: [u32; 256] = std::array::from_fn(|byte| {
        (0..8).fold(byte as u32, |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 })
    });
    let step = |crc: u32, byte: u8| table[(crc as u8 ^ byte) as usize] ^ (crc >> 8);
    !bytes.into_iter().fold(u32::MAX, step)
}

/// The folder of the repository's pictures.
pub fn images() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/images")
}

/// The folder of a reference beside the repository, or `None` with a line that says so.
pub fn reference(name: &str) -> Option<std::path::PathBuf> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/oracle-mm").join(name);
    if path.is_dir() {
        return Some(path);
    }
    println!("skipped: {} is not there", path.display());
    None
}

#[test]
fn generated_pictures_and_sounds_are_those_of_the_reference() {
    let red: Vec<u8> = image(5, 3, 7).pixels().iter().step_by(3).copied().collect();
    assert_eq!(red, [78, 84, 81, 89, 119, 71, 129, 98, 104, 138, 91, 100, 94, 107, 141]);
    let end = image(300, 180, 11).pixels()[3 * (300 * 180 - 3)..].to_vec();
    assert_eq!(end, [178, 127, 199, 164, 154, 185, 186, 168, 222]);
    let start: Vec<i32> = sound(6, 3).iter().map(|value| (value * 32_768.0) as i32).collect();
    assert_eq!(start, [17_221, 16_956, 13_698, 14_614, 14_223, 13_157]);
    assert_eq!(sound(16_000, 3)[15_999] * 32_768.0, 963.0);
}
