//! The EXIF block of a WebP file.
//!
//! Invariant: nothing is allocated. The library reads the block into memory of the length that the file claims, which may be
//! four gigabytes.

/// Bytes in front of the first chunk: `RIFF`, a length, `WEBP`.
const FILE_HEADER: usize = 12;
/// Bytes of a chunk's name and length.
const CHUNK_HEADER: usize = 8;

/// The first EXIF chunk of an extended file, if it ends within the file.
pub(super) fn exif(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes.get(FILE_HEADER..)?;
    if !rest.starts_with(b"VP8X") {
        return None;
    }
    loop {
        let (header, data) = rest.split_at_checked(CHUNK_HEADER)?;
        let (name, length) = header.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(length.try_into().ok()?)).ok()?;
        if name == b"EXIF" {
            return data.get(..length);
        }
        // Chunks begin at even places.
        rest = data.get(length.checked_add(length % 2)?..)?;
    }
}
