//! Tensors of floats in the type that the folder's other tensors have.

use half::{bf16, f16};

use crate::tensor_type::TensorType;

/// The type of a folder's floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FloatType {
    /// float32.
    F32,
    /// float16.
    F16,
    /// bfloat16.
    Bf16,
}

impl FloatType {
    /// In the header of safetensors.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
        }
    }

    /// In `config.json`.
    pub fn in_config(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
        }
    }

    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// Appends a number. True where it is kept exactly.
    pub fn push(self, number: f32, out: &mut Vec<u8>) -> bool {
        let kept = match self {
            Self::F32 => {
                out.extend(number.to_le_bytes());
                number
            }
            Self::F16 => {
                let short = f16::from_f32(number);
                out.extend(short.to_le_bytes());
                short.to_f32()
            }
            Self::Bf16 => {
                let short = bf16::from_f32(number);
                out.extend(short.to_le_bytes());
                short.to_f32()
            }
        };
        kept.to_bits() == number.to_bits()
    }
}

/// Calls `take` with each number of a tensor of floats; packed ones have none.
pub fn for_each(kind: TensorType, bytes: &[u8], take: &mut dyn FnMut(f32)) {
    match kind {
        TensorType::F32 => bytes.as_chunks().0.iter().for_each(|bytes| take(f32::from_le_bytes(*bytes))),
        TensorType::F16 => {
            bytes.as_chunks().0.iter().for_each(|bytes| take(f16::from_le_bytes(*bytes).to_f32()));
        }
        TensorType::Bf16 => {
            bytes.as_chunks().0.iter().for_each(|bytes| take(bf16::from_le_bytes(*bytes).to_f32()));
        }
        _ => {}
    }
}
