//! How keys and values are stored: as floats, or packed in a few bits each.

use mlx::cpu::Packing;
use mlx::{Array, Dtype, QuantMode, Quantized};

use crate::{Blueprint, Mixer};

/// How keys and values are stored.
///
/// Packed, a head is one row of uint32 words: its codes, as MLX's affine quantization packs them, then a float32
/// scale for each group, then a bias for each group. One row is one place in memory, and a pool stays one array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvFormat {
    /// Floats of this type.
    Float(Dtype),
    /// Codes of 4 or 8 bits.
    Packed {
        /// Bits of a code.
        bits: usize,
        /// Elements that share a scale and a bias; divides every head.
        group: usize,
    },
}

impl From<Dtype> for KvFormat {
    fn from(dtype: Dtype) -> Self {
        Self::Float(dtype)
    }
}

/// How the keys and values of a whole model are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvStorage {
    /// Of every position.
    pub format: KvFormat,
    /// Keys and values of a sequence's first positions are also stored unquantized, for rows at those positions.
    pub unquantized_prefix: Option<UnquantizedPrefix>,
}

/// The first positions of a sequence: rows there read keys and values in another format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnquantizedPrefix {
    /// Their number, at least one.
    pub tokens: usize,
    /// The format that those rows read.
    pub format: KvFormat,
}

impl<F: Into<KvFormat>> From<F> for KvStorage {
    fn from(format: F) -> Self {
        Self { format: format.into(), unquantized_prefix: None }
    }
}

/// Group sizes of MLX, largest first.
const GROUPS: [usize; 3] = [128, 64, 32];

impl KvFormat {
    /// Codes of `bits` in the largest groups, up to `group` elements, that divide the heads of every layer that
    /// attends. The error says what would have worked.
    pub fn packed(blueprint: &Blueprint, bits: usize, group: usize) -> Result<Self, String> {
        if !matches!(bits, 4 | 8) {
            return Err(format!("keys and values are packed in 4 or 8 bits, not {bits}"));
        }
        let heads: Vec<usize> = blueprint
            .layers
            .iter()
            .filter_map(|layer| match &layer.mixer {
                Mixer::Attention(attention) => Some(attention.head_dim),
                Mixer::Mamba2(_) | Mixer::GatedDelta(_) => None,
            })
            .collect();
        let divides = |group: &usize| heads.iter().all(|head| head.is_multiple_of(*group));
        match GROUPS.into_iter().filter(|known| *known <= group).find(divides) {
            Some(group) => Ok(Self::Packed { bits, group }),
            None => Err(format!(
                "keys and values cannot be packed in groups of up to {group}: 32, 64 or 128 must divide the heads, \
                 which are {} wide",
                heads.iter().max().unwrap_or(&0)
            )),
        }
    }

    /// The dtype of the pools' arrays.
    pub(crate) fn dtype(self) -> Dtype {
        match self {
            Self::Float(dtype) => dtype,
            Self::Packed { .. } => Dtype::U32,
        }
    }

    /// Elements of the pool's dtype that a head of `width` takes.
    pub(crate) fn width(self, width: usize) -> usize {
        match self.packing() {
            None => width,
            Some(packing) => packing.words(width),
        }
    }

    /// Bytes that `elements` take, in whole groups.
    pub(crate) fn bytes(self, elements: usize) -> usize {
        self.width(elements) * self.dtype().size_of()
    }

    pub(crate) fn packing(self) -> Option<Packing> {
        match self {
            Self::Float(_) => None,
            Self::Packed { bits, group } => Some(Packing { bits, group }),
        }
    }

    /// Heads `[.., width]` as the pool stores them.
    pub(crate) fn store(self, heads: &Array) -> mlx::Result<Array> {
        match self {
            Self::Float(dtype) => heads.astype(dtype),
            Self::Packed { bits, group } => {
                let packed =
                    heads.astype(Dtype::F32)?.quantize(group as i32, bits as i32, QuantMode::Affine)?;
                let biases = packed.biases.ok_or_else(|| mlx::Error::new("affine codes have biases"))?;
                let (scales, biases) = (packed.scales.view(Dtype::U32)?, biases.view(Dtype::U32)?);
                mlx::concatenate(&[&packed.weight, &scales, &biases], -1)
            }
        }
    }

    /// Heads `[.., width]` in `dtype`, of what [`Self::store`] gave.
    pub(crate) fn read(self, stored: &Array, width: usize, dtype: Dtype) -> mlx::Result<Array> {
        match self {
            Self::Float(_) => stored.astype(dtype),
            Self::Packed { bits, group } => {
                let (codes, groups) = ((width * bits / 32) as i32, (width / group) as i32);
                let parts = stored.split(&[codes, codes + groups], -1)?;
                let [weight, scales, biases] = parts.as_slice() else {
                    return Err(mlx::Error::new("codes, scales and biases"));
                };
                let float = |part: &Array| part.contiguous()?.view(Dtype::F32);
                let (scales, biases) = (float(scales)?, Some(float(biases)?));
                let (group, bits) = (group as i32, bits as i32);
                let weight = weight.contiguous()?;
                Quantized { weight, scales, biases, group, bits, mode: QuantMode::Affine }.dequantize(dtype)
            }
        }
    }
}
