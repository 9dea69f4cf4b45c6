//! Attention to latents in blocks: norm, rotation and write, the products of each head, rows that decode.
//!
//! Source: arXiv 2405.04434 §2.1.2, with the keys' projection absorbed into the queries.

use super::elementwise::is_float;
use super::linear::{FewRowsWeight, MatrixUnit, Stored, even, is_half_width, units, whole};
use super::plan::{Plan, bits, dtype, int, unused_output};
use super::source::{
    ATTN_LATENT, ATTN_LATENT_MMA, ATTN_REDUCE, Dialect, LATENT_GATHER, LATENT_WRITE, WMM_HEADS,
};
use super::weight_format::WeightFormat;
use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::fast::TemplateValue;
use crate::{RotaryPairing, device};

/// Widths of latent attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatentShape {
    /// Query heads.
    pub heads: i32,
    /// Width of a latent.
    pub latent_dim: i32,
    /// Width of the key beside a latent, and of the part of a query that reads it.
    pub rope_dim: i32,
}

impl LatentShape {
    fn is_sound(&self) -> bool {
        let Self { heads, latent_dim, rope_dim } = *self;
        let fits = |dim: i32, most: i32| dim > 0 && dim % 8 == 0 && dim <= most;
        heads > 0 && fits(latent_dim, 1024) && fits(rope_dim, 256)
    }

    /// Heads of a simd group.
    fn simd_heads(&self) -> i32 {
        if self.heads % 2 == 0 { 2 } else { 1 }
    }

    /// Heads of a group: as many as divide all of them, up to 16.
    fn group_heads(&self) -> i32 {
        let most = 16.min(self.heads);
        (1..=most).rev().find(|heads| self.heads % heads == 0 && heads % self.simd_heads() == 0).unwrap_or(1)
    }
}

/// How queries and keys turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatentRotation {
    /// Which elements rotate together.
    pub order: RotaryPairing,
    /// Rotated elements are multiplied by this.
    pub magnitude: f32,
}

/// The norm of latents, the rotation of keys and queries, and the write of latents and keys into their blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatentWrite {
    /// Of the projected rows.
    pub dtype: Dtype,
    /// Of the pools.
    pub pool: Dtype,
    /// The widths.
    pub shape: LatentShape,
    /// Width of the part of a query that does not turn.
    pub nope_dim: i32,
    /// `None` for no rotation.
    pub rotation: Option<LatentRotation>,
    /// Of the norm.
    pub eps: f32,
    /// Latents are multiplied by this after the norm.
    pub factor: f32,
}

impl LatentWrite {
    /// Inputs: queries `[rows, heads · (nope_dim + rope_dim)]`; latents and keys `[rows, latent_dim + rope_dim]`; the norm's
    /// weight `[latent_dim]`; radians per position `[rope_dim / 2]` f32 (any floats without a rotation); positions and flat
    /// slots, i32, one for each row at least (below zero: not written); the pools of latents and of keys
    /// `[blocks, block_size, 1, width]`, which are written in place. Outputs: the turned parts of queries
    /// `[rows, heads · rope_dim]`, on which every reader of the pools must depend, and the attention's counter. `None` for
    /// widths and types without a kernel.
    pub fn plan(&self, rows: i32) -> Option<Plan> {
        let LatentShape { heads, latent_dim, rope_dim } = self.shape;
        if !self.shape.is_sound() || self.nope_dim < 0 || !is_float(self.dtype) || !is_float(self.pool) {
            return None;
        }
        let (order, magnitude) = match self.rotation {
            Some(LatentRotation { order, magnitude }) => (order, magnitude),
            None => (RotaryPairing::Halves, 1.0),
        };
        let (simds, groups) = (8, heads / self.shape.group_heads());
        let constants = vec![
            dtype("T", self.dtype),
            dtype("TP", self.pool),
            int("HQ", heads),
            int("HK", groups),
            int("N", self.nope_dim),
            int("L", latent_dim),
            int("RD", rope_dim),
            int("NS", simds),
            ("TURNS", TemplateValue::Bool(self.rotation.is_some())),
            ("INTERLEAVED", TemplateValue::Bool(order == RotaryPairing::Interleaved)),
            bits("MAGNITUDE", magnitude),
            bits("EPS", self.eps),
            bits("FACTOR", self.factor),
        ];
        Some(Plan {
            kernel: &LATENT_WRITE,
            constants,
            groups: [(heads + 1 + simds - 1) / simds, rows, 1],
            threads: simds * 32,
            outputs: vec![
                (vec![rows, heads * rope_dim], self.dtype),
                (vec![(rows * groups).max(64)], Dtype::U32),
            ],
        })
    }
}

