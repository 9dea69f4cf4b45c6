//! Attention over keys and values in blocks: rotation and write, rows that decode, prompt chunks.

pub use omnibus_cpu_kernels::{Projected, RotaryAxes};

use super::elementwise::is_float;
use super::linear::{MatrixUnit, is_half_width};
use super::plan::{Operand, Plan, bits, dtype, int, unused_output};
use super::source::{
    ATTN_CHUNK_MATRIX, ATTN_CHUNK_MMA, ATTN_CHUNK_WIDE, ATTN_MMA, ATTN_REDUCE, ATTN_ROWS, Dialect,
    QK_ROPE_WRITE,
};
use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::fast::{TemplateArg, TemplateValue};
use crate::{RotaryPairing, device};

/// Numbers of an item of attention: first row, rows, position of the first row (−rows attends to nothing and gives zeros),
/// start of the sequence's block table, blocks that were freed after the sink blocks, 1 for rows that are copied from
/// `other`, and two zeros.
pub const ITEM_FIELDS: usize = 8;

/// The widest heads that there are kernels for.
const HEAD_DIM_MAX: i32 = 512;

/// The heads of an attention layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadShape {
    /// Query heads.
    pub heads: i32,
    /// Key and value heads; divides `heads`.
    pub kv_heads: i32,
    /// Width of a head.
    pub head_dim: i32,
}

/// How pools store keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolFormat {
    /// Floats of a dtype.
    Float(Dtype),
    /// Words: codes of 4 or 8 bits, as MLX's affine quantization packs them, then a scale (f32) for each group, then a bias
    /// for each.
    Packed {
        /// Of a code.
        bits: i32,
        /// Elements that share a scale: 32, 64 or 128.
        group: i32,
    },
}

impl PoolFormat {
    /// Of the pools' arrays.
    pub fn dtype(self) -> Dtype {
        match self {
            Self::Float(dtype) => dtype,
            Self::Packed { .. } => Dtype::U32,
        }
    }

    /// Elements of a stored head of `head_dim` numbers, in [`Self::dtype`].
    pub fn width(self, head_dim: i32) -> i32 {
        match self {
            Self::Float(_) => head_dim,
            Self::Packed { bits, group } => head_dim * bits / 32 + 2 * (head_dim / group),
        }
    }

    /// Whether kernels read and write heads of this width.
    fn is_sound(self, head_dim: i32) -> bool {
        match self {
            Self::Float(dtype) => is_float(dtype),
            Self::Packed { bits, group } => {
                let fits = head_dim <= HEAD_DIM_MAX && head_dim % group == 0;
                matches!(bits, 4 | 8) && matches!(group, 32 | 64 | 128) && fits
            }
        }
    }

    fn constants(self, head_dim: i32) -> [TemplateArg<'static>; 3] {
        let (bits, group) = match self {
            Self::Float(_) => (0, head_dim),
            Self::Packed { bits, group } => (bits, group),
        };
        [dtype("TP", self.dtype()), int("BITS", bits), int("GROUP", group)]
    }
}

/// RMS norm of heads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RotaryNorm {
    /// None.
    Absent,
    /// With this epsilon.
    Rms(f32),
    /// Behind the rotation, with this epsilon.
    Late(f32),
}

/// A factor of queries that grows with their position: `1 + beta · log(1 + ⌊(position + shift) / period⌋)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryTemperature {
    /// Of the logarithm.
    pub beta: f32,
    /// Positions with one factor.
    pub period: i32,
    /// Added to positions.
    pub shift: i32,
}

/// Norm, rotation, and the write of keys and values into their blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotary {
    /// Of the projected rows and of the queries.
    pub dtype: Dtype,
    /// Of the pools.
    pub pool: PoolFormat,
    /// The heads.
    pub shape: HeadShape,
    /// What the projected rows hold.
    pub projected: Projected,
    /// How many elements of a head rotate; even, 0 for no rotation.
    pub dims: i32,
    /// Which elements rotate together.
    pub order: RotaryPairing,
    /// Rotated elements are multiplied by this.
    pub magnitude: f32,
    /// How many positions a row has.
    pub axes: RotaryAxes,
    /// Projected elements are limited to this magnitude first.
    pub clip: Option<f32>,
    /// The norm, with weights, of queries and keys.
    pub norm: RotaryNorm,
    /// That of values, without weights.
    pub value_norm: RotaryNorm,
    /// What queries are multiplied with.
    pub temperature: Option<QueryTemperature>,
    /// How the projected rows are stored.
    pub operand: Operand,
}

