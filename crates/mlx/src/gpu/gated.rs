//! Activations, gated and alone, and gates of heads.

use super::elementwise::is_float;
use super::plan::{Operand, Plan, bits, dtype, int};
use super::source::{GATED, HEAD_GATE, XIELU};
use crate::activation::Activation;
use crate::dtype::Dtype;
use crate::fast::TemplateValue;

/// Of [`Activation::QuickGelu`].
const QUICK_GELU: f32 = 1.702;

/// Where the two operands are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateLayout {
    /// In one array of rows `[2 · width]`, the gate first; it is passed twice.
    Joined,
    /// In two arrays.
    Apart,
    /// There is no second operand; the first is passed twice.
    Alone,
}

/// `act(gate) · up` over rows, or `act(gate)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gated {
    /// Of the rows.
    pub dtype: Dtype,
    /// How many rows.
    pub rows: i32,
    /// Elements of a result's row.
    pub width: i32,
    /// The gate's function.
    pub gate: Activation,
    /// Where the operands are.
    pub layout: GateLayout,
    /// How they are stored.
    pub operand: Operand,
}

impl Gated {
    /// Inputs `gate` and `up`; output `y`, `[rows, width]`. `None` for widths that are no multiple of 8, and for functions that
    /// the kernel does not have, or not without `up`.
    pub fn plan(&self) -> Option<Plan> {
        if self.width % 8 != 0 || !is_float(self.dtype) {
            return None;
        }
        let (stride, up) = match self.layout {
            GateLayout::Joined => (2 * self.width, self.width),
            GateLayout::Apart | GateLayout::Alone => (self.width, 0),
        };
        let (act, alpha, limit) = match self.gate {
            Activation::Silu => (0, 0.0, 0.0),
            Activation::Gelu => (1, 0.0, 0.0),
            Activation::GeluTanh => (2, 0.0, 0.0),
            Activation::Sigmoid => (3, 0.0, 0.0),
            Activation::Relu => (4, 0.0, 0.0),
            Activation::Relu2 => (5, 0.0, 0.0),
            Activation::QuickGelu => (6, QUICK_GELU, 0.0),
            Activation::Scaled { factor } => (7, factor, 0.0),
            Activation::LimitedSilu { limit } => (8, 0.0, limit),
            Activation::ClampedSilu { limit } => (9, 0.0, limit),
            Activation::ClippedSwiglu { alpha, limit } => (10, alpha, limit),
            Activation::Situ { .. } | Activation::SparseGelu { .. } | Activation::Xielu => return None,
        };
        // These change `up`, too.
        if act >= 8 && self.layout == GateLayout::Alone {
            return None;
        }
        let threads = 128;
        let groups = (self.width / 8 + threads - 1) / threads;
        Plan {
            kernel: &GATED,
            constants: vec![
                dtype("T", self.dtype),
                int("F", self.width),
                int("STRIDE", stride),
                int("UP", up),
                ("ALONE", TemplateValue::Bool(self.layout == GateLayout::Alone)),
                int("ACT", act),
                bits("ALPHA", alpha),
                bits("LIMIT", limit),
                int("NT", threads),
                self.operand.constant(),
            ],
            groups: [groups, self.rows, 1],
            threads,
            outputs: vec![(vec![self.rows, self.width], self.dtype)],
        }
        .within_grid()
    }
}

/// The function of a gate of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadGateFunction {
    /// `1 / (1 + e⁻ˣ)`.
    Sigmoid,
    /// `log(1 + eˣ)`.
    Softplus,
}

/// Heads times the function of a logit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadGate {
    /// Of rows and logits.
    pub dtype: Dtype,
    /// How many rows.
    pub rows: i32,
    /// Heads of a row.
    pub heads: i32,
    /// Elements of a head.
    pub head_dim: i32,
    /// Of the logits.
    pub function: HeadGateFunction,
}

impl HeadGate {
    /// Inputs: logits `[rows, heads]` and rows `[rows, heads · head_dim]`; output like the rows. `None` for heads that are no
    /// multiple of 8.
    pub fn plan(&self) -> Option<Plan> {
        let Self { heads, head_dim, .. } = *self;
        if head_dim % 8 != 0 || heads < 1 || !is_float(self.dtype) {
            return None;
        }
        let threads = 128;
        Plan {
            kernel: &HEAD_GATE,
            constants: vec![
                dtype("T", self.dtype),
                int("H", heads),
                int("D", head_dim),
                ("SOFTPLUS", TemplateValue::Bool(self.function == HeadGateFunction::Softplus)),
                int("NT", threads),
            ],
            groups: [(heads * head_dim / 8 + threads - 1) / threads, self.rows, 1],
            threads,
            outputs: vec![(vec![self.rows, heads * head_dim], self.dtype)],
        }
        .within_grid()
    }
}

/// The activation xIELU, with learned numbers. Source: arXiv 2411.13010 §3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xielu {
    /// Of the rows.
    pub dtype: Dtype,
    /// How many rows.
    pub rows: i32,
    /// Elements of a row.
    pub width: i32,
    /// How the rows are stored.
    pub operand: Operand,
}

impl Xielu {
    /// Inputs: rows `[rows, width]`; αₚ, αₙ, β and ε, `[1]` f32 each; output `[rows, width]`. `None` for widths that are no
    /// multiple of 8.
    pub fn plan(&self) -> Option<Plan> {
        if self.width % 8 != 0 || !is_float(self.dtype) {
            return None;
        }
        let threads = 128;
        Plan {
            kernel: &XIELU,
            constants: vec![
                dtype("T", self.dtype),
                int("F", self.width),
                int("NT", threads),
                self.operand.constant(),
            ],
            groups: [(self.width / 8 + threads - 1) / threads, self.rows, 1],
            threads,
            outputs: vec![(vec![self.rows, self.width], self.dtype)],
        }
        .within_grid()
    }
}
