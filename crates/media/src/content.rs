//! Keys of content: what a cache of features or of prefixes tells pictures apart by.
//!
//! Invariant: all 256 bits of BLAKE3 over the decoded content, so that equal keys mean equal content, however the
//! content was sent.

use std::fmt::Write as _;

use blake3::Hasher;
use omnibus_picture::Image;

use crate::audio::Audio;
use crate::clip::Clip;

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
        let mut hash = Hasher::new();
        hash.update(b"image");
        hash.update(&image.width().to_le_bytes());
        hash.update(&image.height().to_le_bytes());
        update_with(&mut hash, image.pixels());
        ContentKey(hash.finalize().into())
    }

    /// The key of the frames that were kept of a video, with their times.
    pub fn of_clip(clip: &Clip) -> ContentKey {
        let mut hash = Hasher::new();
        hash.update(b"video");
        for frame in clip.frames() {
            hash.update(&frame.seconds.to_le_bytes());
            hash.update(&ContentKey::of_image(&frame.image).0);
        }
        ContentKey(hash.finalize().into())
    }

    /// The key of a video of images with these keys, so many in 1,000 seconds.
    pub fn of_frames(images: &[ContentKey], per_1000_s: u32) -> ContentKey {
        let mut hash = Hasher::new();
        hash.update(b"frames");
        hash.update(&per_1000_s.to_le_bytes());
        for image in images {
            hash.update(&image.0);
        }
        ContentKey(hash.finalize().into())
    }

    /// The key of a sound's samples.
    pub fn of_audio(audio: &Audio) -> ContentKey {
        let mut hash = Hasher::new();
        hash.update(b"audio");
        hash.update(&audio.rate().to_le_bytes());
        update_with_floats(&mut hash, audio.samples());
        ContentKey(hash.finalize().into())
    }

    /// The key of a processor's patches: `grid` has the steps in time, the rows and the columns of patches.
    pub fn of_patches(values: &[f32], grid: [usize; 3]) -> ContentKey {
        let mut hash = Hasher::new();
        hash.update(b"patches");
        for side in grid {
            hash.update(&(side as u64).to_le_bytes());
        }
        update_with_floats(&mut hash, values);
        ContentKey(hash.finalize().into())
    }

    /// The key of encoded bytes: an alias that spares the decoding of bytes that were seen before.
    pub fn of_bytes(bytes: &[u8]) -> ContentKey {
        let mut hash = Hasher::new();
        hash.update(b"bytes");
        update_with(&mut hash, bytes);
        ContentKey(hash.finalize().into())
    }

    /// The key of bytes that were sent in base64, from their text.
    pub fn of_base64(text: &[u8]) -> ContentKey {
        let mut hash = Hasher::new();
        hash.update(b"base64");
        update_with(&mut hash, text);
        ContentKey(hash.finalize().into())
    }

    pub(crate) fn of_text(text: &str) -> ContentKey {
        let mut hash = Hasher::new();
        hash.update(b"settings");
        hash.update(text.as_bytes());
        ContentKey(hash.finalize().into())
    }

    /// The key of content as a processor sees it: features are cached by this.
    pub fn with(self, processor: ContentKey) -> ContentKey {
        let mut hash = Hasher::new();
        hash.update(b"processed");
        hash.update(&self.0);
        hash.update(&processor.0);
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

/// Bytes from which several cores hash them.
const PARALLEL_BYTES: usize = 256 << 10;

fn update_with(hash: &mut Hasher, bytes: &[u8]) {
    match bytes.len() {
        ..PARALLEL_BYTES => hash.update(bytes),
        PARALLEL_BYTES.. => hash.update_rayon(bytes),
    };
}

/// Many numbers at a time: the hash is several times faster over long pieces.
fn update_with_floats(hash: &mut Hasher, values: &[f32]) {
    let mut bytes = [0; 16 << 10];
    for values in values.chunks(bytes.len() / 4) {
        for (to, value) in bytes.chunks_exact_mut(4).zip(values) {
            to.copy_from_slice(&value.to_le_bytes());
        }
        hash.update(bytes.get(..4 * values.len()).unwrap_or_default());
    }
}
