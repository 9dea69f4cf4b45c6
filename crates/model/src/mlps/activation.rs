//! Non-linearities of MLPs.

/// The non-linearity of an MLP. In a gated one, the gate's is multiplied by `up`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub enum Activation {
    Silu,
    Gelu,
    GeluTanh,
    /// `x · sigmoid(1.702 x)` (CLIP)
    QuickGelu,
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

impl Activation {
    /// As Hugging Face spells them.
    pub const CHOICES: &[(&str, Self)] = &[
        ("silu", Self::Silu),
        ("swish", Self::Silu),
        ("gelu", Self::Gelu),
        ("gelu_pytorch_tanh", Self::GeluTanh),
        ("gelu_new", Self::GeluTanh),
        ("gelu_fast", Self::GeluTanh),
        ("quick_gelu", Self::QuickGelu),
        ("relu", Self::Relu),
        ("relu2", Self::Relu2),
        ("xielu", Self::Xielu),
    ];
}
