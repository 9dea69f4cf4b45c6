//! What a section `text_config` leaves out: Hugging Face saves no field of a nested config that equals its class's default.
//!
//! Source: transformers `models/llama`, `models/mistral`, `models/qwen2`, their configurations.

use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use crate::config::{Config, ConfigError};

/// Sizes by `model_type`.
fn table() -> &'static Map<String, Value> {
    static TABLE: OnceLock<Map<String, Value>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let of = |width: usize, kv_heads: usize, context: usize, vocab: usize| {
            json!({
                "hidden_size": 4096, "intermediate_size": width, "num_hidden_layers": 32,
                "num_attention_heads": 32, "num_key_value_heads": kv_heads, "max_position_embeddings": context,
                "vocab_size": vocab,
            })
        };
        let rows = [
            ("llama", of(11_008, 32, 2048, 32_000)),
            ("mistral", of(14_336, 8, 131_072, 32_000)),
            ("qwen2", of(22_016, 32, 32_768, 151_936)),
        ];
        rows.into_iter().map(|(model_type, sizes)| (model_type.to_owned(), sizes)).collect()
    })
}

/// The section with the sizes that it leaves out. One that says its width is taken to say all that differs from other models.
pub(crate) fn with_defaults<'a>(text: Config<'a>) -> Result<Config<'a>, ConfigError> {
    let model_type: Option<String> = text.opt("model_type")?;
    let has_sizes = text.opt::<usize>("hidden_size")?.is_some();
    let sizes =
        model_type.filter(|_| !has_sizes).and_then(|model_type| table().get(&model_type)?.as_object());
    Ok(match sizes {
        Some(sizes) => text.with_absent(sizes),
        None => text,
    })
}
