//! What to answer, and how tokens are drawn.

use super::{MAX, PROMPT, WORDS};
use crate::commands::Name;
use crate::settings::config::PromptForm;
use crate::settings::{Kind, Reach, Setting};

/// In the order in which they are shown.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "prompt",
        short: Some('p'),
        kind: Kind::Text("TEXT"),
        default: "",
        section: "Generation",
        commands: PROMPT,
        reach: Reach::Flag,
        help: "What to answer. `-` reads it from stdin.",
        set: |config, value| {
            config.prompt.text = Some(value.text());
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
        reach: Reach::Flag,
        help: "Computed prompt in mlx-lm's format (*.safetensors): `cache prompt` writes it, `generate` goes on from it.",
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
        commands: &[Name::Generate, Name::Chat, Name::CachePrompt],
        reach: Reach::Flag,
        help: "What the model is told before the conversation.",
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
        reach: Reach::Flag,
        help: "Continue the prompt as it is, without the chat template.",
        set: |config, value| {
            config.prompt.form = if value.is_on() { PromptForm::Raw } else { PromptForm::Chat };
            Ok(())
        },
    },
    Setting {
        name: "max-tokens",
        short: None,
        kind: Kind::Count(1, MAX),
        default: "256",
        section: "Generation",
        commands: WORDS,
        reach: Reach::Everywhere,
        help: "Most tokens of an answer.",
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
        commands: WORDS,
        reach: Reach::Everywhere,
        help: "Temperature. 0 always takes the likeliest token.",
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
        commands: WORDS,
        reach: Reach::Everywhere,
        help: "Keeps the smallest set of tokens whose probabilities reach it.",
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
        commands: WORDS,
        reach: Reach::Everywhere,
        help: "Keeps the likeliest tokens. 0 keeps all.",
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
        commands: WORDS,
        reach: Reach::Everywhere,
        help: "Keeps tokens at least this fraction as likely as the likeliest.",
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
        commands: &[Name::Serve, Name::Generate, Name::Chat, Name::BenchServe, Name::BenchSim],
        reach: Reach::Everywhere,
        help: "Seeds what is drawn at random, where a request brings no seed of its own.",
        set: |config, value| {
            config.engine.seed = value.count();
            config.bench.seed = value.count();
            Ok(())
        },
    },
];
