//! Settings of the model: directory, served names, length and device.

use std::path::PathBuf;

use omnibus_engine::{CpuActivations, DeviceChoice, GenerationConfig, LongContext, NamedAdapter};

use super::{ADAPTED, DEVICE, LOCAL_ENGINE, MAX, SERVE, TEXT, choose};
use crate::command_name::CommandName;
use crate::settings::{Config, Kind, PullPolicy, Scope, Setting, Value, choice};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "model",
        short: Some('m'),
        kind: Kind::Text("MODEL"),
        default: "",
        section: "Model",
        commands: &[
            CommandName::Generate,
            CommandName::Chat,
            CommandName::Run,
            CommandName::Serve,
            CommandName::Perplexity,
            CommandName::Plan,
            CommandName::Launch,
            CommandName::Replay,
            CommandName::Batch,
            CommandName::Convert,
            CommandName::Pull,
            CommandName::RemoveModels,
            CommandName::CachePrompt,
            CommandName::BenchServe,
            CommandName::BenchPrefix,
            CommandName::BenchEngine,
            CommandName::BenchSpeculation,
            CommandName::BenchEnergy,
            CommandName::BenchReport,
        ],
        scope: Scope::FlagOnly,
        help: "Model directory, or `org/name[@revision]` on the hub; for `bench serve` a served name, for `launch` one or the other, for `replay` that of its own server. Default: the embedded model, or the first served one; none for `convert`, `plan`, `pull` and `rm`.",
        set: |config, value| {
            config.model = Some(value.text());
            Ok(())
        },
    },
    Setting {
        name: "served-model-name",
        short: None,
        kind: Kind::List("NAME"),
        default: "",
        section: "Model",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Name of the model in the API; may be repeated for aliases. Default: the directory's name.",
        set: |config, value| {
            config.served_names = value.list();
            Ok(())
        },
    },
    Setting {
        name: "models-dir",
        short: None,
        kind: Kind::Text("DIRECTORY"),
        default: "",
        section: "Model",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Directory of models: each directory in it with a config.json is served under its name, and those one level deeper as `org/name`. Loaded on first use; unloaded when another needs the memory.",
        set: |config, value| {
            config.pool.folder = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "model-ttl",
        short: None,
        kind: Kind::Number(0.0, 1e9),
        default: "",
        section: "Model",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Seconds that a model stays loaded after its last request. Default: until the server stops or another model needs the memory.",
        set: |config, value| {
            config.pool.ttl_s = Some(value.number());
            Ok(())
        },
    },
    Setting {
        name: "allow-pull",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Model",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Requests may name `org/name` of any model on the hub, which is downloaded and served then.",
        set: |config, value| {
            config.pool.pull = if value.is_on() { PullPolicy::Allowed } else { PullPolicy::Refused };
            Ok(())
        },
    },
    Setting {
        name: "adapter-path",
        short: None,
        kind: Kind::List("[NAME=]DIRECTORY"),
        default: "",
        section: "Model",
        commands: SERVE,
        scope: Scope::FlagOnly,
        help: "Adapter in mlx-lm's or PEFT's format; may be repeated. With a name, LoRA or DoRA that requests choose by the `model` NAME, several in one batch; without, LoRA, DoRA or a full fine-tune that is merged into the model: quantized weights that it changes become floats.",
        set: |config, value| value.list().iter().try_for_each(|text| add_adapter(config, text)),
    },
    Setting {
        name: "adapter-path",
        short: None,
        kind: Kind::Text("DIRECTORY"),
        default: "",
        section: "Model",
        commands: ADAPTED,
        scope: Scope::FlagOnly,
        help: "Adapter to merge into the model: LoRA, DoRA or a full fine-tune, in mlx-lm's or PEFT's format. Quantized weights that it changes become floats.",
        set: |config, value| {
            config.engine.adapter = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "chat-template",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Model",
        commands: TEXT,
        scope: Scope::Everywhere,
        help: "File with a chat template that replaces the model's own.",
        set: |config, value| {
            let path = value.text();
            let read =
                std::fs::read_to_string(&path).map_err(|error| format!("cannot read `{path}`: {error}"));
            config.engine.chat_template = Some(read?);
            Ok(())
        },
    },
    Setting {
        name: "generation-config",
        short: None,
        kind: Kind::Text("auto|none|DIRECTORY"),
        default: "auto",
        section: "Model",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Where sampling parameters come from that a request leaves out: the `generation_config.json` of the model (`auto`) or of a directory; `none` keeps the API's defaults. Read are temperature, top_p, top_k, min_p and the repetition, presence and frequency penalties.",
        set: |config, value| {
            config.engine.generation_config = match value.text().as_str() {
                "auto" => GenerationConfig::Model,
                "none" => GenerationConfig::Server,
                directory => GenerationConfig::Directory(with_generation_config(directory)?),
            };
            Ok(())
        },
    },
    Setting {
        name: "tool-call-format",
        short: None,
        kind: Kind::Text("NAME"),
        default: "",
        section: "Model",
        commands: TEXT,
        scope: Scope::Everywhere,
        help: "Format in which the model writes tool calls, of those that `omnibus models --formats` lists; `none` leaves calls in the text. Default: that of the chat template.",
        set: |config, value| {
            config.engine.tool_call_format = Some(known_format(value, omnibus_engine::tool_call_formats())?);
            Ok(())
        },
    },
    Setting {
        name: "reasoning-format",
        short: None,
        kind: Kind::Text("NAME"),
        default: "",
        section: "Model",
        commands: TEXT,
        scope: Scope::Everywhere,
        help: "Format in which the model writes its reasoning, of those that `omnibus models --formats` lists; `none` leaves it in the text. Default: that of the chat template.",
        set: |config, value| {
            config.engine.reasoning_format = Some(known_format(value, omnibus_engine::reasoning_formats())?);
            Ok(())
        },
    },
    Setting {
        name: "reasoning-budget",
        short: None,
        kind: Kind::Count(0, MAX),
        default: "",
        section: "Model",
        commands: TEXT,
        scope: Scope::Everywhere,
        help: "Most tokens of reasoning of a request without a limit of its own; then the end of reasoning is forced. Default: no limit.",
        set: |config, value| {
            config.engine.reasoning_budget = Some(value.count() as usize);
            Ok(())
        },
    },
    Setting {
        name: "max-model-len",
        short: None,
        kind: Kind::Count(1, MAX),
        default: "",
        section: "Model",
        commands: LOCAL_ENGINE,
        scope: Scope::Everywhere,
        help: "Longest sequence, prompt and completion together, in tokens. Default: the model's context length, or what fits in memory.",
        set: |config, value| {
            config.engine.max_model_len = Some(value.count() as usize);
            Ok(())
        },
    },
    Setting {
        name: "allow-long-max-model-len",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Model",
        commands: LOCAL_ENGINE,
        scope: Scope::Everywhere,
        help: "Allow a `--max-model-len` above what the model was trained for. Answers beyond that length are mostly nonsense. Default: it is refused.",
        set: |config, value| {
            config.engine.long_context =
                if value.is_on() { LongContext::Allowed } else { LongContext::Refused };
            Ok(())
        },
    },
    Setting {
        name: "device",
        short: None,
        kind: Kind::Choice(&[
            choice("auto", |config| config.engine.device = DeviceChoice::Auto),
            choice("gpu", |config| config.engine.device = DeviceChoice::Gpu),
            choice("cpu", |config| config.engine.device = DeviceChoice::Cpu),
        ]),
        default: "auto",
        section: "Model",
        commands: DEVICE,
        scope: Scope::Everywhere,
        help: "Device that runs the model.",
        set: choose,
    },
    Setting {
        name: "cpu-activations",
        short: None,
        kind: Kind::Choice(&[
            choice("exact", |config| config.engine.cpu_activations = CpuActivations::Exact),
            choice("int8", |config| config.engine.cpu_activations = CpuActivations::Int8),
        ]),
        default: "exact",
        section: "Model",
        commands: LOCAL_ENGINE,
        scope: Scope::Everywhere,
        help: "Activations in products with 4- and 8-bit weights on a CPU: `exact` keeps them, `int8` rounds them to 8 bits in blocks of 32, which is faster.",
        set: choose,
    },
];

/// The name of a format, which is one of these or `none`.
fn known_format(value: &Value, formats: Vec<(&str, &str)>) -> Result<String, String> {
    let name = value.text();
    match name == "none" || formats.iter().any(|(known, _)| *known == name) {
        true => Ok(name),
        false => Err(format!(
            "there is no format `{name}`; `omnibus models --formats` lists them, and `none` switches it off"
        )),
    }
}

/// A directory with sampling parameters. The engine would miss them, too, but as a model that cannot be loaded.
fn with_generation_config(directory: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(directory);
    match path.join("generation_config.json").is_file() {
        true => Ok(path),
        false => Err(format!(
            "`{directory}` has no generation_config.json: name a directory with one, `auto` or `none`"
        )),
    }
}

/// Adds an adapter, `NAME=DIRECTORY` or `DIRECTORY`.
fn add_adapter(config: &mut Config, text: &str) -> Result<(), String> {
    match text.split_once('=').filter(|(name, _)| !name.contains('/')) {
        Some((name, path)) => config.engine.adapters.push(NamedAdapter::new(name, path)),
        None if config.engine.adapter.is_some() => {
            return Err(
                "merges one adapter into the model: give the others names, as NAME=DIRECTORY".to_owned()
            );
        }
        None => config.engine.adapter = Some(text.into()),
    }
    Ok(())
}
