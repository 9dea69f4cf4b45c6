//! Layers with a state for each sequence: convolution, recurrence and gate, with states written in place.

use super::elementwise::is_float;
use super::plan::{Operand, Plan, bits, dtype, int};
use super::source::{CAUSAL_CONV, DECAYS, GATED_HEADS, RECURRENCE, SELECTIVE_SCAN};
use crate::dtype::Dtype;
use crate::fast::TemplateValue;

/// Numbers of a run of rows: first row, rows, the slot that the state after them is written to (below zero: there is no
/// state, and results are zeros), and the slot of the state before them: the same, that of the run before, or below zero for
/// zeros.
pub const RUN_FIELDS: usize = 4;

/// How many runs a launch has, and the most rows of those that continue each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunCount {
    /// Runs; each row is of one.
    pub runs: i32,
    /// Rows of the longest.
    pub longest: i32,
}

impl RunCount {
    /// Groups that share the rows of the longest run in a convolution.
    pub fn conv_tiles(self) -> i32 {
        (self.longest.max(1) + CONV_TILE - 1) / CONV_TILE
    }
}

/// Rows of a convolution that a thread computes, not fewer than a state has.
const CONV_TILE: i32 = 32;
/// Elements of a key that recurrences have at most.
const KEY_DIM_MAX: i32 = 256;

/// What comes after a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvActivation {
    /// Nothing.
    Identity,
    /// `x · sigmoid(x)`.
    Silu,
}

/// A causal convolution of each channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CausalConv {
    /// Of the inputs.
    pub dtype: Dtype,
    /// Of the results.
    pub output: Dtype,
    /// How many rows.
    pub rows: i32,
    /// How many channels.
    pub channels: i32,
    /// Where they begin in a row.
    pub offset: i32,
    /// Rows that a result sees.
    pub kernel_size: i32,
    /// Whether each channel has a bias.
    pub has_bias: bool,
    /// What comes after it.
    pub activation: ConvActivation,
    /// What inputs and results are multiplied with.
    pub gates: Option<ConvGates>,
}

/// Where in a row the channels begin that a convolution's inputs and results are multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvGates {
    /// First channel of the gates of the inputs.
    pub inputs: i32,
    /// First channel of the gates of the results.
    pub results: i32,
}

impl CausalConv {
    /// Inputs: `[rows, _]`, weights `[kernel_size, channels]` f32, biases `[channels]` (any floats without), runs i32, and
    /// the pool `[slots, kernel_size − 1, channels]` f32, which is written in place. Output: `[rows, channels]`. `None` for
    /// sizes without a kernel.
    pub fn plan(&self, count: RunCount) -> Option<Plan> {
        let fits = (2..=CONV_TILE).contains(&self.kernel_size) && self.channels > 0;
        if !fits || !is_float(self.dtype) || !is_float(self.output) {
            return None;
        }
        let threads = 128;
        let gates = self.gates.unwrap_or(ConvGates { inputs: 0, results: 0 });
        Some(Plan {
            kernel: &CAUSAL_CONV,
            constants: vec![
                dtype("T", self.dtype),
                dtype("TO", self.output),
                int("C", self.channels),
                int("OFFSET", self.offset),
                int("K", self.kernel_size),
                int("TILE", CONV_TILE),
                int("NT", threads),
                ("BIAS", TemplateValue::Bool(self.has_bias)),
                ("SILU", TemplateValue::Bool(self.activation == ConvActivation::Silu)),
                ("GATED", TemplateValue::Bool(self.gates.is_some())),
                int("GATE_IN", gates.inputs),
                int("GATE_OUT", gates.results),
            ],
            groups: [(self.channels + threads - 1) / threads, count.runs, count.conv_tiles()],
            threads,
            outputs: vec![(vec![self.rows, self.channels], self.output)],
        })
    }
}

/// How a state changes with a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RecurrenceRule {
    /// Mamba-2: values, keys and queries in a mixed row, in this order.
    StateSpace {
        /// Least and most of a step.
        limits: [f32; 2],
    },
    /// Gated DeltaNet: queries, keys and values in a mixed row, in this order.
    Delta {
        /// Where in their row the heads' β begin, before the sigmoid.
        write: i32,
        /// The sigmoid is multiplied by this.
        scale: f32,
    },
}

