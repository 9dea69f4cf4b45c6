//! Pictures of a benchmark: coloured noise, reproducible by number, as `data:` URLs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use omnibus_engine::random::Rng;

/// How many pictures there are. Requests repeat them, as conversations about a picture do.
pub const PICTURES: usize = 4;
/// Pixels of a side.
const SIDE: usize = 224;
/// Pixels of a side of one colour: noise of single pixels would be averaged to grey.
const SQUARE: usize = 16;
/// Bytes before the pixels.
const HEADER: usize = 54;

/// The picture of a prompt, by what it says.
pub fn picture_of(prompt: &str) -> usize {
    prompt.bytes().fold(0, |sum: usize, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte))) % PICTURES
}

/// A picture as a `data:` URL.
pub fn url(number: usize) -> String {
    format!("data:image/bmp;base64,{}", STANDARD.encode(bitmap(number)))
}

/// A BMP file of 24 bits a pixel. Source: Microsoft's BITMAPFILEHEADER and BITMAPINFOHEADER.
fn bitmap(number: usize) -> Vec<u8> {
    let mut random = Rng::new(number as u64);
    let squares = SIDE / SQUARE;
    let colours: Vec<u64> = (0..squares * squares).map(|_| random.draw()).collect();
    let mut file = b"BM".to_vec();
    let bytes = (HEADER + 3 * SIDE * SIDE) as u32;
    for field in [bytes, 0, HEADER as u32, 40, SIDE as u32, SIDE as u32] {
        file.extend(field.to_le_bytes());
    }
    // One plane of 24 bits without compression; sizes and palettes that are zero are the usual ones.
    file.extend([1, 0, 24, 0]);
    file.resize(HEADER, 0);
    for at in 0..SIDE * SIDE {
        let (row, column) = (at / SIDE / SQUARE, at % SIDE / SQUARE);
        let colour = colours.get(row * squares + column).copied().unwrap_or_default();
        file.extend(colour.to_le_bytes().iter().take(3));
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_gives_the_same_picture_and_another_another() {
        assert_eq!(bitmap(1), bitmap(1));
        assert_ne!(bitmap(1), bitmap(2));
        assert_eq!(bitmap(0).len(), HEADER + 3 * SIDE * SIDE);
        assert!(url(0).starts_with("data:image/bmp;base64,Qk"));
    }

    #[test]
    fn prompts_share_few_pictures() {
        let seen: std::collections::BTreeSet<usize> =
            (0..100).map(|number| picture_of(&format!("prompt {number}"))).collect();
        assert_eq!(seen.len(), PICTURES);
    }
}
