//! What can be wrong with a picture.

/// Why there is no such picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A side is 0.
    #[error("the image has no pixels")]
    Empty,
    /// The bytes are not those of a picture of this size.
    #[error("{bytes} bytes are not {width}x{height} pixels in RGB")]
    WrongSize {
        /// How many there are.
        bytes: usize,
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
    },
    /// A side would be 0 after the resize.
    #[error("it would be resized to {width}x{height} pixels")]
    NothingLeft {
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
    },
    /// The resized picture, or what is between its two passes, would be too large.
    #[error("the resized image has {found} pixels, over the limit of {most}")]
    TooLarge {
        /// Pixels that it would have.
        found: u64,
        /// Pixels that it may have.
        most: u64,
    },
}
