//! Keys of content: what a cache of features or of prefixes tells pictures apart by.
//!
//! Invariant: all 256 bits of SHA-256 over the decoded content, so that equal keys mean equal content, however the
//! content was sent.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::{Audio, Clip, Image};

/// The key of a picture, video or sound, or of a processor's settings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentKey([u8; 32]);

impl std::fmt::Debug for ContentKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.hex())
    }
}

impl ContentKey {
    /// The key of a picture's pixels.
    pub fn of_image(image: &Image) -> ContentKey {
        let mut hash = Sha256::new();
        hash.update(b"image");
        hash.update(image.width().to_le_bytes());
        hash.update(image.height().to_le_bytes());
        hash.update(image.pixels());
        ContentKey(hash.finalize().into())
    }

    /// The key of the frames that were kept of a video, with their times.
    pub fn of_clip(clip: &Clip) -> ContentKey {
        let mut hash = Sha256::new();
        hash.update(b"video");
        for frame in clip.frames() {
            hash.update(frame.seconds.to_le_bytes());
            hash.update(ContentKey::of_image(&frame.image).0);
        }
        ContentKey(hash.finalize().into())
    }

    /// The key of a sound's samples.
    pub fn of_audio(audio: &Audio) -> ContentKey {
        let mut hash = Sha256::new();
        hash.update(b"audio");
        hash.update(audio.rate().to_le_bytes());
        for sample in audio.samples() {
            hash.update(sample.to_le_bytes());
        }
        ContentKey(hash.finalize().into())
    }

    /// The key of a processor's patches: `grid` has the steps in time, the rows and the columns of patches.
    pub fn of_patches(values: &[f32], grid: [usize; 3]) -> ContentKey {
        let mut hash = Sha256::new();
        hash.update(b"patches");
        grid.iter().for_each(|side| hash.update((*side as u64).to_le_bytes()));
        values.iter().for_each(|value| hash.update(value.to_le_bytes()));
        ContentKey(hash.finalize().into())
    }

    /// The key of encoded bytes: an alias that spares the decoding of bytes that were seen before.
    pub fn of_bytes(bytes: &[u8]) -> ContentKey {
        let mut hash = Sha256::new();
        hash.update(b"bytes");
        hash.update(bytes);
        ContentKey(hash.finalize().into())
    }

    pub(crate) fn of_text(text: &str) -> ContentKey {
        let mut hash = Sha256::new();
        hash.update(b"settings");
        hash.update(text.as_bytes());
        ContentKey(hash.finalize().into())
    }

    /// The key of content as a processor sees it: features are cached by this.
    pub fn with(self, processor: ContentKey) -> ContentKey {
        let mut hash = Sha256::new();
        hash.update(b"processed");
        hash.update(self.0);
        hash.update(processor.0);
        ContentKey(hash.finalize().into())
    }

    /// The 32 bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        let mut hex = String::with_capacity(64);
        for byte in self.0 {
            // Writing to a text cannot fail.
            let _ = write!(hex, "{byte:02x}");
        }
        hex
    }
}
