//! Pictures in RGB, and Pillow's resize of them, byte for byte.
//!
//! Start at [`Image`] and [`resize`]. What is done for each pixel is here and not in `omnibus-media`, so that tests can be built
//! with these loops optimized and without optimizing the decoders.

mod error;
mod picture;
mod resize;

pub use error::Error;
pub use picture::{CHANNELS, Image};
pub use resize::{Filter, PassOrder, resize};