impl Rotary {
    /// Inputs: projected rows, `[rows, (heads + 2 · kv_heads) · head_dim]` where they hold queries, keys and values, and
    /// less by what they do not hold; weights of the two norms `[head_dim]` (any floats without a norm); radians per position `[dims / 2]` f32; of three positions the one that
    /// each pair turns by, 0 to 2, `[dims / 2]` i32 (with one position anything); positions `[axes, rows]` and flat slots,
    /// i32, one for each row at least (below zero: not written); the pools of keys and of values
    /// `[blocks, block_size, kv_heads, width]`, which are written in place unless there are queries alone. Outputs:
    /// queries `[rows, heads · head_dim]`, on which every reader of the pools must depend, and the attention's counter.
    /// `None` for odd heads and types without a kernel.
    pub fn plan(&self, rows: i32) -> Option<Plan> {
        let HeadShape { heads, kv_heads, head_dim } = self.shape;
        let fits = head_dim % 2 == 0 && self.dims % 2 == 0 && self.dims <= head_dim && self.dims >= 0;
        if !fits || !self.shape.is_sound() || !is_float(self.dtype) || !self.pool.is_sound(head_dim) {
            return None;
        }
        let [(norm, eps), (value_norm, value_eps)] = [self.norm, self.value_norm].map(|norm| match norm {
            RotaryNorm::Absent => (false, 0.0),
            RotaryNorm::Rms(eps) | RotaryNorm::Late(eps) => (true, eps),
        });
        let computed = match self.projected {
            Projected::QueriesKeysValues | Projected::QueriesAndKeys => heads + 2 * kv_heads,
            Projected::Queries => heads,
        };
        let simds = 8;
        let mut constants = self.pool.constants(head_dim).to_vec();
        constants.extend([
            dtype("T", self.dtype),
            int("HQ", heads),
            int("HK", kv_heads),
            int("D", head_dim),
            int("R", self.dims),
            int("NS", simds),
            int("PROJECTED", self.projected.parts_of_keys() as i32),
            ("NORM", TemplateValue::Bool(norm)),
            ("LATE", TemplateValue::Bool(matches!(self.norm, RotaryNorm::Late(_)))),
            ("CLIPPED", TemplateValue::Bool(self.clip.is_some())),
            bits("CLIP", self.clip.unwrap_or_default()),
            ("INTERLEAVED", TemplateValue::Bool(self.order == RotaryPairing::Interleaved)),
            ("AXES", TemplateValue::Bool(self.axes == RotaryAxes::Three)),
            bits("EPS", eps),
            ("VALUE_NORM", TemplateValue::Bool(value_norm)),
            bits("VALUE_EPS", value_eps),
            bits("MAGNITUDE", self.magnitude),
            ("TEMPERED", TemplateValue::Bool(self.temperature.is_some())),
            bits("BETA", self.temperature.map_or(0.0, |temperature| temperature.beta)),
            int("PERIOD", self.temperature.map_or(1, |temperature| temperature.period.max(1))),
            int("SHIFT", self.temperature.map_or(0, |temperature| temperature.shift)),
            self.operand.constant(),
        ]);
        Some(Plan {
            kernel: &QK_ROPE_WRITE,
            constants,
            groups: [(computed + simds - 1) / simds, rows, 1],
            threads: simds * 32,
            outputs: vec![
                (vec![rows, heads * head_dim], self.dtype),
                (vec![(rows * kv_heads).max(64)], Dtype::U32),
            ],
        })
    }
}

impl HeadShape {
    fn is_sound(&self) -> bool {
        self.kv_heads > 0 && self.heads >= self.kv_heads && self.heads % self.kv_heads == 0
    }

    /// Query heads that share a key head.
    fn group(&self) -> i32 {
        self.heads / self.kv_heads
    }
}

/// Attention of one layer over its pools.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PagedAttention {
    /// Of queries and of the result.
    pub dtype: Dtype,
    /// Of the pools.
    pub pool: PoolFormat,
    /// The heads.
    pub shape: HeadShape,
    /// Tokens of a block.
    pub block_size: i32,
    /// Positions that a token sees, itself included; `None` for all.
    pub window: Option<i32>,
    /// First positions that every token sees as well.
    pub sink_tokens: i32,
    /// Scores are multiplied by this.
    pub scale: f32,
    /// Then they become `cap · tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// Whether each head has the logit of a key without a value.
    pub sink_logits: SinkLogits,
    /// What multiplies matrices of prompt chunks. Where there are warpgroups, groups may have more threadgroup memory, too.
    pub unit: MatrixUnit,
}

