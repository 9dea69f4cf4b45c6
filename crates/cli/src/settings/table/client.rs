//! Settings of commands that read a running server.

use super::{CLIENT, LAUNCH, REPLAY};
use crate::replay::Pace;
use crate::settings::config::LaunchAction;
use crate::settings::{Kind, Scope, Setting};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "url",
        short: None,
        kind: Kind::Text("URL"),
        default: "",
        section: "Server",
        commands: CLIENT,
        scope: Scope::FlagOnly,
        help: "URL of the running server. Default: http://127.0.0.1:8000, and for `launch`, where none runs there, a server of its own; `replay` and `batch` have a server of their own without it.",
        set: |config, value| {
            config.client.url = Some(value.text());
            Ok(())
        },
    },
    Setting {
        name: "print",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Server",
        commands: LAUNCH,
        scope: Scope::FlagOnly,
        help: "Only print what the agent would be given, as lines for a shell.",
        set: |config, value| {
            config.launch = if value.is_on() { LaunchAction::Print } else { LaunchAction::Start };
            Ok(())
        },
    },
    Setting {
        name: "fast",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Server",
        commands: REPLAY,
        scope: Scope::FlagOnly,
        help: "Send one request after another, without the pauses between the recorded ones.",
        set: |config, value| {
            config.replay = if value.is_on() { Pace::Fast } else { Pace::Recorded };
            Ok(())
        },
    },
];
