//! A gated MLP: `down(act(gate(x)) · up(x))`.

use mlx::Array;

use super::{Fused, Linear};
use crate::weights::Store;
use crate::{Activation, GatedMlp, Kernels, LoadError};

/// A gated MLP with its two input projections merged.
pub(crate) struct GatedBlock {
    gate_up: Fused,
    down: Linear,
    act: Activation,
}

impl GatedBlock {
    pub(crate) fn load(spec: &GatedMlp, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let gate = store.linear(&format!("{path}.gate_proj"))?;
        let up = store.linear(&format!("{path}.up_proj"))?;
        let down = store.linear(&format!("{path}.down_proj"))?;
        Ok(Self { gate_up: Fused::new(vec![gate, up])?, down, act: spec.act })
    }

    pub(crate) fn arrays(&self) -> Vec<&Array> {
        self.gate_up.arrays().into_iter().chain(self.down.arrays()).collect()
    }

    pub(crate) fn forward(&self, x: &Array, kernels: Kernels) -> mlx::Result<Array> {
        let gate_up = self.gate_up.forward(x, kernels)?;
        self.down.forward(&self.act.gate(&gate_up, kernels)?, kernels)
    }
}

impl Activation {
    /// `[.., 2 · width]`, the gate before what it gates → `act(gate) · up`, `[.., width]`.
    fn gate(self, gate_up: &Array, kernels: Kernels) -> mlx::Result<Array> {
        if kernels == Kernels::Cpu {
            return mlx::cpu::gated(gate_up, self.cpu());
        }
        let width = gate_up.shape().last().copied().unwrap_or(0) / 2;
        match gate_up.split(&[width], -1)?.as_slice() {
            [gate, up] => self.gate_pair(gate, up, kernels),
            _ => Err(mlx::Error::new("a gate and what it gates")),
        }
    }

    /// `act(gate) · up`, of equal shapes.
    pub(crate) fn gate_pair(self, gate: &Array, up: &Array, kernels: Kernels) -> mlx::Result<Array> {
        if kernels == Kernels::Cpu {
            return mlx::cpu::gated2(gate, up, self.cpu());
        }
        let activated = match self {
            Self::Silu => gate.silu()?,
            Self::Gelu => gate.gelu()?,
            Self::GeluTanh => gate.gelu_tanh()?,
        };
        Ok(activated * up)
    }

    fn cpu(self) -> mlx::cpu::Act {
        match self {
            Self::Silu => mlx::cpu::Act::Silu,
            Self::Gelu => mlx::cpu::Act::Gelu,
            Self::GeluTanh => mlx::cpu::Act::GeluTanh,
        }
    }
}