/// Logits of keys without values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkLogits {
    /// None.
    Absent,
    /// One for each query head.
    PerHead,
}

/// The arrays of attention over pools.
#[derive(Clone, Copy, Debug)]
pub struct PagedArrays<'a> {
    /// What [`Rotary`] gave, `[rows, heads · head_dim]`.
    pub queries: &'a Array,
    /// The pool of keys, `[blocks, block_size, kv_heads, head_dim]`.
    pub keys: &'a Array,
    /// The pool of values.
    pub values: &'a Array,
    /// Block tables, i32.
    pub tables: &'a Array,
    /// The counter that [`Rotary`] gave.
    pub counter: &'a Array,
    /// Logits of keys without values, `[heads]`, floats; any floats without such keys.
    pub sinks: &'a Array,
}

impl<'a> PagedArrays<'a> {
    fn rows(&self) -> Result<i32> {
        self.queries.dim(0)
    }

    /// The inputs of a plan. `part`: what its predecessor left.
    fn of(&self, plan: &Plan, items: &'a Array, other: &'a Array, part: Option<&'a Array>) -> Vec<&'a Array> {
        let input = |name: &&str| match *name {
            "q" => self.queries,
            "kpool" => self.keys,
            "vpool" => self.values,
            "items" => items,
            "table" => self.tables,
            "counter" => self.counter,
            "sinks" => self.sinks,
            "part" => part.unwrap_or(other),
            _ => other,
        };
        plan.kernel.inputs.iter().map(input).collect()
    }
}

/// The dialect of this machine's GPU.
fn dialect() -> Result<Dialect> {
    let found = Dialect::of(device::backend());
    found.ok_or_else(|| Error::Unavailable("attention kernels: there is no GPU".into()))
}

/// How a plan computes attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Plain arithmetic.
    Rows,
    /// Tensor cores.
    Tensor,
    /// Tensor cores by warpgroups.
    Wide,
    /// Simdgroup matrices: prompt chunks on Metal.
    Matrix,
}

/// Groups that keep a large GPU busy: two for each of an H200's multiprocessors.
const GROUPS_WANTED: i32 = 264;
/// Threadgroup memory that a group of plain arithmetic takes at most, in floats; Metal has 8,192.
const SHARED_FLOATS_MAX: i32 = 7_680;
/// Threadgroup memory that a group takes at most on CUDA, in bytes, where the launch gives none.
const SHARED_BYTES_MAX: i32 = 47 << 10;

impl PagedAttention {
    /// Whether there are kernels for it.
    pub fn is_supported(&self) -> bool {
        let HeadShape { head_dim, .. } = self.shape;
        let formats = is_float(self.dtype) && self.pool.is_sound(head_dim);
        let unit = if head_dim > 256 { 16 } else { 8 };
        let heads = self.shape.is_sound() && head_dim % unit == 0 && head_dim <= HEAD_DIM_MAX;
        let shared = (head_dim + 4) * self.shape.group() <= SHARED_FLOATS_MAX;
        formats && heads && shared && self.block_size > 0 && self.shape.group() <= 32
    }

    /// Rows that decode: one row an item, `longest` keys at most. The inputs of the first plan are queries
    /// `[rows, heads · head_dim]`, the two pools, items `[.., 8]` i32, block tables i32, the counter of [`Rotary`], logits
    /// of sinks, and (for the kernel that takes it) any array like the queries. Its outputs are the result
    /// `[rows, heads · head_dim]` and partial results; a second plan, if there is one, takes the partial results, the
    /// items and the logits, and gives the result.
    pub fn decode(&self, dialect: Dialect, rows: i32, items: i32, longest: i32) -> Vec<Plan> {
        let busy = GROUPS_WANTED / (items * self.shape.kv_heads).max(1);
        let root = f64::from(longest.max(1)).sqrt();
        let splits = match self.decodes_on_tensor_cores(dialect) {
            // Sixteen are added up at once.
            true => 1 << busy.min((root / 2.0) as i32).max(1).ilog2(),
            false => busy.min((root / 3.0) as i32).max(1),
        };
        self.decode_split(dialect, rows, items, splits)
    }

