//! The memory plan that a model would have on a Mac that is not there.
//!
//! Invariant: no weight is computed and no limit is set.

use mlx::device::Device;
use omnibus_model::{Kernels, Model, RandomWeights, Source};

use super::capacity::Capacity;
use crate::command_buffers;
use crate::device_memory::mac::Mac;
use crate::error::StartError;
use crate::memory_plan::MemoryPlan;
use crate::settings::{Settings, WiredLimit};

/// A model's memory on a Mac, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedMemory {
    /// How the memory is divided.
    pub plan: MemoryPlan,
    /// Freed buffers that MLX keeps for reuse.
    pub cache_bytes: Option<u64>,
    /// What `--wired-limit weights` keeps resident; `None` on systems that have no such limit.
    pub wired_bytes: Option<u64>,
    /// Tokens of a step before any is measured: no command buffer should take longer than half a second.
    pub first_step_tokens: usize,
}

/// The plans of a model on each of these Macs, or why it does not fit.
pub fn plan_memory(
    weights: &RandomWeights,
    settings: &Settings,
    macs: &[Mac],
) -> Result<Vec<Result<PlannedMemory, StartError>>, StartError> {
    let source = Source::Random(weights.clone());
    mlx::on_planned_mac(|| {
        let model = Model::load(&source, Kernels::fastest()).map_err(StartError::new)?;
        Ok(macs.iter().map(|mac| planned(&source, &model, settings, mac)).collect())
    })
}

fn planned(
    source: &Source,
    model: &Model,
    settings: &Settings,
    mac: &Mac,
) -> Result<PlannedMemory, StartError> {
    let device = mac.device(settings.memory_limit);
    MemoryPlan::check_weights(source, settings, &device)?;
    let weights_bytes = source.weight_bytes().map_err(StartError::new)?;
    let before = MemoryPlan { weights_bytes, ..MemoryPlan::before_kv(model, None, settings, &device) };
    let plan = Capacity::within(before, &device, (model, None), settings)?.memory;
    let limits = device.allocator_limits(&plan, WiredLimit::Weights);
    let step_time = command_buffers::step_time(mac.chip(), model.network());
    let most = settings.on(Device::Gpu).step_tokens();
    let first_step_tokens = command_buffers::first_step_tokens(Some(step_time), most);
    Ok(PlannedMemory {
        plan,
        cache_bytes: limits.cache_bytes,
        wired_bytes: limits.wired_bytes,
        first_step_tokens,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_memory::mac::MACS;

    /// 4.5 GB in four bits.
    const CONFIG: &str = r#"{
        "model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "max_position_embeddings": 131072, "tie_word_embeddings": false, "torch_dtype": "bfloat16"
    }"#;

    #[test]
    fn a_plan_keeps_to_the_macs_limit() {
        let weights = RandomWeights::new("llama", CONFIG, Some(4)).unwrap();
        let plans = plan_memory(&weights, &Settings::default(), MACS).unwrap();
        let mut tokens = 0;
        for (mac, planned) in MACS.iter().zip(plans) {
            let Ok(PlannedMemory { plan, wired_bytes, .. }) = planned else {
                assert_eq!(mac.memory_gib, 8, "{planned:?}");
                continue;
            };
            let limit = plan.limit.as_ref().unwrap().bytes;
            assert!(plan.expected_peak_bytes() + plan.headroom_bytes <= limit, "{}: {plan}", mac.name);
            assert_eq!(wired_bytes, (mac.macos >= 15).then_some(plan.weights_bytes), "{}", mac.name);
            assert!(plan.kv_tokens >= tokens, "{}: more memory holds no fewer tokens", mac.name);
            tokens = plan.kv_tokens;
        }
    }
}
