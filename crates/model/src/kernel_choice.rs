//! Which GPU kernels a model uses, as a value: found by the check when a model is loaded, and obeyed by another process that
//! must compute the same.

use serde::{Deserialize, Serialize};

/// A kernel, or several that are used together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuKernel {
    /// Rotation and write, attention of decoding rows and of chunks.
    Attention,
    /// Attention of chunks by warpgroups. Without it, simd groups compute it.
    WarpgroupAttention,
    /// Norms, and sums with them.
    AddNorm,
    /// Rows of embeddings.
    Embed,
    /// Activations, gates and sums.
    Gated,
    /// Products with weights.
    Linear,
    /// Choice of experts, products with their weights, and the sum of the results.
    Experts,
    /// Choice of tokens.
    Choose,
    /// Convolutions and recurrences with states.
    Recurrence,
}

/// The kernels that are used. MLX's operations compute what the others would.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelChoice {
    /// In the order in which they failed.
    off: Vec<GpuKernel>,
}

impl KernelChoice {
    /// Whether a kernel is used.
    pub fn uses(&self, kernel: GpuKernel) -> bool {
        !self.off.contains(&kernel)
    }

    /// Kernels that are not used.
    pub fn off(&self) -> &[GpuKernel] {
        &self.off
    }

    /// This choice without one kernel.
    #[must_use]
    pub fn without(mut self, kernel: GpuKernel) -> Self {
        if self.uses(kernel) {
            self.off.push(kernel);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_crosses_to_another_process_as_it_is() {
        let choice =
            KernelChoice::default().without(GpuKernel::Linear).without(GpuKernel::WarpgroupAttention);
        assert!(!choice.uses(GpuKernel::Linear) && choice.uses(GpuKernel::Attention));
        assert_eq!(choice.clone().without(GpuKernel::Linear), choice, "it is off already");
        let sent = serde_json::to_string(&choice).unwrap();
        assert_eq!(sent, r#"{"off":["linear","warpgroup_attention"]}"#);
        assert_eq!(serde_json::from_str::<KernelChoice>(&sent).unwrap(), choice);
    }
}