    /// [`Self::decode`] with a number of groups that share a row's keys.
    pub fn decode_split(&self, dialect: Dialect, rows: i32, items: i32, splits: i32) -> Vec<Plan> {
        let group = self.shape.group();
        let way = if self.decodes_on_tensor_cores(dialect) { Way::Tensor } else { Way::Rows };
        let (kernel, mut constants, simds) = match way {
            Way::Tensor | Way::Wide => (&ATTN_MMA, self.constants(), self.decode_simds()),
            Way::Rows | Way::Matrix => {
                let (constants, simds) = self.rows_constants(1);
                (&ATTN_ROWS, constants, simds)
            }
        };
        constants.push(int("NS", simds));
        let HeadShape { kv_heads, head_dim, .. } = self.shape;
        let part = match splits {
            1 => unused_output(),
            _ => (vec![items, kv_heads, splits, group, head_dim + 4], Dtype::F32),
        };
        let out = (vec![rows, self.shape.heads * head_dim], self.dtype);
        let first = Plan {
            kernel,
            constants,
            groups: [splits, kv_heads, items],
            threads: simds * 32,
            outputs: vec![out.clone(), part],
        };
        if splits == 1 || dialect == Dialect::Cuda {
            return vec![first];
        }
        let threads = 128;
        let reduce = Plan {
            kernel: &ATTN_REDUCE,
            constants: vec![
                dtype("T", self.dtype),
                int("HQ", self.shape.heads),
                int("HK", kv_heads),
                int("D", head_dim),
                int("QN", 1),
                int("NT", threads),
                self.sink_constant(),
            ],
            groups: [items, kv_heads, 1],
            threads,
            outputs: vec![out],
        };
        vec![first, reduce]
    }

    /// Rows of a prompt that an item of [`Self::chunks`] may have.
    pub fn chunk_rows(&self, dialect: Dialect) -> i32 {
        let pairs = match self.chunk_way(dialect) {
            Way::Rows => (SHARED_FLOATS_MAX / (self.shape.head_dim + 4)).min(16),
            Way::Tensor => CHUNK_PAIRS,
            Way::Wide => WIDE_WARPGROUPS * 64,
            Way::Matrix => 8 * MATRIX_SIMDS,
        };
        (pairs / self.shape.group()).max(1)
    }

    /// Rows of prompt chunks, and rows that are copied. Inputs as of [`Self::decode`], without the counter where the
    /// kernel has none; `other` is what rows are copied from. Items are `[items · 8]` without padding, which warpgroups
    /// would go through as well. One output, `[rows, heads · head_dim]`, and perhaps an unused one.
    pub fn chunks(&self, dialect: Dialect, rows: i32, items: i32) -> Plan {
        let HeadShape { heads, kv_heads, head_dim } = self.shape;
        let out = (vec![rows, heads * head_dim], self.dtype);
        match self.chunk_way(dialect) {
            Way::Rows => {
                let (mut constants, simds) = self.rows_constants(self.chunk_rows(dialect));
                constants.push(int("NS", simds));
                let (groups, outputs) = ([1, kv_heads, items], vec![out, unused_output()]);
                Plan { kernel: &ATTN_ROWS, constants, groups, threads: simds * 32, outputs }
            }
            Way::Tensor => {
                let (slices, keys) = (self.chunk_slices(), self.chunk_keys());
                let simds = CHUNK_SIMDS * slices;
                // Keys and values twice, and scores that slices add up.
                let shared = 4 * keys * (head_dim + 8) * 2 + simds * 32 * keys * 2;
                let mut constants = self.constants();
                constants.extend([int("NS", simds), int("KT", keys)]);
                constants.push(int("SHARED", if slices > 1 { shared } else { 0 }));
                let (groups, threads) = ([items, kv_heads, 1], simds * 32);
                Plan { kernel: &ATTN_CHUNK_MMA, constants, groups, threads, outputs: vec![out] }
            }
            Way::Matrix => {
                let keys = if head_dim <= 64 { 32 } else { 16 };
                let mut constants = self.constants();
                let pad = 16 / self.dtype.size_of() as i32;
                constants.extend([int("NS", MATRIX_SIMDS), int("KT", keys), int("PAD", pad)]);
                let (groups, threads) = ([items, kv_heads, 1], MATRIX_SIMDS * 32);
                Plan { kernel: &ATTN_CHUNK_MATRIX, constants, groups, threads, outputs: vec![out] }
            }
            Way::Wide => {
                let mut constants = self.constants();
                constants.extend([
                    int("WN", WIDE_WARPGROUPS),
                    int("KT", WIDE_KEYS),
                    int("ST", WIDE_STAGES),
                    int("LAG", WIDE_COPIED),
                    int("SHARED", 2 * WIDE_STAGES * WIDE_KEYS * head_dim * 2),
                    int("REGISTERS", WIDE_REGISTERS),
                    int("PRODUCER_REGISTERS", WIDE_PRODUCER_REGISTERS),
                ]);
                let groups = [(items * kv_heads).clamp(1, WIDE_GROUPS), 1, 1];
                let threads = WIDE_WARPGROUPS * 128 + 128;
                Plan { kernel: &ATTN_CHUNK_WIDE, constants, groups, threads, outputs: vec![out] }
            }
        }
    }

