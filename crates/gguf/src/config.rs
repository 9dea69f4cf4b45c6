//! `config.json` and `generation_config.json` of a file's model.

use serde_json::{Map, Value, json};

use crate::architecture::Architecture;
use crate::error::Problem;
use crate::extra;
use crate::fields::{object, short};
use crate::head::Head;
use crate::metadata::{Metadata, required};
use crate::rotary::{self, RotaryTensors};
use crate::sizes::{Keys, Sizes};

/// The config of a model. `dtype`: of its floats, as configs name it.
pub fn of_model(
    head: &Head,
    architecture: &Architecture,
    rotary: &RotaryTensors,
    dtype: &str,
) -> Result<Map<String, Value>, Problem> {
    let metadata = Metadata(&head.metadata);
    let keys = Keys::new(metadata, architecture);
    let sizes = Sizes::read(keys)?;
    let embedding = head.tensors.iter().find(|tensor| tensor.name == "token_embd.weight");
    let vocabulary =
        required("token_embd.weight", embedding.and_then(|tensor| tensor.shape.first().copied()))?;
    let epsilon = architecture.epsilon;
    let eps = required(&keys.key(epsilon.key), keys.number(epsilon.key)?)?;
    let has = |name: &str| head.tensors.iter().any(|tensor| tensor.name == name);
    let mut config = object(json!({
        "architectures": [architecture.class],
        "model_type": architecture.model_type,
        "hidden_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "vocab_size": vocabulary,
        "rope_theta": keys.number("rope.freq_base")?.map_or(10_000.0, short),
        "max_position_embeddings": keys.size("context_length")?,
        "tie_word_embeddings": !has("output.weight"),
        "torch_dtype": dtype,
    }));
    // Models of experts alone have no other width.
    if keys.count("expert_count")?.unwrap_or(0) == 0 || keys.count("feed_forward_length")?.is_some() {
        config.insert("intermediate_size".to_owned(), Value::from(keys.size("feed_forward_length")?));
    }
    config.insert(epsilon.field.to_owned(), Value::from(short(eps)));
    rotary::add_to(&mut config, keys, &sizes, rotary)?;
    extra::add_to(&mut config, keys, &sizes, architecture.extra, &has)?;
    for name in ["bos", "eos"] {
        if let Some(id) = metadata.count(&format!("tokenizer.ggml.{name}_token_id"))? {
            config.insert(format!("{name}_token_id"), Value::from(id));
        }
    }
    Ok(config)
}
