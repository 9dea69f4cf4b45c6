//! Numbers of a vector in a response: as a list, or as the bytes of its floats.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

/// How numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Encoding {
    Floats,
    /// Little-endian float32.
    Base64,
}

/// A vector, or one for each token.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Numbers {
    /// A list.
    Floats(Vec<f32>),
    /// A list for each token.
    Rows(Vec<Vec<f32>>),
    /// Bytes.
    Base64(String),
}

impl Numbers {
    /// A vector.
    pub fn of(values: Vec<f32>, encoding: Encoding) -> Self {
        match encoding {
            Encoding::Floats => Self::Floats(values),
            Encoding::Base64 => {
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                Self::Base64(STANDARD.encode(bytes))
            }
        }
    }

    /// One for each token, `width` numbers each.
    pub fn rows(values: &[f32], width: usize, encoding: Encoding) -> Self {
        match encoding {
            Encoding::Floats => Self::Rows(values.chunks(width.max(1)).map(<[f32]>::to_vec).collect()),
            Encoding::Base64 => Self::of(values.to_vec(), encoding),
        }
    }
}

#[test]
fn base64_has_the_bytes_of_the_floats() {
    let text = serde_json::to_string(&Numbers::of(vec![1.0, -2.0], Encoding::Base64)).ok();
    assert_eq!(text.as_deref(), Some(r#""AACAPwAAAMA=""#));
}