    /// Computes [`Self::decode`], `[rows, heads · head_dim]`.
    pub fn run_decode(&self, arrays: &PagedArrays<'_>, items: (&Array, i32), longest: i32) -> Result<Array> {
        let plans = self.decode(dialect()?, arrays.rows()?, items.1, longest);
        let mut outputs = Vec::new();
        for plan in &plans {
            let inputs = arrays.of(plan, items.0, arrays.queries, outputs.get(1));
            outputs = plan.call(&inputs)?;
        }
        outputs.into_iter().next().ok_or_else(|| Error::new("attention without a plan"))
    }

    /// Computes [`Self::chunks`], `[rows, heads · head_dim]`. `other`: what [`Self::run_decode`] gave for the rows that
    /// are copied, or any array like it.
    pub fn run_chunks(&self, arrays: &PagedArrays<'_>, items: (&Array, i32), other: &Array) -> Result<Array> {
        let plan = self.chunks(dialect()?, arrays.rows()?, items.1);
        let outputs = plan.call(&arrays.of(&plan, items.0, other, None))?;
        outputs.into_iter().next().ok_or_else(|| Error::new("attention without a result"))
    }

    fn decodes_on_tensor_cores(&self, dialect: Dialect) -> bool {
        self.has_tensor_types(dialect)
            && matches!(self.shape.head_dim, 64 | 128 | 256 | 512)
            && !matches!(self.pool, PoolFormat::Packed { group: 32, .. })
            && self.shape.group() <= 16
            && self.block_size % 16 == 0
    }

    /// Simd groups of a row that decodes on tensor cores: those of 128 dimensions each, times as many with other keys as
    /// 48 KB of threadgroup memory have room for.
    fn decode_simds(&self) -> i32 {
        let (dim, group) = (self.shape.head_dim, self.shape.group());
        let slices = (dim / 128).max(1);
        let halves = if group > 8 { 2 } else { 1 };
        let scores = if slices > 1 { 2 * halves * slices * 32 * 16 } else { 0 };
        let room = |keys: i32| keys * (group * (dim + 4) * 4 + scores) <= SHARED_BYTES_MAX;
        slices * [4, 2].into_iter().find(|keys| room(*keys)).unwrap_or(1)
    }

    fn chunk_way(&self, dialect: Dialect) -> Way {
        let dim = self.shape.head_dim;
        let is_float = matches!(self.pool, PoolFormat::Float(_));
        if dialect == Dialect::Metal {
            if self.has_matrices() { Way::Matrix } else { Way::Rows }
        } else if !self.has_tensor_types(dialect) {
            Way::Rows
        } else if self.unit == MatrixUnit::Warpgroup && is_float && matches!(dim, 64 | 128) {
            Way::Wide
        } else if self.shape.group() > CHUNK_PAIRS {
            Way::Rows
        } else if dim % 16 == 0 && dim <= 256 || dim % 32 == 0 && self.unit == MatrixUnit::Warpgroup {
            Way::Tensor
        } else {
            Way::Rows
        }
    }

    /// Keys of a prompt chunk that pass through shared memory at once: up to heads of 256 as many as a group may have without
    /// asking for more than 48 KB, above as many as registers have room for.
    fn chunk_keys(&self) -> i32 {
        if self.shape.head_dim <= 128 { 32 } else { 16 }
    }