/// How much of a head's state is left with each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateDecay {
    /// One share for all of a head's state, by the head's step.
    Head {
        /// Where in their row the heads' steps begin.
        step: i32,
    },
    /// Of each element of a key what [`Decays`] gives.
    Channels,
}

/// A recurrence whose state is a matrix for each head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recurrence {
    /// How many rows.
    pub rows: i32,
    /// Heads of the values.
    pub heads: i32,
    /// Heads of keys and queries; divides `heads`.
    pub key_heads: i32,
    /// Elements of a head's value.
    pub value_dim: i32,
    /// Elements of a key.
    pub key_dim: i32,
    /// What is left of the state.
    pub decay: StateDecay,
    /// How the state changes.
    pub rule: RecurrenceRule,
}

impl Recurrence {
    /// Inputs: mixed rows `[rows, heads · value_dim + 2 · key_heads · key_dim]` f32, rows with steps `[rows, _]` or decays
    /// `[rows, heads · key_dim]` f32, rows with β `[rows, _]` (any for Mamba-2), the logarithm of each head's decay and the
    /// bias of its step `[heads]` f32 (any with decays of channels), what a value adds to the result `[heads]` f32 (any floats
    /// for the delta rule), runs i32, and the pool `[slots, heads, value_dim, key_dim]` f32, which is written in place. Output:
    /// `[rows, heads · value_dim]` f32. `None` for sizes without a kernel.
    pub fn plan(&self, count: RunCount) -> Option<Plan> {
        let Self { heads, key_heads, value_dim, key_dim, .. } = *self;
        let lanes = [8, 4, 2, 1].into_iter().find(|lanes| key_dim % (4 * lanes) == 0)?;
        let grouped = key_heads > 0 && heads >= key_heads && heads % key_heads == 0;
        if !grouped || value_dim < 1 || key_dim > KEY_DIM_MAX {
            return None;
        }
        let (values, keys) = (heads * value_dim, key_heads * key_dim);
        let (is_delta, places, (write, scale), limits) = match self.rule {
            RecurrenceRule::StateSpace { limits } => (false, [values + keys, values, 0], (0, 1.0), limits),
            RecurrenceRule::Delta { write, scale } => (true, [0, keys, 2 * keys], (write, scale), [0.0; 2]),
        };
        let (of_channels, step) = match self.decay {
            StateDecay::Channels if !is_delta => return None,
            StateDecay::Channels => (true, 0),
            StateDecay::Head { step } => (false, step),
        };
        let [queries_at, keys_at, values_at] = places;
        let simds = 4;
        let of_group = simds * 32 / lanes;
        Some(Plan {
            kernel: &RECURRENCE,
            constants: vec![
                int("H", heads),
                int("HK", key_heads),
                int("VD", value_dim),
                int("KD", key_dim),
                int("L", lanes),
                int("QUERIES", queries_at),
                int("KEYS", keys_at),
                int("VALUES", values_at),
                int("STEP", step),
                int("WRITE", write),
                bits("WRITE_SCALE", scale),
                ("CHANNELS", TemplateValue::Bool(of_channels)),
                bits("LOW", limits[0]),
                bits("HIGH", limits[1]),
                ("DELTA", TemplateValue::Bool(is_delta)),
                int("NS", simds),
            ],
            groups: [(value_dim + of_group - 1) / of_group, heads, count.runs],
            threads: simds * 32,
            outputs: vec![(vec![self.rows, values], Dtype::F32)],
        })
    }
}

/// Mamba's recurrence, whose state is a few numbers for each channel.
///
/// Source: arXiv 2312.00752 §3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectiveScan {
    /// Of the results.
    pub dtype: Dtype,
    /// How many rows.
    pub rows: i32,
    /// Channels of a row.
    pub channels: i32,
    /// Numbers of a channel's state.
    pub state_dim: i32,
}