/// Attention of rows that decode to latents in blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PagedLatents {
    /// Of queries and of the result.
    pub dtype: Dtype,
    /// Of the pools.
    pub pool: Dtype,
    /// The widths.
    pub shape: LatentShape,
    /// Tokens of a block.
    pub block_size: i32,
    /// Scores are multiplied by this.
    pub scale: f32,
    /// Where there are warpgroups, groups have threadgroup memory for more keys.
    pub unit: MatrixUnit,
}

/// The arrays of attention to latents.
#[derive(Clone, Copy, Debug)]
pub struct LatentArrays<'a> {
    /// Queries to latents, `[rows, heads · latent_dim]`.
    pub queries: &'a Array,
    /// What [`LatentWrite`] gave, `[rows, heads · rope_dim]`.
    pub turned: &'a Array,
    /// The pool of latents.
    pub latents: &'a Array,
    /// The pool of keys.
    pub keys: &'a Array,
    /// Block tables, i32.
    pub tables: &'a Array,
    /// The counter that [`LatentWrite`] gave.
    pub counter: &'a Array,
}

/// Groups that keep a large GPU busy: two for each of an H200's multiprocessors.
const GROUPS_WANTED: i32 = 264;
/// On tensor cores, where a group has a multiprocessor's threadgroup memory.
const TENSOR_GROUPS_WANTED: i32 = 132;
/// Simd groups of such a group: as many as rows of a tensor core's tile.
const TENSOR_SIMDS: i32 = 16;

impl PagedLatents {
    /// Whether there are kernels for it.
    pub fn is_supported(&self) -> bool {
        self.shape.is_sound() && is_float(self.dtype) && is_float(self.pool) && self.block_size > 0
    }

    /// One row an item, `longest` keys at most. Inputs and outputs of the first plan are the kernel's; a second plan, if
    /// there is one, takes the partial results and the items, and gives the result `[rows, heads · latent_dim]`.
    pub fn decode(&self, dialect: Dialect, rows: i32, items: i32, longest: i32) -> Vec<Plan> {
        // The last group of a tile adds up what all have left: more splits of few keys cost more than they save.
        let (wanted, share) = match self.decodes_on_tensor_cores(dialect) {
            true => (TENSOR_GROUPS_WANTED, 3.0),
            false => (GROUPS_WANTED, 2.0),
        };
        let busy = wanted / (items * self.shape.heads / self.shape.group_heads()).max(1);
        let splits = busy.min((f64::from(longest.max(1)).sqrt() / share) as i32).max(1);
        self.decode_split(dialect, rows, items, splits)
    }

    /// Whether rows that decode are multiplied by tensor cores, for which each group reads a piece of keys at once.
    fn decodes_on_tensor_cores(&self, dialect: Dialect) -> bool {
        let LatentShape { latent_dim, rope_dim, .. } = self.shape;
        let latents =
            latent_dim % 64 == 0 && (latent_dim <= 128 || latent_dim % 128 == 0) && latent_dim <= 512;
        let types = is_half_width(self.dtype) && self.pool == self.dtype;
        dialect == Dialect::Cuda && types && latents && rope_dim % 32 == 0 && rope_dim <= 128
    }

