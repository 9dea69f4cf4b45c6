//! Numbers as the bytes of one string in a message, which is written as it lies in memory.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserializer, Serializer};

const _: () = assert!(cfg!(target_endian = "little"), "numbers are sent as they lie in memory");

/// Serializes numbers, each as four bytes in little endian.
pub(crate) fn serialize<S: Serializer>(values: &[f32], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytemuck::cast_slice(values))
}

/// Deserializes them.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
    deserializer.deserialize_bytes(Floats)
}

struct Floats;

impl Visitor<'_> for Floats {
    type Value = Vec<f32>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers of four bytes each")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<f32>, E> {
        let (numbers, rest) = bytes.as_chunks::<4>();
        match rest {
            [] => Ok(numbers.iter().map(|number| f32::from_le_bytes(*number)).collect()),
            _ => Err(E::invalid_length(bytes.len(), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Numbers(#[serde(with = "super")] Vec<f32>);

    #[test]
    fn numbers_are_the_same_after_a_message() {
        let numbers = Numbers(vec![0.0, -1.5, f32::MIN_POSITIVE, 3e38]);
        let message = postcard::to_extend(&numbers, Vec::new()).unwrap();
        assert_eq!(message.len(), 1 + 4 * 4);
        assert_eq!(postcard::from_bytes::<Numbers>(&message), Ok(numbers));
        assert!(postcard::from_bytes::<Numbers>(&[3, 0, 0, 0]).is_err());
    }
}
