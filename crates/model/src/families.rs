//! One file per family, one row per `model_type`.
//!
//! To add a family: write `families/<name>.rs` with one `read` function, add its row to
//! [`FAMILIES`], add its golden fixtures to `tests/fixtures`. If it needs a computation no variant
//! describes, add the variant first, on its own.

mod gemma3;
mod llama;
mod mamba2;
mod mixtral;
mod olmo2;
mod parts;
mod qwen2;
mod qwen3;
mod qwen3_next;

use serde_json::{Map, Value};

use crate::{Blueprint, Config, ConfigError};

/// How one `model_type` is read.
pub struct Family {
    /// As in `config.json`.
    pub model_type: &'static str,
    /// Reads every field it needs from a config and describes the network.
    pub read: fn(&Config) -> Result<Blueprint, ConfigError>,
    /// What a list of models says about it.
    pub about: &'static str,
}

/// Every architecture this server runs, in the order the documentation lists them.
pub const FAMILIES: &[Family] = &[
    Family {
        model_type: "llama",
        read: llama::read,
        about: "Llama 1 to 3.3 and the many that copy its shape; all rope scalings, sliding layers",
    },
    Family { model_type: "mistral", read: llama::read_mistral, about: "Mistral 7B, Small, Devstral" },
    Family { model_type: "mixtral", read: mixtral::read, about: "Mixtral 8x7B and 8x22B" },
    Family { model_type: "olmo2", read: olmo2::read, about: "OLMo 2, 1B to 32B" },
    Family { model_type: "qwen2", read: qwen2::read, about: "Qwen2 and Qwen2.5" },
    Family { model_type: "qwen3", read: qwen3::read, about: "Qwen3, dense" },
    Family { model_type: "qwen3_moe", read: qwen3::read, about: "Qwen3 with routed experts" },
    Family {
        model_type: "qwen3_next",
        read: qwen3_next::read,
        about: "Qwen3-Next: gated delta rule and gated attention, with routed experts",
    },
    Family { model_type: "gemma3_text", read: gemma3::read, about: "Gemma 3, text only" },
    Family { model_type: "mamba2", read: mamba2::read, about: "Mamba-2, Codestral Mamba" },
];

/// The blueprint of a checkpoint's `config.json`. Fails if a field is not read, or if sizes
/// contradict each other.
pub fn read(fields: &Map<String, Value>) -> Result<Blueprint, ConfigError> {
    let cfg = Config::new(fields);
    let choices: Vec<_> = FAMILIES.iter().map(|family| (family.model_type, family.read)).collect();
    let blueprint = cfg.choice("model_type", &choices)?(&cfg)?;
    cfg.finish()?;
    blueprint.validate()?;
    Ok(blueprint)
}
