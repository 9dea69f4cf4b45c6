//! Files that were sent as text.

use base64_simd::STANDARD_NO_PAD;

use crate::error::Error;

/// The bytes of a text in base64 (RFC 4648, section 4), with or without padding. Line breaks between them are left out. Fails with what is
/// wrong with the text.
pub fn decode_base64(text: &[u8]) -> Result<Vec<u8>, Error> {
    let decoded = |text: &[u8]| STANDARD_NO_PAD.decode_to_vec(without_padding(text));
    // Few texts have line breaks, and a look for them takes as long as decoding.
    if let Ok(bytes) = decoded(text) {
        return Ok(bytes);
    }
    let compact: Vec<u8> = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    decoded(&compact).map_err(|_| Error::NotBase64 { detail: first_wrong(&compact) })
}

/// What a length that is a multiple of four ends with.
fn without_padding(text: &[u8]) -> &[u8] {
    match text {
        [text @ .., b'=', b'='] | [text @ .., b'='] => text,
        text => text,
    }
}

/// Why a text is not base64.
fn first_wrong(text: &[u8]) -> String {
    let text = without_padding(text);
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    match text.iter().position(|byte| !is_digit(*byte)) {
        Some(at) => format!("character {at} is not of its alphabet"),
        None => "its end is missing, or has bits that stand for nothing".to_owned(),
    }
}
