//! A tensor of the file as the tensors of a folder: floats, or codes with scales.

use crate::blocks::nvfp4::{self, NVFP4_GROUP};
use crate::blocks::{self, GROUP, Group, Origin, packing};
use crate::floats::{self, FloatType};
use crate::tensor_type::TensorType;

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
pub fn parts(form: Form, shape: &[usize], float: FloatType) -> Vec<Part> {
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
    match form {
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
        Form::Affine { bits } => {
            let (parts, exact) = affine(float, bits, |take| blocks::for_each_group(kind, bytes, take));
            match packing(kind) {
                Some((_, Origin::PackedAnew)) => (parts, Kept::PackedAnew),
                _ if exact => (parts, Kept::Exactly),
                _ => (parts, Kept::Rounded),
            }
        }
        Form::Mxfp4 => (mxfp4(bytes), Kept::Exactly),
        Form::Nvfp4 => (nvfp4(bytes), Kept::Exactly),
    }
}

/// How NVFP4 is stored that has a scale for the whole tensor, or for each of its experts: MLX's mode has none.
pub const SCALED_NVFP4: Form = Form::Affine { bits: 8 };

/// The bytes of [`parts`] of [`SCALED_NVFP4`].
pub fn convert_scaled_nvfp4(bytes: &[u8], scales: &[f32], float: FloatType) -> (Vec<Vec<u8>>, Kept) {
    let of_scale = bytes.len().checked_div(scales.len()).unwrap_or(0).max(1);
    let (parts, _) = affine(float, 8, |take| {
        for (bytes, scale) in bytes.chunks(of_scale).zip(scales) {
            blocks::for_each_group_of_nvfp4(bytes, *scale, take);
        }
    });
    (parts, Kept::PackedAnew)
}

/// Codes, scales and biases of the groups that `each` gives, and whether the latter are kept exactly.
fn affine(float: FloatType, bits: usize, each: impl FnOnce(&mut dyn FnMut(Group))) -> (Vec<Vec<u8>>, bool) {
    let (mut codes, mut scales, mut biases, mut exact) = (Vec::new(), Vec::new(), Vec::new(), true);
    each(&mut |group| {
        push_codes(&group.codes, bits, &mut codes);
        exact &= float.push(group.scale, &mut scales);
        exact &= float.push(group.bias, &mut biases);
    });
    (vec![codes, scales, biases], exact)
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

/// Blocks of four scales and 64 codes.
fn nvfp4(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut codes, mut scales) = (Vec::new(), Vec::new());
    for block in bytes.chunks_exact(TensorType::Nvfp4.block_bytes()) {
        let (of_groups, of_elements) = nvfp4::parts(block);
        scales.extend(of_groups);
        of_elements.as_chunks::<GROUP>().0.iter().for_each(|group| push_codes(group, 4, &mut codes));
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