impl SelectiveScan {
    /// Inputs: rows `[rows, channels]`, steps `[rows, channels]`, what is written and what reads `[rows, state_dim]`, floats;
    /// how fast states decay, below zero, `[channels, state_dim]` f32, what a row adds to its result `[channels]` f32, runs
    /// i32, and the pool `[slots, channels, state_dim]` f32, which is written in place. Output: `[rows, channels]`. `None`
    /// for sizes without a kernel.
    pub fn plan(&self, count: RunCount) -> Option<Plan> {
        let Self { rows, channels, state_dim, dtype: output } = *self;
        let lanes = state_dim / 4;
        let fits = state_dim % 4 == 0 && matches!(lanes, 1 | 2 | 4 | 8 | 16 | 32);
        if !fits || channels < 1 || !is_float(output) {
            return None;
        }
        let simds = 4;
        let of_group = simds * 32 / lanes;
        Some(Plan {
            kernel: &SELECTIVE_SCAN,
            constants: vec![dtype("T", output), int("C", channels), int("N", state_dim), int("NS", simds)],
            groups: [(channels + of_group - 1) / of_group, count.runs, 1],
            threads: simds * 32,
            outputs: vec![(vec![rows, channels], output)],
        })
    }
}

/// What is left of a state with each row, for each element of a key: `exp(−exp(a) · softplus(x + b))`.
///
/// Source: arXiv 2510.26692 §3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decays {
    /// Of `x`.
    pub dtype: Dtype,
    /// How many rows.
    pub rows: i32,
    /// Heads of a row.
    pub heads: i32,
    /// Elements of a key.
    pub key_dim: i32,
    /// Then it is `exp(bound · sigmoid(exp(a) · (x + b)))` in place of that.
    pub bound: Option<f32>,
    /// How `x` is stored.
    pub operand: Operand,
}

impl Decays {
    /// Inputs: `x` `[rows, heads · key_dim]`, `a` `[heads]` and `b` `[heads · key_dim]` f32. Output: `[rows, heads · key_dim]`
    /// f32. `None` for keys of no multiple of 8, and types without a kernel.
    pub fn plan(&self) -> Option<Plan> {
        let Self { rows, heads, key_dim, bound, .. } = *self;
        let threads = 128;
        (key_dim % 8 == 0 && is_float(self.dtype)).then(|| Plan {
            kernel: &DECAYS,
            constants: vec![
                dtype("T", self.dtype),
                int("H", heads),
                int("KD", key_dim),
                ("BOUNDED", TemplateValue::Bool(bound.is_some())),
                bits("BOUND", bound.unwrap_or_default()),
                int("NT", threads),
                self.operand.constant(),
            ],
            groups: [rows, (heads * key_dim / 8 + threads - 1) / threads, 1],
            threads,
            outputs: vec![(vec![rows, heads * key_dim], Dtype::F32)],
        })
    }
}

/// What a gate does to a head's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadsGate {
    /// Times `gate · sigmoid(gate)`.
    Silu,
    /// Times `sigmoid(gate)`.
    Sigmoid,
}

/// What a recurrence gave, times a function of a gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GatedHeads {
    /// Of gates and results.
    pub dtype: Dtype,
    /// How many rows.
    pub rows: i32,
    /// Heads of a row.
    pub heads: i32,
    /// Elements of a head.
    pub value_dim: i32,
    /// Where the gates begin in their row.
    pub gate: i32,
    /// What they do.
    pub function: HeadsGate,
    /// Epsilon of each head's RMS norm before the gate; `None` for no norm.
    pub norm: Option<f32>,
}

impl GatedHeads {
    /// Inputs: `[rows, heads · value_dim]` f32, the rows of the gates `[rows, _]`, the norm's weight `[value_dim]` (any floats
    /// without a norm). Output: `[rows, heads · value_dim]`. `None` for types without a kernel.
    pub fn plan(&self) -> Option<Plan> {
        let simds = 4;
        is_float(self.dtype).then(|| Plan {
            kernel: &GATED_HEADS,
            constants: vec![
                dtype("T", self.dtype),
                int("H", self.heads),
                int("VD", self.value_dim),
                int("GATE", self.gate),
                ("SIGMOID", TemplateValue::Bool(self.function == HeadsGate::Sigmoid)),
                ("NORM", TemplateValue::Bool(self.norm.is_some())),
                bits("EPS", self.norm.unwrap_or_default()),
                int("NS", simds),
            ],
            groups: [(self.heads + simds - 1) / simds, self.rows, 1],
            threads: simds * 32,
            outputs: vec![(vec![self.rows, self.heads * self.value_dim], self.dtype)],
        })
    }
}
