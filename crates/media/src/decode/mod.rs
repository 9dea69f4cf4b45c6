//! Encoded bytes become pictures, clips and samples, within limits.
//!
//! Invariants: a format is what the first bytes say, never what a name or a header of the sender says. Sizes are
//! compared with the limits before memory is allocated for them.

mod animation;
mod audio;
mod base64;
mod ffmpeg;
mod format;
mod frames;
mod h264;
mod heif;
mod image;
mod keeping;
mod resample;
mod video;
mod webp;

pub use self::audio::decode_audio;
pub use self::base64::decode_base64;
pub use self::ffmpeg::Ffmpeg;
pub use self::format::Format;
pub use self::frames::decode_frames;
pub use self::image::{Alpha, decode_image};
pub use self::video::decode_video;

use crate::error::Error;
use crate::limits::Limits;

/// Runs a decoder of another project. One that panics, whatever the input, has not decoded it.
fn contained<T>(format: &'static str, decode: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    // Nothing that the decoder leaves behind is used after a panic.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode));
    result.unwrap_or_else(|_| Err(Error::broken(format, "its decoder panicked")))
}

fn check_file(what: &'static str, bytes: &[u8], limits: &Limits) -> Result<(), Error> {
    if bytes.is_empty() {
        return Err(Error::Empty { what, missing: "bytes" });
    }
    let found = bytes.len() as u64;
    if found > limits.file_bytes {
        return Err(Error::TooLarge { what, found, most: limits.file_bytes, unit: "bytes" });
    }
    Ok(())
}
