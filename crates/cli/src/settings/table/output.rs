//! What is said, and how.

use super::{JSON, SERVE, WORDS};
use crate::commands::Name;
use crate::settings::config::{LogFormat, Output, Purpose, Report};
use crate::settings::{Kind, Reach, Setting};

/// In the order in which they are shown.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "log-format",
        short: None,
        kind: Kind::Choice(&["text", "json"]),
        default: "text",
        section: "Output",
        commands: SERVE,
        reach: Reach::Everywhere,
        help: "How diagnostics look.",
        set: |config, value| {
            config.log.format = if value.text() == "json" { LogFormat::Json } else { LogFormat::Text };
            Ok(())
        },
    },
    Setting {
        name: "log",
        short: None,
        kind: Kind::Text("FILTER"),
        default: "info",
        section: "Output",
        commands: SERVE,
        reach: Reach::Everywhere,
        help: "Which diagnostics to show: error, warn, info, debug or trace, also by module.",
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
        commands: WORDS,
        reach: Reach::Everywhere,
        help: "Say tokens a second and peak memory, on stderr.",
        set: |config, value| {
            config.report = if value.is_on() { Report::Verbose } else { Report::Quiet };
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
        reach: Reach::Flag,
        help: "Results as JSON.",
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
        commands: &[Name::Serve, Name::Generate, Name::Chat, Name::BenchServe],
        reach: Reach::Flag,
        help: "Settings file. Otherwise `omnibus.toml` in this folder, or in `omnibus/` of the user's configuration.",
        set: |_, _| Ok(()),
    },
    Setting {
        name: "print-config",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Output",
        commands: &[Name::Serve, Name::Generate, Name::Chat, Name::BenchServe],
        reach: Reach::Flag,
        help: "Show each setting and where it came from, and do nothing else.",
        set: |config, value| {
            config.purpose = if value.is_on() { Purpose::PrintConfig } else { Purpose::Work };
            Ok(())
        },
    },
];
