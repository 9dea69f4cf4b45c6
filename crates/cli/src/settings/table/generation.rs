//! Settings of the prompt and of sampling.

use super::{MAX, MEDIA, PROMPT, SAMPLING, SYSTEM};
use crate::command_name::CommandName;
use crate::settings::config::PromptFormat;
use crate::settings::{Kind, Scope, Setting};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "prompt",
        short: Some('p'),
        kind: Kind::Text("TEXT"),
        default: "",
        section: "Generation",
        commands: PROMPT,
        scope: Scope::FlagOnly,
        help: "The prompt. `-` reads it from stdin.",
        set: |config, value| {
            config.prompt.text = Some(value.text());
            Ok(())
        },
    },
    Setting {
        name: "image",
        short: None,
        kind: Kind::List("FILE"),
        default: "",
        section: "Generation",
        commands: MEDIA,
        scope: Scope::FlagOnly,
        help: "Image before the prompt, for models that see; several times for several.",
        set: |config, value| {
            config.prompt.images = value.list().into_iter().map(Into::into).collect();
            Ok(())
        },
    },
    Setting {
        name: "video",
        short: None,
        kind: Kind::List("FILE"),
        default: "",
        section: "Generation",
        commands: MEDIA,
        scope: Scope::FlagOnly,
        help: "Video before the prompt, after its images, for models that see videos; several times for several.",
        set: |config, value| {
            config.prompt.videos = value.list().into_iter().map(Into::into).collect();
            Ok(())
        },
    },
    Setting {
        name: "audio",
        short: None,
        kind: Kind::List("FILE"),
        default: "",
        section: "Generation",
        commands: MEDIA,
        scope: Scope::FlagOnly,
        help: "Audio before the prompt, after its images and videos, for models that hear; several times for several.",
        set: |config, value| {
            config.prompt.audio = value.list().into_iter().map(Into::into).collect();
            Ok(())
        },
    },
    Setting {
        name: "prompt-cache-file",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Generation",
        commands: PROMPT,
        scope: Scope::FlagOnly,
        help: "Prompt cache file in mlx-lm's format (*.safetensors): `cache prompt` writes it, `generate` continues from it.",
        set: |config, value| {
            config.prompt.cache_file = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "system-prompt",
        short: None,
        kind: Kind::Text("TEXT"),
        default: "",
        section: "Generation",
        commands: SYSTEM,
        scope: Scope::FlagOnly,
        help: "System prompt of the conversation.",
        set: |config, value| {
            config.prompt.system = Some(value.text());
            Ok(())
        },
    },
    Setting {
        name: "raw",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Generation",
        commands: PROMPT,
        scope: Scope::FlagOnly,
        help: "Continue the raw prompt, without the chat template.",
        set: |config, value| {
            config.prompt.format = if value.is_on() { PromptFormat::Raw } else { PromptFormat::Chat };
            Ok(())
        },
    },
    Setting {
        name: "max-tokens",
        short: None,
        kind: Kind::Count(1, MAX),
        default: "256",
        section: "Generation",
        commands: SAMPLING,
        scope: Scope::Everywhere,
        help: "Most tokens of a completion.",
        set: |config, value| {
            config.prompt.max_tokens = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "temp",
        short: None,
        kind: Kind::Number(0.0, 100.0),
        default: "0",
        section: "Generation",
        commands: SAMPLING,
        scope: Scope::Everywhere,
        help: "Sampling temperature. 0 is greedy.",
        set: |config, value| {
            config.prompt.sampling.temperature = value.number() as f32;
            Ok(())
        },
    },
    Setting {
        name: "top-p",
        short: None,
        kind: Kind::Number(0.0, 1.0),
        default: "1",
        section: "Generation",
        commands: SAMPLING,
        scope: Scope::Everywhere,
        help: "Nucleus sampling: keep the smallest set of tokens with this total probability.",
        set: |config, value| {
            config.prompt.sampling.top_p = value.number() as f32;
            Ok(())
        },
    },
    Setting {
        name: "top-k",
        short: None,
        kind: Kind::Count(0, MAX),
        default: "0",
        section: "Generation",
        commands: SAMPLING,
        scope: Scope::Everywhere,
        help: "Keep the k most likely tokens. 0 keeps all.",
        set: |config, value| {
            config.prompt.sampling.top_k = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "min-p",
        short: None,
        kind: Kind::Number(0.0, 1.0),
        default: "0",
        section: "Generation",
        commands: SAMPLING,
        scope: Scope::Everywhere,
        help: "Keep tokens at least this fraction as likely as the most likely one.",
        set: |config, value| {
            config.prompt.sampling.min_p = value.number() as f32;
            Ok(())
        },
    },
    Setting {
        name: "seed",
        short: None,
        kind: Kind::Count(0, u64::MAX),
        default: "0",
        section: "Generation",
        commands: &[
            CommandName::Serve,
            CommandName::Generate,
            CommandName::Chat,
            CommandName::Run,
            CommandName::BenchServe,
            CommandName::BenchEngine,
            CommandName::BenchSim,
        ],
        scope: Scope::Everywhere,
        help: "Seed of sampling for requests without a seed of their own, and of benchmark prompts.",
        set: |config, value| {
            config.engine.seed = value.count();
            config.bench.seed = value.count();
            Ok(())
        },
    },
];
