//! Which modules of a checkpoint are packed, and how. Read from `quantization` (mlx) in the config.

use std::collections::BTreeMap;

use mlx::QuantMode;
use serde_json::{Map, Value};

use crate::ConfigError;

/// How one module's weight is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuantizationChoice {
    /// Elements that share a scale.
    pub group: i32,
    /// Bits per element.
    pub bits: i32,
    /// What the scales mean.
    pub mode: QuantMode,
}

/// The packing of every module: a default, and what differs by path. A module counts as packed when
/// the checkpoint has scales for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quantization {
    /// `None` when the config has no quantization.
    pub default: Option<QuantizationChoice>,
    /// By module path; `None` there means "not packed".
    pub by_path: BTreeMap<String, Option<QuantizationChoice>>,
}

const MODES: &[(&str, QuantMode)] = &[
    ("affine", QuantMode::Affine),
    ("mxfp4", QuantMode::Mxfp4),
    ("mxfp8", QuantMode::Mxfp8),
    ("nvfp4", QuantMode::Nvfp4),
];

impl Quantization {
    /// Reads `quantization`, or a `quantization_config` of the same shape. A format of another
    /// library (`quant_method`) is refused by its name.
    pub fn read(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        let present =
            |field| config.get(field).filter(|value: &&Value| !value.is_null()).map(|value| (field, value));
        let Some((field, value)) = present("quantization").or_else(|| present("quantization_config")) else {
            return Ok(Self::default());
        };
        let Value::Object(section) = value else {
            return Err(ConfigError::Type {
                field: field.to_owned(),
                want: "an object",
                found: value.clone(),
            });
        };
        let ours = ["group_size", "bits"].iter().any(|name| section.contains_key(*name));
        if section.contains_key("quant_method") || !ours {
            let name = |name: &str| section.get(name).and_then(Value::as_str);
            let found = name("quant_method")
                .or(name("quant_algo"))
                .or(name("format"))
                .unwrap_or("of another library");
            return Err(ConfigError::Unsupported {
                field: field.to_owned(),
                found: found.to_owned(),
                supported: "mlx's own (affine, mxfp4, mxfp8, nvfp4); convert the model with mlx_lm.convert"
                    .to_owned(),
            });
        }
        let default = QuantizationChoice::read(field, section)?;
        let mut by_path = BTreeMap::new();
        for (path, value) in section {
            let choice = match value {
                Value::Bool(false) => None,
                Value::Bool(true) => Some(default),
                Value::Object(section) => {
                    Some(QuantizationChoice::read(&format!("{field}.{path}"), section)?)
                }
                _ if FIELDS.contains(&path.as_str()) => continue,
                other => {
                    let field = format!("{field}.{path}");
                    return Err(ConfigError::Type {
                        field,
                        want: "false or an object",
                        found: other.clone(),
                    });
                }
            };
            by_path.insert(path.clone(), choice);
        }
        Ok(Self { default: Some(default), by_path })
    }

    /// The packing of the module at `path`, if the config says one.
    pub fn at(&self, path: &str) -> Option<QuantizationChoice> {
        self.by_path.get(path).copied().unwrap_or(self.default)
    }

    /// As a list of models shows it: `4-bit`, `mxfp8`, with a plus where layers differ.
    pub fn label(&self) -> Option<String> {
        let default = self.default?;
        let mixed = self.by_path.values().flatten().any(|choice| *choice != default);
        let label = match default.mode {
            QuantMode::Affine => format!("{}-bit", default.bits),
            _ => MODES.iter().find(|(_, mode)| *mode == default.mode)?.0.to_owned(),
        };
        Some(if mixed { format!("{label}+") } else { label })
    }
}

const FIELDS: &[&str] = &["group_size", "bits", "mode"];

impl QuantizationChoice {
    fn read(at: &str, section: &Map<String, Value>) -> Result<Self, ConfigError> {
        let name = section.get("mode").and_then(Value::as_str).unwrap_or("affine");
        let known = MODES.iter().find(|(known, _)| *known == name).map(|(_, mode)| *mode);
        let mode = known.ok_or_else(|| ConfigError::Unsupported {
            field: format!("{at}.mode"),
            found: name.to_owned(),
            supported: MODES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
        })?;
        let (group, bits) = match mode {
            QuantMode::Affine => (64, 4),
            QuantMode::Mxfp4 => (32, 4),
            QuantMode::Mxfp8 => (32, 8),
            QuantMode::Nvfp4 => (16, 4),
        };
        let number = |field: &str, absent: i64, known: &[i64]| {
            let value = section.get(field).filter(|value| !value.is_null());
            let found = value.map_or(Some(absent), Value::as_i64);
            found.filter(|number| known.contains(number)).ok_or_else(|| ConfigError::Unsupported {
                field: format!("{at}.{field}"),
                found: value.map_or_else(String::new, Value::to_string),
                supported: known.iter().map(i64::to_string).collect::<Vec<_>>().join(", "),
            })
        };
        let (groups, widths): (&[i64], &[i64]) = match mode {
            QuantMode::Affine => (&[32, 64, 128], &[2, 3, 4, 5, 6, 8]),
            QuantMode::Mxfp4 => (&[32], &[4]),
            QuantMode::Mxfp8 => (&[32], &[8]),
            QuantMode::Nvfp4 => (&[16], &[4]),
        };
        let group = number("group_size", group, groups)? as i32;
        let bits = number("bits", bits, widths)? as i32;
        Ok(Self { group, bits, mode })
    }
}
