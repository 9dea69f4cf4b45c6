//! Settings of `convert` and of the quantizations that `perplexity` compares.

use omnibus_hub::Visibility;
use omnibus_offline::conversion::{Dtype, QuantMode, Recipe};

use super::{CONVERT, QUANTIZED, UPLOADING, choose};
use crate::settings::config::WeightChange;
use crate::settings::{Kind, Scope, Setting, choice};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "hf-path",
        short: None,
        kind: Kind::Text("MODEL"),
        default: "",
        section: "Conversion",
        commands: CONVERT,
        scope: Scope::FlagOnly,
        help: "Model to convert: a directory, or `org/name[@revision]` on the hub.",
        set: |config, value| {
            config.conversion.from = Some(value.text());
            Ok(())
        },
    },
    Setting {
        name: "mlx-path",
        short: None,
        kind: Kind::Text("DIRECTORY"),
        default: "mlx_model",
        section: "Conversion",
        commands: CONVERT,
        scope: Scope::FlagOnly,
        help: "Directory to write. One with an interrupted conversion of the same kind is completed.",
        set: |config, value| {
            config.conversion.to = value.text().into();
            Ok(())
        },
    },
    Setting {
        name: "quantize",
        short: Some('q'),
        kind: Kind::Switch,
        default: "",
        section: "Conversion",
        commands: CONVERT,
        scope: Scope::FlagOnly,
        help: "Quantize the weights.",
        set: |config, value| {
            if value.is_on() {
                config.conversion.change = config.conversion.change.with(WeightChange::Quantize)?;
            }
            Ok(())
        },
    },
    Setting {
        name: "dequantize",
        short: Some('d'),
        kind: Kind::Switch,
        default: "",
        section: "Conversion",
        commands: CONVERT,
        scope: Scope::FlagOnly,
        help: "Make floats of quantized weights.",
        set: |config, value| {
            if value.is_on() {
                config.conversion.change = config.conversion.change.with(WeightChange::Dequantize)?;
            }
            Ok(())
        },
    },
    Setting {
        name: "q-bits",
        short: None,
        kind: Kind::Count(2, 8),
        default: "",
        section: "Conversion",
        commands: CONVERT,
        scope: Scope::FlagOnly,
        help: "Bits of quantized weights: 2, 3, 4, 5, 6 or 8 in the affine mode. Default: 4, or the mode's own.",
        set: |config, value| {
            config.conversion.bits = Some(value.count() as i32);
            Ok(())
        },
    },
    Setting {
        name: "q-group-size",
        short: None,
        kind: Kind::Count(16, 128),
        default: "",
        section: "Conversion",
        commands: QUANTIZED,
        scope: Scope::FlagOnly,
        help: "Weights that share a scale: 32, 64 or 128 in the affine mode. Default: 64, or the mode's own.",
        set: |config, value| {
            config.conversion.group = Some(value.count() as i32);
            Ok(())
        },
    },
    Setting {
        name: "q-mode",
        short: None,
        kind: Kind::Choice(&[
            choice("affine", |config| config.conversion.mode = QuantMode::Affine),
            choice("mxfp4", |config| config.conversion.mode = QuantMode::Mxfp4),
            choice("mxfp8", |config| config.conversion.mode = QuantMode::Mxfp8),
            choice("nvfp4", |config| config.conversion.mode = QuantMode::Nvfp4),
        ]),
        default: "affine",
        section: "Conversion",
        commands: CONVERT,
        scope: Scope::FlagOnly,
        help: "Format of quantized weights: integers with a scale and a bias, or floats of 4 or 8 bits.",
        set: choose,
    },
    Setting {
        name: "quant-predicate",
        short: None,
        kind: Kind::Choice(&[
            choice("mixed_2_6", |config| config.conversion.recipe = Some(Recipe::Mixed { low: 2, high: 6 })),
            choice("mixed_3_4", |config| config.conversion.recipe = Some(Recipe::Mixed { low: 3, high: 4 })),
            choice("mixed_3_6", |config| config.conversion.recipe = Some(Recipe::Mixed { low: 3, high: 6 })),
            choice("mixed_4_6", |config| config.conversion.recipe = Some(Recipe::Mixed { low: 4, high: 6 })),
        ]),
        default: "",
        section: "Conversion",
        commands: CONVERT,
        scope: Scope::FlagOnly,
        help: "Recipe with two numbers of bits: the second for the head, and for values and downward projections of some layers.",
        set: choose,
    },
    Setting {
        name: "calibration",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Conversion",
        commands: CONVERT,
        scope: Scope::FlagOnly,
        help: "Text on which the model is run first: errors of quantized weights then count by the activations that they meet. Plain text, lines of JSON with a `text` each, or a JSON list of token ids.",
        set: |config, value| {
            config.conversion.calibration = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "calibration-sequences",
        short: None,
        kind: Kind::Count(1, 65_536),
        default: "32",
        section: "Conversion",
        commands: CONVERT,
        scope: Scope::FlagOnly,
        help: "Sequences of 512 tokens of the calibration's text at most.",
        set: |config, value| {
            config.conversion.calibration_sequences = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "dtype",
        short: None,
        kind: Kind::Choice(&[
            choice("float16", |config| config.conversion.dtype = Some(Dtype::F16)),
            choice("bfloat16", |config| config.conversion.dtype = Some(Dtype::Bf16)),
            choice("float32", |config| config.conversion.dtype = Some(Dtype::F32)),
        ]),
        default: "",
        section: "Conversion",
        commands: CONVERT,
        scope: Scope::FlagOnly,
        help: "Type of what is not quantized. Default: the config's.",
        set: choose,
    },
    Setting {
        name: "upload-repo",
        short: None,
        kind: Kind::Text("ORG/NAME"),
        default: "",
        section: "Conversion",
        commands: CONVERT,
        scope: Scope::FlagOnly,
        help: "Upload what was written to this repository of the hub, as `push` does. Needs a token that may write.",
        set: |config, value| {
            config.conversion.upload = Some(value.text());
            Ok(())
        },
    },
    Setting {
        name: "public",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Conversion",
        commands: UPLOADING,
        scope: Scope::FlagOnly,
        help: "Make a repository that is created public. Default: it is private. One that exists stays as it is.",
        set: |config, value| {
            if value.is_on() {
                config.conversion.visibility = Visibility::Public;
            }
            Ok(())
        },
    },
];
