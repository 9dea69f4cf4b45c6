//! Generated pictures.

use omnibus_media::Image;
pub use omnibus_testing::formulas::{crc32, images, sound};

/// A picture with ramps, checks and noise.
pub fn image(width: u32, height: u32, seed: u32) -> Image {
    Image::new(width, height, omnibus_testing::formulas::pixels(width, height, seed)).unwrap()
}
