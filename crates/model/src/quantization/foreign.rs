//! How another library packed a checkpoint: read from `quantization_config` with a `quant_method`.

use mlx::QuantMode;
use serde_json::{Map, Value};

use super::QuantizationChoice;
use crate::config::ConfigError;

/// A format of another library. Its tensors become MLX's when they are loaded, or floats where MLX has no such format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// AutoAWQ: `qweight` `[in, out · 4 / 32]` in an order of its own.
    Awq,
    /// AutoGPTQ and GPTQModel: `qweight` `[in · bits / 32, out]`.
    Gptq {
        /// Bits per element.
        bits: i32,
        /// What `qzeros` hold.
        zeros: ZeroPoints,
    },
    /// llm-compressor and vLLM: `weight_packed`, or `weight` of bytes, with `weight_scale`.
    CompressedTensors {
        /// Bits of packed integers without a `weight_shape`.
        bits: i32,
    },
    /// Bytes in E4M3 with scales for blocks, rows or whole weights, or integers of 8 bits.
    Fp8 {
        /// Outputs and inputs of a block.
        block: [i32; 2],
    },
    /// `X_blocks` and `X_scales` of gpt-oss.
    Mxfp4,
    /// NVIDIA's ModelOpt: 4-bit floats with two levels of scales, or FP8.
    ModelOpt,
    /// Ternary weights, four outputs in a byte.
    Bitnet {
        /// What `weight_scale` does.
        scale: TernaryScale,
    },
}

/// What AutoGPTQ's `qzeros` hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroPoints {
    /// The zero points.
    Whole,
    /// One less (`checkpoint_format` `gptq`).
    LessOne,
}

/// What BitNet's `weight_scale` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TernaryScale {
    /// Weights are multiplied by it.
    Multiplies,
    /// Weights are divided by it.
    Divides,
}

/// Published block scales are of so many outputs and inputs unless the config says otherwise.
const BLOCK: [i32; 2] = [128, 128];

const SUPPORTED: &str = "mlx's own (affine, mxfp4, mxfp8, nvfp4), awq, gptq, compressed-tensors, fp8, fbgemm_fp8, mxfp4, \
     mxfp8, modelopt, bitnet; convert other formats with the library that made them";

impl Foreign {
    /// Reads a section that is not MLX's, and the packing that most modules will have.
    pub(super) fn read(
        field: &str,
        section: &Map<String, Value>,
        model_type: &str,
    ) -> Result<(Self, Option<QuantizationChoice>), ConfigError> {
        let text = |name: &str| section.get(name).and_then(Value::as_str);
        let unsupported = |name: &str, found: &str, supported: &str| ConfigError::Unsupported {
            field: format!("{field}{name}"),
            found: found.to_owned(),
            supported: supported.to_owned(),
        };
        let method = text("quant_method").or(text("quant_algo").map(|_| "modelopt"));
        Ok(match method {
            Some("awq") => match text("version").map(str::to_lowercase).as_deref() {
                None | Some("gemm") => (Self::Awq, Some(affine(section, &[4]).map_err(in_field(field))?)),
                Some(other) => return Err(unsupported(".version", other, "gemm")),
            },
            Some("gptq") => {
                let choice = affine(section, &[2, 3, 4, 8]).map_err(in_field(field))?;
                let whole = text("checkpoint_format") == Some("gptq_v2");
                let zeros = if whole { ZeroPoints::Whole } else { ZeroPoints::LessOne };
                (Self::Gptq { bits: choice.bits, zeros }, Some(choice))
            }
            Some("compressed-tensors") => compressed(field, section)?,
            Some("fp8" | "fbgemm_fp8") => (Self::Fp8 { block: block(section) }, None),
            Some("mxfp8") => (Self::Fp8 { block: [1, 32] }, Some(choice(32, 8, QuantMode::Mxfp8))),
            Some("mxfp4") => (Self::Mxfp4, Some(choice(32, 4, QuantMode::Mxfp4))),
            Some("modelopt") => (Self::ModelOpt, None),
            Some("bitnet") => {
                let offline = text("linear_class") == Some("autobitlinear")
                    || section.contains_key("offline_quantization")
                    || model_type == "bitnet";
                let scale = if offline { TernaryScale::Multiplies } else { TernaryScale::Divides };
                (Self::Bitnet { scale }, None)
            }
            other => {
                let found = other.or(text("format")).unwrap_or("of another library");
                return Err(unsupported("", found, SUPPORTED));
            }
        })
    }

