//! How much media may cost, before any of it is allocated.

/// Limits of decoding. What a header says is compared with them before memory is allocated for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Most bytes of an encoded file.
    pub file_bytes: u64,
    /// Most pixels of a picture.
    pub pixels: u64,
    /// Longest side of a picture, in pixels.
    pub side: u32,
    /// Longest sound, in seconds.
    pub seconds: f64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { file_bytes: 256 << 20, pixels: 64 << 20, side: 16_384, seconds: 3_600.0 }
    }
}
