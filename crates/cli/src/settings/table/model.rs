//! Which model, what it is called, and where it runs.

use omnibus_engine::DeviceChoice;

use super::{ENGINE, MAX, SERVE};
use crate::commands::Name;
use crate::settings::{Kind, Reach, Setting};

/// In the order in which they are shown.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "model",
        short: Some('m'),
        kind: Kind::Text("MODEL"),
        default: "",
        section: "Model",
        commands: &[Name::Generate, Name::Chat, Name::CachePrompt, Name::BenchServe],
        reach: Reach::Flag,
        help: "Model directory; for `bench serve` a served name. Without it, the embedded model or the first served.",
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
        reach: Reach::Everywhere,
        help: "What clients call the model; may be repeated, the first is listed. Otherwise the directory's name.",
        set: |config, value| {
            config.served_names = value.list();
            Ok(())
        },
    },
    Setting {
        name: "chat-template",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Model",
        commands: ENGINE,
        reach: Reach::Everywhere,
        help: "File with a chat template to use instead of the model's own.",
        set: |config, value| {
            let path = value.text();
            let read =
                std::fs::read_to_string(&path).map_err(|error| format!("cannot read `{path}`: {error}"));
            config.engine.chat_template = Some(read?);
            Ok(())
        },
    },
    Setting {
        name: "max-model-len",
        short: None,
        kind: Kind::Count(1, MAX),
        default: "",
        section: "Model",
        commands: ENGINE,
        reach: Reach::Everywhere,
        help: "Longest sequence, prompt and answer together, in tokens. Otherwise what the model was trained for, or what memory holds.",
        set: |config, value| {
            config.engine.max_model_len = Some(value.count() as usize);
            Ok(())
        },
    },
    Setting {
        name: "device",
        short: None,
        kind: Kind::Choice(&["auto", "gpu", "cpu"]),
        default: "auto",
        section: "Model",
        commands: ENGINE,
        reach: Reach::Everywhere,
        help: "Where the model runs.",
        set: |config, value| {
            config.engine.device = match value.text().as_str() {
                "gpu" => DeviceChoice::Gpu,
                "cpu" => DeviceChoice::Cpu,
                _ => DeviceChoice::Auto,
            };
            Ok(())
        },
    },
];
