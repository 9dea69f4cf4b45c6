//! Fields that follow from more than one key.

use serde_json::{Value, json};

use super::writer::{File, base};

fn config(file: File) -> Value {
    let file = file.floats_tensor("token_embd.weight", &[8, 64], &[0.5; 512]).write();
    Value::Object(file.gguf().config().unwrap())
}

#[test]
fn llama3s_factors_become_its_scaling() {
    let wavelength = |pair: usize| 100_000_f64.powf(2.0 * pair as f64 / 32.0) * 2.0 * std::f64::consts::PI;
    let factor = |wavelength: f64| match wavelength {
        short if short < 2048.0 => 1.0,
        long if long > 8192.0 => 8.0,
        middle => {
            let smooth = (8192.0 / middle - 1.0) / 3.0;
            1.0 / ((1.0 - smooth) / 8.0 + smooth)
        }
    };
    let factors: Vec<f32> = (0..16).map(|pair| factor(wavelength(pair)) as f32).collect();
    let scaled = config(base("llama").floats_tensor("rope_freqs.weight", &[16], &factors));
    let expected = json!({
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192
    });
    assert_eq!(scaled["rope_scaling"], expected);
}

#[test]
fn a_rotation_is_scaled_as_metadata_says() {
    assert_eq!(config(base("qwen3"))["rope_scaling"], Value::Null);
    let linear =
        base("qwen3").text("qwen3.rope.scaling.type", "linear").float("qwen3.rope.scaling.factor", 4.0);
    assert_eq!(config(linear)["rope_scaling"], json!({ "rope_type": "linear", "factor": 4.0 }));
    let yarn = base("qwen3")
        .text("qwen3.rope.scaling.type", "yarn")
        .float("qwen3.rope.scaling.factor", 4.0)
        .number("qwen3.rope.scaling.original_context_length", 32);
    assert_eq!(config(yarn)["rope_scaling"]["original_max_position_embeddings"], 32);
    let long = base("phi3")
        .number("phi3.rope.scaling.original_context_length", 64)
        .floats_tensor("rope_factors_long.weight", &[16], &[2.0; 16])
        .floats_tensor("rope_factors_short.weight", &[16], &[1.0; 16]);
    let long = config(long);
    assert_eq!(
        (&long["rope_scaling"]["type"], &long["original_max_position_embeddings"]),
        (&json!("longrope"), &json!(64))
    );
}

#[test]
fn experts_and_windows_have_their_fields() {
    let experts = base("qwen3moe")
        .number("qwen3moe.expert_count", 4)
        .number("qwen3moe.expert_used_count", 2)
        .number("qwen3moe.expert_feed_forward_length", 32);
    let experts = config(experts);
    assert_eq!((&experts["model_type"], &experts["num_experts"]), (&json!("qwen3_moe"), &json!(4)));
    let mixtral = base("llama").number("llama.expert_count", 4).number("llama.expert_used_count", 2);
    assert_eq!(config(mixtral)["model_type"], "mixtral");
    let gemma = config(base("gemma3").number("gemma3.attention.sliding_window", 16));
    let fields = ["sliding_window", "sliding_window_pattern", "query_pre_attn_scalar"]
        .map(|field| gemma[field].clone());
    assert_eq!(json!(fields), json!([16, 6, 32]));
}

#[test]
fn files_of_one_architecture_are_of_several_models() {
    let of = |file: File| config(file)["model_type"].clone();
    let small = base("mistral3");
    let ministral = small
        .clone()
        .float("mistral3.attention.temperature_scale", 0.1)
        .text("mistral3.rope.scaling.type", "yarn")
        .float("mistral3.rope.scaling.factor", 16.0)
        .number("mistral3.rope.scaling.original_context_length", 16)
        .float("mistral3.rope.scaling.yarn_log_multiplier", 1.0);
    assert_eq!((of(small), of(ministral)), (json!("mistral"), json!("ministral3")));
    let latent = |gate: u32| {
        let keys = [
            ("attention.key_length_mla", 24),
            ("attention.value_length_mla", 16),
            ("attention.kv_lora_rank", 32),
            ("rope.dimension_count", 8),
            ("expert_count", 4),
            ("expert_used_count", 2),
            ("expert_feed_forward_length", 32),
            ("expert_gating_func", gate),
        ];
        keys.iter()
            .fold(base("deepseek2"), |file, (key, value)| file.number(&format!("deepseek2.{key}"), *value))
    };
    assert_eq!((of(latent(1)), of(latent(2))), (json!("deepseek_v2"), json!("deepseek_v3")));
    let scores = config(latent(1));
    assert_eq!((&scores["topk_method"], &scores["q_lora_rank"]), (&json!("greedy"), &Value::Null));
}

#[test]
fn windows_come_by_a_period_or_layer_by_layer() {
    let cohere = |windows: &[i32]| {
        let file = base("cohere2")
            .float("cohere2.attention.layer_norm_epsilon", 1e-5)
            .float("cohere2.logit_scale", 0.25)
            .number("cohere2.attention.sliding_window", 16);
        if windows.is_empty() {
            file
        } else {
            file.integers("cohere2.attention.sliding_window_pattern", windows)
        }
    };
    assert_eq!(config(cohere(&[]))["sliding_window_pattern"], 2);
    assert_eq!(config(cohere(&[0]))["sliding_window_pattern"], 1);
}

#[test]
fn rows_of_glm_with_sections_are_halves() {
    let glm = base("glm4").number("glm4.rope.dimension_count", 16);
    assert_eq!(config(glm.clone())["rope_traditional"], true);
    let seeing = config(glm.integers("glm4.rope.dimension_sections", &[2, 3, 3, 0]));
    assert_eq!((&seeing["rope_traditional"], &seeing["partial_rotary_factor"]), (&json!(false), &json!(0.5)));
}
