//! Which modules of a checkpoint are packed, and how. Read from `quantization` (mlx) in the config, or from another
//! library's `quantization_config`.

mod foreign;

use std::collections::BTreeMap;

use mlx::QuantMode;
use serde_json::{Map, Value};

use crate::config::ConfigError;

pub use foreign::{Foreign, TernaryScale, ZeroPoints};

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
    /// The format of another library that the published tensors are in.
    pub foreign: Option<Foreign>,
}

impl Quantization {
    /// Reads `quantization`, or a `quantization_config`, which a multimodal model may have in its `text_config`. A format
    /// that cannot be converted is refused by its name.
    pub fn read(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        let text = config.get("text_config").and_then(Value::as_object);
        let found = section_of(config, "").or_else(|| section_of(text?, "text_config."));
        let Some((field, value)) = found else { return Ok(Self::default()) };
        let Value::Object(section) = value else {
            return Err(ConfigError::Type { field, want: "an object", found: value.clone() });
        };
        // ModelOpt's own file has its settings in a section.
        let section = section.get("quantization").and_then(Value::as_object).unwrap_or(section);
        let ours = ["group_size", "bits"].iter().any(|name| section.contains_key(*name));
        if section.contains_key("quant_method") || section.contains_key("quant_algo") || !ours {
            let model_type = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
            let (format, default) = Foreign::read(&field, section, model_type)?;
            return Ok(Self { default, by_path: BTreeMap::new(), foreign: Some(format) });
        }
        Self::read_ours(&field, section)
    }

    fn read_ours(field: &str, section: &Map<String, Value>) -> Result<Self, ConfigError> {
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
        Ok(Self { default: Some(default), by_path, foreign: None })
    }

    /// The packing of the module at `path`, if the config says one.
    pub fn at(&self, path: &str) -> Option<QuantizationChoice> {
        self.by_path.get(path).copied().unwrap_or(self.default)
    }

    /// As a list of models shows it: `4-bit`, `mxfp8`, with a plus where layers differ; of formats whose weights become
    /// floats, the format.
    pub fn label(&self) -> Option<String> {
        let Some(default) = self.default else {
            return self.foreign.map(|format| format.label().to_owned());
        };
        let mixed = self.by_path.values().flatten().any(|choice| *choice != default);
        let label = match default.mode {
            QuantMode::Affine => format!("{}-bit", default.bits),
            other => other.name().to_owned(),
        };
        Some(if mixed { format!("{label}+") } else { label })
    }
}

/// The section about quantization and its dotted path.
fn section_of<'a>(config: &'a Map<String, Value>, prefix: &str) -> Option<(String, &'a Value)> {
    let present = |field: &str| {
        let value = config.get(field).filter(|value| !value.is_null());
        value.map(|value| (format!("{prefix}{field}"), value))
    };
    present("quantization").or_else(|| present("quantization_config"))
}

const FIELDS: &[&str] = &["group_size", "bits", "mode"];
const MODES: [QuantMode; 4] = [QuantMode::Affine, QuantMode::Mxfp4, QuantMode::Mxfp8, QuantMode::Nvfp4];

impl QuantizationChoice {
    fn read(at: &str, section: &Map<String, Value>) -> Result<Self, ConfigError> {
        let name = section.get("mode").and_then(Value::as_str).unwrap_or("affine");
        let mode = QuantMode::from_name(name).ok_or_else(|| ConfigError::Unsupported {
            field: format!("{at}.mode"),
            found: name.to_owned(),
            supported: MODES.map(QuantMode::name).join(", "),
        })?;
        let absent = Self::default_of(mode);
        let number = |field: &str, absent: i32, known: &[i32]| {
            let value = section.get(field).filter(|value| !value.is_null());
            let found = value.map_or(Some(i64::from(absent)), Value::as_i64);
            let found = found.and_then(|number| i32::try_from(number).ok());
            found.filter(|number| known.contains(number)).ok_or_else(|| ConfigError::Unsupported {
                field: format!("{at}.{field}"),
                found: value.map_or_else(String::new, Value::to_string),
                supported: known.iter().map(i32::to_string).collect::<Vec<_>>().join(", "),
            })
        };
        let (groups, widths) = Self::sizes(mode);
        let (group, bits) =
            (number("group_size", absent.group, groups)?, number("bits", absent.bits, widths)?);
        Ok(Self { group, bits, mode })
    }

    /// mlx-lm's packing in this mode where no number is given.
    pub fn default_of(mode: QuantMode) -> Self {
        let (group, bits) = match mode {
            QuantMode::Affine => (64, 4),
            QuantMode::Mxfp4 => (32, 4),
            QuantMode::Mxfp8 => (32, 8),
            QuantMode::Nvfp4 => (16, 4),
        };
        Self { group, bits, mode }
    }

    /// The sizes of groups and the bits that MLX has in this mode.
    pub fn sizes(mode: QuantMode) -> (&'static [i32], &'static [i32]) {
        match mode {
            QuantMode::Affine => (&[32, 64, 128], &[2, 3, 4, 5, 6, 8]),
            QuantMode::Mxfp4 => (&[32], &[4]),
            QuantMode::Mxfp8 => (&[32], &[8]),
            QuantMode::Nvfp4 => (&[16], &[4]),
        }
    }

    /// The packing that weights with so many inputs have by the shapes of their words and scales, if it is one of MLX's.
    pub(crate) fn of_shapes(inputs: usize, words: usize, groups: usize, mode: StoredScales) -> Option<Self> {
        let exact = |whole: usize, part: usize| {
            (part > 0 && whole.is_multiple_of(part))
                .then(|| whole / part)
                .and_then(|size| size.try_into().ok())
        };
        let (bits, group): (i32, i32) = (exact(words.checked_mul(32)?, inputs)?, exact(inputs, groups)?);
        let fits = |mode: &QuantMode| {
            let (groups, widths) = Self::sizes(*mode);
            groups.contains(&group) && widths.contains(&bits)
        };
        let mode = match mode {
            StoredScales::Floats => Some(QuantMode::Affine).filter(fits),
            StoredScales::Bytes => MODES.into_iter().skip(1).find(fits),
        }?;
        Some(Self { group, bits, mode })
    }
}

impl std::fmt::Display for QuantizationChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let Self { group, bits, mode } = self;
        match mode {
            QuantMode::Affine => write!(f, "{bits} bits in groups of {group}"),
            other => f.write_str(other.name()),
        }
    }
}

/// What the scales of a packed tensor are: floats in the affine mode, else bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredScales {
    Floats,
    Bytes,
}
