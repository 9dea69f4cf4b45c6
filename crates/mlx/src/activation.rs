//! Functions of one array, or of a gate, which kernels have.

/// The function of an MLP or of a gate. In a gated MLP, the gate's is multiplied by `up`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub enum Activation {
    Silu,
    Gelu,
    GeluTanh,
    /// `x · sigmoid(1.702 x)` (CLIP)
    QuickGelu,
    /// `sigmoid(x)`, a gate and no more.
    Sigmoid,
    /// `factor · x`, with a factor as the rows' dtype holds it.
    Scaled {
        factor: f32,
    },
    Relu,
    /// `relu(x)²`
    Relu2,
    /// `(1 + clip(up)) · g · sigmoid(alpha · g)` with `g = min(gate, limit)` (gpt-oss).
    ClippedSwiglu {
        alpha: f32,
        limit: f32,
    },
    /// `clip(up) · min(silu(gate), limit)` (Step 3.5).
    LimitedSilu {
        limit: f32,
    },
    /// `clip(up) · silu(min(gate, limit))` (DeepSeek-V4.1).
    ClampedSilu {
        limit: f32,
    },
    /// `β · tanh(gate / β) · sigmoid(gate)`, times `up` or `λ · tanh(up / λ)` (Kimi K3).
    Situ {
        beta: f32,
        linear_beta: Option<f32>,
    },
    /// `gelu(x − cut)`, 0 below the cut that this share of normally distributed numbers is below (Gemma 3n).
    SparseGelu {
        share: f32,
    },
    /// `αₚ x² + βx` above zero and `αₙ (eˣ − 1 − x) + βx` below, with learned αₚ and αₙ. Source: arXiv 2411.13010.
    Xielu,
}
