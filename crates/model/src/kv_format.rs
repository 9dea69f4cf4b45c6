//! Keys and values in their stored format, as MLX arrays. The format itself is [`omnibus_kv::KvFormat`].
//!
//! Packed, a head is one row of uint32 words: its codes, as MLX's affine quantization packs them, then a float32 scale
//! for each group, then a bias for each group. One row is one place in memory, and a pool stays one array.

use mlx::cpu::Packing;
use mlx::{Array, Dtype, QuantMode, Quantized};
use omnibus_kv::{FloatType, KvFormat};

use crate::blueprint::Blueprint;

/// How the keys and values of a whole model are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvStorage {
    /// Of every position.
    pub format: KvFormat,
    /// Keys and values of a sequence's first positions are also stored unquantized, for rows at those positions.
    pub unquantized_prefix: Option<UnquantizedPrefix>,
}

/// The first positions of a sequence: rows there read unquantized keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnquantizedPrefix {
    /// Their number, at least one.
    pub tokens: usize,
    /// The type that those rows read.
    pub float: FloatType,
}

impl From<KvFormat> for KvStorage {
    fn from(format: KvFormat) -> Self {
        Self { format, unquantized_prefix: None }
    }
}

impl From<FloatType> for KvStorage {
    fn from(float: FloatType) -> Self {
        KvFormat::Float(float).into()
    }
}

/// Group sizes of MLX, largest first.
const GROUP_SIZES: [usize; 3] = [128, 64, 32];

impl Blueprint {
    /// Codes of `bits` in the largest groups, up to `group_size` elements, that divide the heads of every attention
    /// layer. The error says which sizes would work.
    pub fn quantized_kv_format(&self, bits: usize, group_size: usize) -> Result<KvFormat, String> {
        if !matches!(bits, 4 | 8) {
            return Err(format!("keys and values are packed in 4 or 8 bits, not {bits}"));
        }
        let heads: Vec<usize> = self
            .layers
            .iter()
            .flat_map(|layer| layer.mixer.spec().caches())
            .flat_map(|cache| cache.kv_head_dims())
            .collect();
        let divides = |size: &usize| heads.iter().all(|head| head.is_multiple_of(*size));
        match GROUP_SIZES.into_iter().filter(|size| *size <= group_size).find(divides) {
            Some(group_size) => Ok(KvFormat::Packed { bits, group_size }),
            None => Err(format!(
                "keys and values cannot be packed in groups of up to {group_size}: 32, 64 or 128 must divide the \
                 heads, which are {} wide",
                heads.iter().max().unwrap_or(&0)
            )),
        }
    }
}

/// The float type that keys and values of activations in `dtype` are stored in.
pub(crate) fn float_of(dtype: Dtype) -> FloatType {
    match dtype {
        Dtype::F16 => FloatType::F16,
        Dtype::Bf16 => FloatType::Bf16,
        _ => FloatType::F32,
    }
}

/// The dtype of the pools' arrays.
pub(crate) fn dtype_of(format: KvFormat) -> Dtype {
    match format {
        KvFormat::Float(float) => dtype_of_float(float),
        KvFormat::Packed { .. } => Dtype::U32,
    }
}

fn dtype_of_float(float: FloatType) -> Dtype {
    match float {
        FloatType::F32 => Dtype::F32,
        FloatType::F16 => Dtype::F16,
        FloatType::Bf16 => Dtype::Bf16,
    }
}

/// As the CPU kernel takes it.
pub(crate) fn packing_of(format: KvFormat) -> Option<Packing> {
    match format {
        KvFormat::Float(_) => None,
        KvFormat::Packed { bits, group_size } => Some(Packing { bits, group: group_size }),
    }
}

/// Heads `[.., width]` as the pool stores them.
pub(crate) fn store(format: KvFormat, heads: &Array) -> mlx::Result<Array> {
    match format {
        KvFormat::Float(float) => heads.astype(dtype_of_float(float)),
        KvFormat::Packed { bits, group_size } => {
            let packed =
                heads.astype(Dtype::F32)?.quantize(group_size as i32, bits as i32, QuantMode::Affine)?;
            let biases = packed.biases.ok_or_else(|| mlx::Error::new("affine codes have biases"))?;
            let (scales, biases) = (packed.scales.view(Dtype::U32)?, biases.view(Dtype::U32)?);
            mlx::concatenate(&[&packed.weight, &scales, &biases], -1)
        }
    }
}

/// Heads `[.., width]` in `dtype`, from what [`store`] gave.
pub(crate) fn load(format: KvFormat, stored: &Array, width: usize, dtype: Dtype) -> mlx::Result<Array> {
    match format {
        KvFormat::Float(_) => stored.astype(dtype),
        KvFormat::Packed { bits, group_size } => {
            let (codes, groups) = ((width * bits / 32) as i32, (width / group_size) as i32);
            let parts = stored.split(&[codes, codes + groups], -1)?;
            let [weight, scales, biases] = parts.as_slice() else {
                return Err(mlx::Error::new("codes, scales and biases"));
            };
            let float = |part: &Array| part.contiguous()?.view(Dtype::F32);
            let (scales, biases) = (float(scales)?, Some(float(biases)?));
            let (group, bits) = (group_size as i32, bits as i32);
            let weight = weight.contiguous()?;
            Quantized { weight, scales, biases, group, bits, mode: QuantMode::Affine }.dequantize(dtype)
        }
    }
}
