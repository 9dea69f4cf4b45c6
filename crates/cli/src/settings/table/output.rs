//! Settings of log lines and results.

use super::{CONFIGURED, JSON, MODELS, SAMPLING, SERVE, choose};
use crate::settings::config::{Action, LogFormat, MetricsCompat, ModelsSubject, Output, Verbosity};
use crate::settings::{Kind, Scope, Setting, choice};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "metrics-compat",
        short: None,
        kind: Kind::Choice(&[
            choice("none", |config| config.listen.metrics_compat = MetricsCompat::Ours),
            choice("vllm", |config| config.listen.metrics_compat = MetricsCompat::Vllm),
        ]),
        default: "none",
        section: "Output",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Adds metrics by another server's names to `/metrics`, for routers, autoscalers and boards that read those.",
        set: choose,
    },
    Setting {
        name: "log-format",
        short: None,
        kind: Kind::Choice(&[
            choice("text", |config| config.log.format = LogFormat::Text),
            choice("json", |config| config.log.format = LogFormat::Json),
        ]),
        default: "text",
        section: "Output",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Format of log lines.",
        set: choose,
    },
    Setting {
        name: "log",
        short: None,
        kind: Kind::Text("FILTER"),
        default: "info",
        section: "Output",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Log level: error, warn, info, debug or trace; also by module, as in `info,omnibus_engine=debug`.",
        set: |config, value| {
            config.log.filter = value.text();
            Ok(())
        },
    },
    Setting {
        name: "verbose",
        short: Some('v'),
        kind: Kind::Switch,
        default: "",
        section: "Output",
        commands: SAMPLING,
        scope: Scope::Everywhere,
        help: "Print tokens per second and peak memory to stderr.",
        set: |config, value| {
            config.verbosity = if value.is_on() { Verbosity::Verbose } else { Verbosity::Quiet };
            Ok(())
        },
    },
    Setting {
        name: "formats",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Output",
        commands: MODELS,
        scope: Scope::FlagOnly,
        help: "List the formats of tool calls and reasoning instead of the architectures.",
        set: |config, value| {
            config.models = if value.is_on() { ModelsSubject::Formats } else { ModelsSubject::Architectures };
            Ok(())
        },
    },
    Setting {
        name: "json",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Output",
        commands: JSON,
        scope: Scope::FlagOnly,
        help: "Print results as JSON.",
        set: |config, value| {
            config.output = if value.is_on() { Output::Json } else { Output::Text };
            Ok(())
        },
    },
    Setting {
        name: "config",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Output",
        commands: CONFIGURED,
        scope: Scope::FlagOnly,
        help: "Settings file. Default: `omnibus.toml` in the working directory, else in ~/.config/omnibus.",
        set: |_, _| Ok(()),
    },
    Setting {
        name: "print-config",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Output",
        commands: CONFIGURED,
        scope: Scope::FlagOnly,
        help: "Print each setting and where it comes from, then exit.",
        set: |config, value| {
            config.action = if value.is_on() { Action::PrintConfig } else { Action::Run };
            Ok(())
        },
    },
];
