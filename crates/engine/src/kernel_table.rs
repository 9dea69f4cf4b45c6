//! Our GPU kernels at the shapes of some models, beside MLX's operations: what `omnibus doctor --kernels` prints.

use mlx::Dtype;
use omnibus_model::families;
use omnibus_model::kernel_check::{self, KernelCheck, Measure};
use serde_json::{Map, Value, json};

use crate::error::StartError;

/// One kernel at one shape.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelRow {
    /// The model whose shape it is.
    pub model: &'static str,
    /// Error and times.
    pub check: KernelCheck,
    /// The part of the read rate that it reaches, if times were measured.
    pub share: Option<f64>,
}

/// The rows, and the device's read rate in bytes a second.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelTable {
    /// Every kernel at every shape.
    pub rows: Vec<KernelRow>,
    /// Measured in the same run.
    pub read_rate: f64,
}

/// Shapes: hidden, MLP width, heads, key heads, head width, and the family.
const MODELS: &[(&str, [usize; 5], &str)] = &[
    ("Qwen3-0.6B", [1024, 3072, 16, 8, 128], "qwen3"),
    ("Qwen3-4B", [2560, 9728, 32, 8, 128], "qwen3"),
    ("Llama-3.1-8B", [4096, 14336, 32, 8, 128], "llama"),
    ("Qwen3-30B-A3B", [2048, 768, 32, 4, 128], "qwen3_moe"),
    ("Gemma-3-4B-like", [2560, 10240, 8, 4, 256], "gemma3_text"),
];

/// Measures every kernel on the default GPU. Fails without a GPU.
pub fn kernel_table() -> Result<KernelTable, StartError> {
    if !mlx::gpu::available() {
        return Err(StartError::new("there is no GPU with kernels of ours"));
    }
    let read_rate = kernel_check::read_rate().map_err(StartError::new)?;
    let mut rows = Vec::new();
    for (model, sizes, family) in MODELS {
        let blueprint = families::read(&config(*sizes, family)).map_err(StartError::new)?;
        for check in kernel_check::check(&blueprint, Dtype::Bf16, Measure::Table) {
            let share = check.times.map(|times| times.bytes / (times.ours_us * 1e-6) / read_rate);
            rows.push(KernelRow { model, check, share });
        }
        mlx::memory::clear_cache();
    }
    Ok(KernelTable { rows, read_rate })
}

/// A config of two layers; for Gemma of a window and a full layer, for a mixture of experts of 128.
fn config([hidden, width, heads, kv_heads, head_dim]: [usize; 5], family: &str) -> Map<String, Value> {
    let mut config = json!({
        "model_type": family, "vocab_size": 32000, "hidden_size": hidden, "num_hidden_layers": 2,
        "intermediate_size": width, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "head_dim": head_dim, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "max_position_embeddings": 40960,
        "tie_word_embeddings": true,
    });
    if family == "gemma3_text" {
        config["sliding_window"] = json!(1024);
        config["sliding_window_pattern"] = json!(2);
        config["query_pre_attn_scalar"] = json!(256);
    }
    if family == "qwen3_moe" {
        config["num_experts"] = json!(128);
        config["num_experts_per_tok"] = json!(8);
        config["moe_intermediate_size"] = json!(width);
        config["norm_topk_prob"] = json!(true);
    }
    match config {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_a_model_we_know() {
        for (model, sizes, family) in MODELS {
            assert!(families::read(&config(*sizes, family)).is_ok(), "{model}");
        }
    }
}