    /// Slices of the dimensions of a prompt chunk on tensor cores, each of a simd group's.
    fn chunk_slices(&self) -> i32 {
        if self.shape.head_dim > 256 { 2 } else { 1 }
    }

    fn has_tensor_types(&self, dialect: Dialect) -> bool {
        dialect == Dialect::Cuda && self.stages_pool() && is_half_width(self.dtype)
    }

    /// Whether rows of the pools lose nothing in threadgroup memory as queries are stored.
    fn stages_pool(&self) -> bool {
        match self.pool {
            PoolFormat::Float(dtype) => dtype == self.dtype,
            PoolFormat::Packed { .. } => true,
        }
    }

    /// Whether simdgroup matrices compute prompt chunks: a lane holds a query and a sum of its row, two of each eight
    /// elements, of which more would not fit its registers.
    fn has_matrices(&self) -> bool {
        let widest = if is_half_width(self.dtype) { 256 } else { 128 };
        let HeadShape { head_dim, .. } = self.shape;
        let fits = head_dim % 8 == 0 && head_dim <= widest && self.shape.group() <= 8 * MATRIX_SIMDS;
        self.stages_pool() && fits
    }

    /// What all attention kernels have.
    fn constants(&self) -> Vec<TemplateArg<'static>> {
        // Powers of two are cheaper than those of e.
        let to_base_2 = std::f32::consts::LOG2_E;
        let mut constants = self.pool.constants(self.shape.head_dim).to_vec();
        constants.extend([
            dtype("T", self.dtype),
            int("HQ", self.shape.heads),
            int("HK", self.shape.kv_heads),
            int("D", self.shape.head_dim),
            int("BS", self.block_size),
            int("WINDOW", self.window.unwrap_or(0)),
            int("SINK", self.sink_tokens),
            bits("SCALE", self.scale * to_base_2),
            bits("CAP", self.softcap.map_or(0.0, |cap| cap * to_base_2)),
            self.sink_constant(),
        ]);
        constants
    }

    fn sink_constant(&self) -> TemplateArg<'static> {
        ("SINK_LOGITS", TemplateValue::Bool(self.sink_logits == SinkLogits::PerHead))
    }

    /// Constants of plain arithmetic with `rows` rows an item, and simd groups: slices of rows times slices of keys.
    fn rows_constants(&self, rows: i32) -> (Vec<TemplateArg<'static>>, i32) {
        let pairs = rows * self.shape.group();
        // A lane of wide heads has twice as many elements in its registers.
        let (most, loads) = if self.shape.head_dim > 256 { (2, 2) } else { (4, 4) };
        let per_simd = pairs.min(most);
        let row_slices = (pairs + per_simd - 1) / per_simd;
        let room = SHARED_FLOATS_MAX / (pairs * (self.shape.head_dim + 4));
        let key_slices = if rows > 1 { 1 } else { (8 / row_slices).clamp(1, 4).min(room.max(1)) };
        let mut constants = self.constants();
        constants.extend([int("QN", rows), int("GH", per_simd), int("U", loads)]);
        (constants, row_slices * key_slices)
    }
}

/// Simd groups of a prompt chunk's group on tensor cores. More of them share keys and values, fewer leave room for other
/// groups: on an H200, 32 heads on 8 key heads, 2,048 tokens take 188 us with four and 210 with eight.
const CHUNK_SIMDS: i32 = 4;
/// Pairs of row and head of a group.
const CHUNK_PAIRS: i32 = CHUNK_SIMDS * 16;

/// Simd groups of a prompt chunk's group by simdgroup matrices, of 8 pairs each, that share keys and values.
const MATRIX_SIMDS: i32 = 8;

/// Warpgroups of a prompt chunk's group that share keys and values.
const WIDE_WARPGROUPS: i32 = 2;
/// Keys of a stage.
const WIDE_KEYS: i32 = 64;
/// Stages: one that is computed, one whose values are still read, one that is full, one on its way.
const WIDE_STAGES: i32 = 4;
/// Stages that are copied at once.
const WIDE_COPIED: i32 = 1;
/// Groups of a launch, which take turns: one for each of an H200's multiprocessors.
const WIDE_GROUPS: i32 = 132;
/// Registers of a thread that computes, and of one that copies: 168 each before some change hands.
const WIDE_REGISTERS: i32 = 208;
const WIDE_PRODUCER_REGISTERS: i32 = 504 - 2 * WIDE_REGISTERS;
