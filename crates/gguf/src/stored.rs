//! A tensor of the file as the tensors of a folder: floats, or codes with scales.

use crate::blocks::{self, GROUP, Origin, packing};
use crate::floats::{self, FloatType};
use crate::tensor_type::TensorType;

/// Elements that share a scale of NVFP4.
pub const NVFP4_GROUP: usize = 16;

/// How a tensor is stored in the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// Numbers.
    Floats,
    /// MLX's affine packing in groups of 32.
    Affine {
        /// Bits of a code.
        bits: usize,
    },
    /// MLX's mode of this name.
    Mxfp4,
    /// MLX's mode of this name.
    Nvfp4,
}

impl Form {
    /// Of tensors of this type.
    pub fn of(kind: TensorType) -> Self {
        match packing(kind) {
            Some((bits, _)) => Self::Affine { bits },
            None => match kind {
                TensorType::Mxfp4 => Self::Mxfp4,
                TensorType::Nvfp4 => Self::Nvfp4,
                _ => Self::Floats,
            },
        }
    }
}

/// A tensor to write: the last part of its name, its type in safetensors and its shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// `weight`, `scales`, `biases`, or another last part of a name.
    pub suffix: &'static str,
    /// As safetensors name it.
    pub dtype: &'static str,
    /// Rows first.
    pub shape: Vec<usize>,
    /// Bytes of all elements.
    pub bytes: usize,
}

/// The tensors that a weight becomes, in the order in which [`write`] fills them.
pub fn parts(kind: TensorType, shape: &[usize], float: FloatType) -> Vec<Part> {
    let with_columns = |columns: usize| {
        let mut shape = shape.to_vec();
        if let Some(last) = shape.last_mut() {
            *last = columns;
        }
        shape
    };
    let part = |suffix, dtype, shape: Vec<usize>, bytes: usize| {
        let bytes = shape.iter().product::<usize>() * bytes;
        Part { suffix, dtype, shape, bytes }
    };
    let columns = shape.last().copied().unwrap_or(1);
    match Form::of(kind) {
        Form::Floats => vec![part("weight", float.name(), shape.to_vec(), float.bytes())],
        Form::Affine { bits } => vec![
            part("weight", "U32", with_columns(columns * bits / 32), 4),
            part("scales", float.name(), with_columns(columns / GROUP), float.bytes()),
            part("biases", float.name(), with_columns(columns / GROUP), float.bytes()),
        ],
        Form::Mxfp4 => vec![
            part("weight", "U32", with_columns(columns / 8), 4),
            part("scales", "U8", with_columns(columns / GROUP), 1),
        ],
        Form::Nvfp4 => vec![
            part("weight", "U32", with_columns(columns / 8), 4),
            part("scales", "U8", with_columns(columns / NVFP4_GROUP), 1),
        ],
    }
}

/// What became of a tensor's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    /// Each is what it was.
    Exactly,
    /// Numbers, or scales, were rounded to the folder's type of floats.
    Rounded,
    /// New codes in groups of 32.
    PackedAnew,
}

/// The bytes of [`parts`], and what became of the numbers. `change`: of each number of a tensor of floats.
pub fn convert(
    kind: TensorType,
    bytes: &[u8],
    float: FloatType,
    change: fn(f32) -> f32,
) -> (Vec<Vec<u8>>, Kept) {
    match Form::of(kind) {
        Form::Floats => {
            let (mut out, mut exact) = (Vec::new(), true);
            floats::for_each(kind, bytes, &mut |number| exact &= float.push(change(number), &mut out));
            (vec![out], if exact { Kept::Exactly } else { Kept::Rounded })
        }
        Form::Affine { bits } => affine(kind, bytes, float, bits),
        Form::Mxfp4 => (mxfp4(bytes), Kept::Exactly),
        Form::Nvfp4 => (nvfp4(bytes), Kept::Exactly),
    }
}

fn affine(kind: TensorType, bytes: &[u8], float: FloatType, bits: usize) -> (Vec<Vec<u8>>, Kept) {
    let (mut codes, mut scales, mut biases, mut exact) = (Vec::new(), Vec::new(), Vec::new(), true);
    blocks::for_each_group(kind, bytes, &mut |group| {
        push_codes(&group.codes, bits, &mut codes);
        exact &= float.push(group.scale, &mut scales);
        exact &= float.push(group.bias, &mut biases);
    });
    let kept = match packing(kind) {
        Some((_, Origin::PackedAnew)) => Kept::PackedAnew,
        _ if exact => Kept::Exactly,
        _ => Kept::Rounded,
    };
    (vec![codes, scales, biases], kept)
}

/// Blocks of an exponent and 16 bytes: MLX has the elements in order, two in a byte, the first one low.
fn mxfp4(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut codes, mut scales) = (Vec::new(), Vec::new());
    for block in bytes.chunks_exact(TensorType::Mxfp4.block_bytes()) {
        scales.push(block[0]);
        push_codes(&blocks::nibbles(&block[1..]), 4, &mut codes);
    }
    vec![codes, scales]
}

/// Blocks of four scales and four groups of 8 bytes, in whose low halves the first 8 codes of a group are.
fn nvfp4(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut codes, mut scales) = (Vec::new(), Vec::new());
    for block in bytes.chunks_exact(TensorType::Nvfp4.block_bytes()) {
        let (of_groups, groups) = block.split_at(4);
        // ggml knows no sign of a scale, and zero where others have no number.
        scales.extend(of_groups.iter().map(|scale| if scale & 0x7F == 0x7F { 0 } else { scale & 0x7F }));
        for group in groups.as_chunks::<8>().0 {
            let pair = |at: usize| group[at] & 15 | group[at + 1] << 4;
            let late_pair = |at: usize| group[at] >> 4 | group[at + 1] & 0xF0;
            codes.extend([0, 2, 4, 6].map(pair));
            codes.extend([0, 2, 4, 6].map(late_pair));
        }
    }
    vec![codes, scales]
}

/// Appends codes as one stream of bits, low bits first, as MLX's words have them.
fn push_codes(codes: &[u8; GROUP], bits: usize, out: &mut Vec<u8>) {
    let (mut word, mut held) = (0_u32, 0);
    for code in codes {
        word |= u32::from(*code) << held;
        held += bits;
        while held >= 8 {
            out.push(word as u8);
            (word, held) = (word >> 8, held - 8);
        }
    }
}