    /// Keys of a piece, pieces in threadgroup memory at once, and its bytes beside what the kernel declares: up to 183 KiB of
    /// an H200's 227, and up to 61 KiB, with which the kernel fits the 99 that Ada and consumer Blackwell have.
    fn tensor_pieces(&self) -> [i32; 3] {
        let (keys, pieces) = match self.unit {
            MatrixUnit::Warpgroup => (64, 2),
            MatrixUnit::SimdGroup => (32, 1),
        };
        let width = self.shape.latent_dim + self.shape.rope_dim + 8;
        [keys, pieces, (TENSOR_SIMDS + keys * pieces) * width * 2]
    }

    /// [`Self::decode`] with a number of groups that share a row's keys.
    pub fn decode_split(&self, dialect: Dialect, rows: i32, items: i32, splits: i32) -> Vec<Plan> {
        let LatentShape { heads, latent_dim, rope_dim } = self.shape;
        let of_group = self.shape.group_heads();
        let on_tensor_cores = self.decodes_on_tensor_cores(dialect);
        let groups = heads / of_group;
        let simds = if on_tensor_cores { TENSOR_SIMDS } else { of_group / self.shape.simd_heads() };
        let part = match splits {
            1 => unused_output(),
            _ => (vec![items, groups, splits, of_group, latent_dim + 4], Dtype::F32),
        };
        let out = (vec![rows, heads * latent_dim], self.dtype);
        let mut constants = vec![
            dtype("T", self.dtype),
            int("HQ", heads),
            int("HK", groups),
            int("L", latent_dim),
            int("RD", rope_dim),
            int("BS", self.block_size),
            int("NS", simds),
            // Powers of two are cheaper than those of e.
            bits("SCALE", self.scale * std::f32::consts::LOG2_E),
        ];
        let kernel = match on_tensor_cores {
            true => {
                let [keys, pieces, shared] = self.tensor_pieces();
                constants.extend([int("KT", keys), int("ST", pieces), int("SHARED", shared)]);
                &ATTN_LATENT_MMA
            }
            false => {
                let own = [dtype("TP", self.pool), int("GH", self.shape.simd_heads()), int("U", 2)];
                constants.extend(own);
                &ATTN_LATENT
            }
        };
        let (grid, outputs) = ([splits, groups, items], vec![out.clone(), part]);
        let first = Plan { kernel, constants, groups: grid, threads: simds * 32, outputs };
        if splits == 1 || dialect == Dialect::Cuda {
            return vec![first];
        }
        let threads = 128;
        let constants = vec![
            dtype("T", self.dtype),
            int("HQ", heads),
            int("HK", groups),
            int("D", latent_dim),
            int("QN", 1),
            int("NT", threads),
            ("SINK_LOGITS", TemplateValue::Bool(false)),
        ];
        let grid = [items, groups, 1];
        vec![first, Plan { kernel: &ATTN_REDUCE, constants, groups: grid, threads, outputs: vec![out] }]
    }

    /// The latents of one sequence and the keys beside them, all slots of `blocks` blocks. Inputs: the pools of latents and
    /// of keys, the sequence's block table `[1, blocks]` i32, and the turned queries that [`LatentWrite`] gave, which order
    /// the launches. Outputs: `[blocks · block_size, latent_dim]` and `[blocks · block_size, rope_dim]`.
    pub fn gather(&self, blocks: i32) -> Plan {
        let LatentShape { latent_dim, rope_dim, .. } = self.shape;
        let (simds, keys) = (8, blocks * self.block_size);
        let constants = vec![
            dtype("T", self.dtype),
            dtype("TP", self.pool),
            int("L", latent_dim),
            int("RD", rope_dim),
            int("BS", self.block_size),
            int("NS", simds),
        ];
        Plan {
            kernel: &LATENT_GATHER,
            constants,
            groups: [(keys + simds - 1) / simds, 1, 1],
            threads: simds * 32,
            outputs: vec![(vec![keys, latent_dim], self.dtype), (vec![keys, rope_dim], self.dtype)],
        }
    }

