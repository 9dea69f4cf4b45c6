//! Codings of request bodies: none, or zstd, as TypeSafe's clients send.
//!
//! Invariant: what a body is decompressed to is bounded before it is made.

use std::io::Read;

use axum::http::HeaderMap;
use axum::http::header::CONTENT_ENCODING;
use ruzstd::decoding::StreamingDecoder;

use crate::error::ApiError;

/// How a body is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyCoding {
    /// As it is.
    Identity,
    /// Compressed.
    Zstd,
}

impl BodyCoding {
    /// As the headers say. Fails for a coding that is not read.
    pub fn of(headers: &HeaderMap) -> Result<Self, ApiError> {
        match headers.get(CONTENT_ENCODING).map(|coding| coding.as_bytes()) {
            None | Some(b"identity") => Ok(Self::Identity),
            Some(coding) if coding.eq_ignore_ascii_case(b"zstd") => Ok(Self::Zstd),
            Some(_) => {
                let message = "the header `content-encoding` must be `zstd` or absent";
                Err(ApiError::unsupported_media(message))
            }
        }
    }
}

/// A body that was compressed. Fails for one that is broken, or that has more than `most` bytes.
pub fn decompressed(mut body: &[u8], most: usize) -> Result<Vec<u8>, ApiError> {
    let broken = |error: &dyn std::fmt::Display| {
        ApiError::malformed(format!("the body is no zstd: {error}")).with_code("invalid_encoding")
    };
    let mut bytes = Vec::new();
    while !body.is_empty() {
        let mut frame = StreamingDecoder::new(&mut body).map_err(|error| broken(&error))?;
        // One byte more shows that there is one.
        let rest = (most - bytes.len()) as u64 + 1;
        frame.by_ref().take(rest).read_to_end(&mut bytes).map_err(|error| broken(&error))?;
        if bytes.len() > most {
            let message = format!("the body must be at most {most} bytes when it is decompressed");
            return Err(ApiError::too_large(message));
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;
    use crate::error::ErrorKind;

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        compress_to_vec(bytes, CompressionLevel::Fastest)
    }

    #[test]
    fn frames_are_decompressed_within_a_limit() {
        let text = "{\"state\": \"again and again\"}".repeat(50);
        let frame = compressed(text.as_bytes());
        assert_eq!(decompressed(&frame, text.len()).unwrap(), text.as_bytes());
        assert_eq!(decompressed(&frame, text.len() - 1).unwrap_err().kind(), ErrorKind::TooLarge);
        let two = [frame.clone(), compressed(b"end")].concat();
        assert_eq!(decompressed(&two, 1 << 20).unwrap(), [text.as_bytes(), b"end"].concat());
        assert_eq!(decompressed(&two, text.len()).unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!(decompressed(b"", 9).unwrap(), b"");
    }

    #[test]
    fn a_bomb_is_refused_before_it_is_whole() {
        let bomb = compressed(&vec![b' '; 64 << 20]);
        assert!(bomb.len() < 1 << 20, "{}", bomb.len());
        assert_eq!(decompressed(&bomb, 1 << 20).unwrap_err().kind(), ErrorKind::TooLarge);
    }

    #[test]
    fn broken_frames_are_refused() {
        let frame = compressed(b"a text that is long enough to be cut in several places");
        for end in 1..frame.len() {
            let Err(error) = decompressed(&frame[..end], 1 << 20) else { panic!("cut at {end}") };
            assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidRequest, "invalid_encoding"));
        }
        assert!(decompressed(b"{}", 9).is_err());
    }
}
