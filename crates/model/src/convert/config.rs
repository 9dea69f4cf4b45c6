//! The config of a converted checkpoint.

use std::collections::BTreeMap;

use mlx::Dtype;
use serde_json::{Map, Value, json};

use super::packing::Module;
use crate::quantization::QuantizationChoice;

/// Fields that describe what mlx-lm does not keep.
const DROPPED: &[&str] = &["_name_or_path", "vision_config", "quantization", "quantization_config"];

/// The type of floats that the config names.
pub(super) fn dtype(config: &Map<String, Value>) -> Option<Dtype> {
    let text = config.get("text_config");
    let name = config.get("torch_dtype").or_else(|| text?.get("dtype"))?.as_str()?;
    Dtype::from_name(name).filter(|dtype| matches!(dtype, Dtype::F16 | Dtype::Bf16 | Dtype::F32))
}

/// The config with another quantization, fields in order.
pub(super) fn converted(
    mut config: Map<String, Value>,
    quantization: Option<&Map<String, Value>>,
) -> Map<String, Value> {
    config.retain(|field, _| !DROPPED.contains(&field.as_str()));
    if let Some(Value::Object(text)) = config.get_mut("text_config") {
        text.retain(|field, _| !matches!(field.as_str(), "quantization" | "quantization_config"));
    }
    if let Some(section) = quantization {
        config.insert("quantization".to_owned(), Value::Object(section.clone()));
        config.insert("quantization_config".to_owned(), Value::Object(section.clone()));
    }
    config.into_iter().collect::<BTreeMap<_, _>>().into_iter().collect()
}

/// What the section about quantization will say.
#[derive(Default)]
pub(super) struct Recorded {
    default: Option<QuantizationChoice>,
}

impl Recorded {
    /// Of a checkpoint with this packing.
    pub(super) fn new(default: Option<QuantizationChoice>) -> Self {
        Self { default }
    }

    /// The packing of modules that are packed now, unless some were before.
    pub(super) fn set_default(&mut self, choice: QuantizationChoice) {
        self.default.get_or_insert(choice);
    }

    /// The section: a default, and what differs by module.
    pub(super) fn section(&self, modules: &BTreeMap<String, Module>) -> Option<Map<String, Value>> {
        let packed = || {
            modules.iter().filter_map(|(name, module)| {
                Some((name.strip_suffix(".weight").unwrap_or(name), module.choice?))
            })
        };
        let default = self.default.or_else(|| packed().next().map(|(_, choice)| choice))?;
        let mut section = fields(default);
        for (path, choice) in packed().filter(|(_, choice)| *choice != default) {
            section.insert(path.to_owned(), Value::Object(fields(choice)));
        }
        Some(section)
    }
}

fn fields(choice: QuantizationChoice) -> Map<String, Value> {
    let QuantizationChoice { group, bits, mode } = choice;
    let mut fields = Map::new();
    fields.insert("group_size".to_owned(), json!(group));
    fields.insert("bits".to_owned(), json!(bits));
    fields.insert("mode".to_owned(), json!(mode.name()));
    fields
}
