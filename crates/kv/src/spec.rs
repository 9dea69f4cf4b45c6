//! The cache spec of a layer group: what it caches, in which format, and how many bytes a block takes.

use serde::{Deserialize, Serialize};

use crate::kind::CacheKind;

/// What one layer group caches and how it is stored. Pools, swapped blocks, blocks on disk and prompt-cache files get
/// their layout from it; which layers form the group is the model's affair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KvCacheSpec {
    /// What is cached.
    pub kind: CacheKind,
    /// How elements are stored.
    pub format: KvFormat,
    /// Elements over all layers of the group: of one token, or of one slot in a group of states.
    pub elements: usize,
}

/// How keys, values and states are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum KvFormat {
    /// Floats.
    Float(FloatType),
    /// Codes in 32-bit words, and a float32 scale and bias for each quantization group.
    Packed {
        /// Bits of a code: 4 or 8.
        bits: usize,
        /// Elements that share a scale and a bias; divides every head.
        group_size: usize,
    },
}

/// The type of a stored float.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FloatType {
    /// 32 bits.
    F32,
    /// 16 bits, IEEE.
    F16,
    /// 16 bits, bfloat.
    Bf16,
}

impl FloatType {
    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

impl KvFormat {
    /// Stored units (floats, or 32-bit words) that a row of `elements` takes, in whole quantization groups.
    pub fn width(self, elements: usize) -> usize {
        match self {
            Self::Float(_) => elements,
            Self::Packed { bits, group_size } => elements * bits / 32 + 2 * (elements / group_size),
        }
    }

    /// Bytes of one stored unit.
    pub fn unit_bytes(self) -> usize {
        match self {
            Self::Float(float) => float.bytes(),
            Self::Packed { .. } => 4,
        }
    }

    /// Bytes of a row of `elements`.
    pub fn bytes(self, elements: usize) -> usize {
        self.width(elements) * self.unit_bytes()
    }
}

impl KvCacheSpec {
    /// A group of states. They are kept in float32 whatever the activations are, because their errors add up.
    pub fn state(elements: usize) -> Self {
        Self { kind: CacheKind::State, format: KvFormat::Float(FloatType::F32), elements }
    }

    /// Elements of one block: of `block_size` tokens, or of one slot.
    pub fn block_elements(&self, block_size: usize) -> usize {
        if self.kind.is_state() { self.elements } else { self.elements * block_size }
    }

    /// Bytes of one block over all layers of the group.
    pub fn block_bytes(&self, block_size: usize) -> u64 {
        self.format.bytes(self.block_elements(block_size)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_bytes_follow_from_format_and_kind() {
        let spec = |kind, format| KvCacheSpec { kind, format, elements: 256 };
        let bf16 = KvFormat::Float(FloatType::Bf16);
        assert_eq!(spec(CacheKind::Full, bf16).block_bytes(16), 256 * 16 * 2);
        assert_eq!(KvCacheSpec::state(256).block_bytes(16), 256 * 4, "a slot does not grow with the block");
        // Four bits each, and eight bytes for each group of 64.
        let packed = KvFormat::Packed { bits: 4, group_size: 64 };
        assert_eq!(spec(CacheKind::Latent, packed).block_bytes(16), 16 * (256 / 2 + 4 * 8));
        assert_eq!(packed.width(128), 16 + 4);
    }
}
