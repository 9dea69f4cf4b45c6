//! How much media may cost, before any of it is allocated.

/// Limits of decoding. What a header says is compared with them before memory is allocated for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Most bytes of an encoded file.
    pub file_bytes: u64,
    /// Most pixels of a picture, and of one frame of a video.
    pub pixels: u64,
    /// Longest side of a picture or frame, in pixels.
    pub side: u32,
    /// Most frames that are kept of a video.
    pub frames: usize,
    /// Most pixels of all kept frames of a video together.
    pub clip_pixels: u64,
    /// Most pixels of all frames that are decoded of a video, kept or not: what it costs in time.
    pub decoded_pixels: u64,
    /// Longest video or sound, in seconds.
    pub seconds: f64,
    /// Most time that the external decoder may take, in seconds.
    pub ffmpeg_s: f64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            file_bytes: 256 << 20,
            pixels: 64 << 20,
            side: 16_384,
            frames: 768,
            clip_pixels: 512 << 20,
            decoded_pixels: 64 << 30,
            seconds: 3_600.0,
            ffmpeg_s: 120.0,
        }
    }
}