    /// Computes [`Self::decode`], `[rows, heads · latent_dim]`.
    pub fn run(&self, arrays: &LatentArrays<'_>, items: (&Array, i32), longest: i32) -> Result<Array> {
        let dialect = Dialect::of(device::backend());
        let dialect =
            dialect.ok_or_else(|| Error::Unavailable("attention kernels: there is no GPU".into()))?;
        let LatentArrays { queries, turned, latents, keys, tables, counter } = *arrays;
        let mut made: Vec<Array> = Vec::new();
        for plan in self.decode(dialect, queries.dim(0)?, items.1, longest) {
            made = match made.get(1) {
                None => plan.call(&[queries, turned, latents, keys, items.0, tables, counter])?,
                // Logits of sinks, which are not read.
                Some(part) => plan.call(&[part, items.0, turned])?,
            };
        }
        made.into_iter().next().ok_or_else(|| Error::new("attention without a plan"))
    }
}

/// Products of rows of bf16 or f16 with a weight for each head, `[heads, outputs, inputs]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadProduct {
    /// Of the rows, and of what is not packed in the weights.
    pub dtype: Dtype,
    /// How the weights are stored.
    pub format: WeightFormat,
    /// Rows of `x`.
    pub rows: i32,
    /// Weights that there are.
    pub heads: i32,
    /// Columns of a weight.
    pub inputs: i32,
    /// From what a head reads of a row to what the next one reads; at least `inputs`.
    pub pitch: i32,
    /// Rows of a weight.
    pub outputs: i32,
}

/// The most rows of [`HeadProduct`]: with more, MLX's products of unpacked weights are faster.
const HEAD_ROWS_MAX: i32 = 256;

impl HeadProduct {
    /// Inputs: `x` `[rows, heads · pitch]`, weights, scales and biases (any arrays for dense weights). Output:
    /// `[rows, heads, outputs]`. `None` for sizes and dtypes without a kernel, and but for CUDA.
    pub fn plan(&self, dialect: Dialect) -> Option<Plan> {
        let Self { inputs, pitch, outputs, .. } = *self;
        // Rows are read by 16 bytes.
        let fits =
            self.format.fits(inputs) && pitch >= inputs && pitch % 8 == 0 && outputs > 0 && outputs % 16 == 0;
        if !fits
            || !is_half_width(self.dtype)
            || dialect != Dialect::Cuda
            || !(1..=HEAD_ROWS_MAX).contains(&self.rows)
        {
            return None;
        }
        let tiles = ((self.rows.min(32) as u32).div_ceil(8)).next_power_of_two() as i32;
        let (output_simds, input_simds) = (if outputs >= 256 { 2 } else { 1 }, 2.min(units(inputs)));
        let mut constants = self.format.constants().to_vec();
        constants.extend([
            dtype("TX", self.dtype),
            dtype("TO", self.dtype),
            int("INPUTS", inputs),
            int("PITCH", pitch),
            whole(inputs),
            even(true),
            int("MT", tiles),
            int("RT", 1),
            int("WN", output_simds),
            int("WK", input_simds),
        ]);
        let groups = [(outputs + 16 * output_simds - 1) / (16 * output_simds), self.heads, 1];
        let outputs = vec![(vec![self.rows, self.heads, outputs], self.dtype)];
        Some(Plan {
            kernel: &WMM_HEADS,
            constants,
            groups,
            threads: output_simds * input_simds * 32,
            outputs,
        })
    }
}

/// The products of each head of `x`, `[rows, heads · pitch]` of bf16 or f16, whose first elements it reads, with its weight:
/// `[rows, heads, outputs]`. `None` where there is no kernel.
pub fn head_product(x: &Array, weight: FewRowsWeight<'_>) -> Result<Option<Array>> {
    let dtype = x.dtype()?;
    let Some(Stored { format, w, scales, biases }) = weight.stored(dtype)? else { return Ok(None) };
    let (&[rows, width], &[heads, outputs, _]) = (x.shape(), w.shape()) else { return Ok(None) };
    if heads <= 0 {
        return Ok(None);
    }
    let inputs = weight.inputs()?;
    let product = HeadProduct { dtype, format, rows, heads, inputs, pitch: width / heads, outputs };
    let plan = Dialect::of(device::backend()).and_then(|dialect| product.plan(dialect));
    let Some(plan) = plan else { return Ok(None) };
    Ok(plan.call(&[x, w, scales, biases])?.into_iter().next())
}