    /// As a list of models shows it.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Awq => "awq",
            Self::Gptq { .. } => "gptq",
            Self::CompressedTensors { .. } => "compressed-tensors",
            Self::Fp8 { .. } => "fp8",
            Self::Mxfp4 => "mxfp4",
            Self::ModelOpt => "modelopt",
            Self::Bitnet { .. } => "bitnet",
        }
    }

    /// What tensors are when the config does not say: `names` and whether each is of bytes.
    pub(crate) fn implied<'a>(mut names: impl Iterator<Item = &'a str> + Clone) -> Option<Self> {
        if names.clone().any(|name| name.ends_with(".weight_scale_inv")) {
            return Some(Self::Fp8 { block: BLOCK });
        }
        let ternary = names.any(|name| name.ends_with(".weight_scale"));
        ternary.then_some(Self::Bitnet { scale: TernaryScale::Multiplies })
    }
}

fn choice(group: i32, bits: i32, mode: QuantMode) -> QuantizationChoice {
    QuantizationChoice { group, bits, mode }
}

fn in_field(field: &str) -> impl Fn((&'static str, String, String)) -> ConfigError + '_ {
    move |(name, found, supported)| ConfigError::Unsupported {
        field: format!("{field}.{name}"),
        found,
        supported,
    }
}

/// `bits` and `group_size`, where −1 is one group for all inputs.
fn affine(
    section: &Map<String, Value>,
    widths: &[i64],
) -> Result<QuantizationChoice, (&'static str, String, String)> {
    let number =
        |name: &str, absent: i64| section.get(name).map_or(Some(absent), Value::as_i64).unwrap_or(i64::MIN);
    let bits = number("bits", 4);
    if !widths.contains(&bits) {
        let widths: Vec<String> = widths.iter().map(i64::to_string).collect();
        return Err(("bits", bits.to_string(), widths.join(", ")));
    }
    let group = number("group_size", 128);
    if !(group == -1 || group > 0 && group % 32 == 0 && group < 1 << 24) {
        return Err(("group_size", group.to_string(), "-1 or a multiple of 32".to_owned()));
    }
    // Groups that MLX lacks become several of 128, 64 or 32.
    let group = [128, 64, 32].into_iter().find(|size| group == -1 || group % size == 0).unwrap_or(32);
    Ok(choice(group as i32, bits as i32, QuantMode::Affine))
}

fn block(section: &Map<String, Value>) -> [i32; 2] {
    let sizes = section.get("weight_block_size").and_then(Value::as_array);
    let size = |index: usize| sizes?.get(index)?.as_i64()?.try_into().ok().filter(|size| *size > 0);
    [size(0).unwrap_or(BLOCK[0]), size(1).unwrap_or(BLOCK[1])]
}

fn compressed(
    field: &str,
    section: &Map<String, Value>,
) -> Result<(Foreign, Option<QuantizationChoice>), ConfigError> {
    let format = section.get("format").and_then(Value::as_str).unwrap_or("");
    let mut groups =
        section.get("config_groups").and_then(Value::as_object).into_iter().flat_map(Map::values);
    let weights = groups.find_map(|group| group.get("weights"));
    let number = |name: &str| weights?.get(name)?.as_i64()?.try_into().ok();
    let bits: i32 = number("num_bits").unwrap_or(4);
    let group: i32 = number("group_size").unwrap_or(32);
    let default = match format {
        "pack-quantized" if matches!(bits, 2 | 4 | 8) => {
            let group = [128, 64, 32].into_iter().find(|size| group % size == 0).unwrap_or(32);
            Some(choice(group, bits, QuantMode::Affine))
        }
        "pack-quantized" => {
            return Err(ConfigError::Unsupported {
                field: format!("{field}.config_groups.weights.num_bits"),
                found: bits.to_string(),
                supported: "2, 4, 8".to_owned(),
            });
        }
        "mxfp4-pack-quantized" => Some(choice(32, 4, QuantMode::Mxfp4)),
        "nvfp4-pack-quantized"
        | "float-quantized"
        | "int-quantized"
        | "naive-quantized"
        | "mixed-precision" => None,
        other => {
            return Err(ConfigError::Unsupported {
                field: format!("{field}.format"),
                found: other.to_owned(),
                supported: "pack-quantized, mxfp4-pack-quantized, nvfp4-pack-quantized, float-quantized, int-quantized, \
                            naive-quantized, mixed-precision"
                    .to_owned(),
            });
        }
    };
    Ok((Foreign::CompressedTensors { bits }, default))
}
