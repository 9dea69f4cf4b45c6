//! Settings of `service`.

use super::{SERVICE, SERVICE_INSTALL, SERVICE_LOGS, choose};
use crate::service::{Installation, Logs, Manager, Owner};
use crate::settings::{Kind, Scope, Setting, choice};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "system",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Service",
        commands: SERVICE,
        scope: Scope::FlagOnly,
        help: "A service of the system, which starts with it and has a user of its own (systemd). Default: a service of this user.",
        set: |config, value| {
            config.service.owner = if value.is_on() { Owner::System } else { Owner::User };
            Ok(())
        },
    },
    Setting {
        name: "manager",
        short: None,
        kind: Kind::Choice(&[
            choice("systemd", |config| config.service.manager = Manager::Systemd),
            choice("launchd", |config| config.service.manager = Manager::Launchd),
        ]),
        default: "",
        section: "Service",
        commands: SERVICE,
        scope: Scope::FlagOnly,
        help: "What runs the service. Default: launchd on macOS, systemd elsewhere.",
        set: choose,
    },
    Setting {
        name: "socket",
        short: None,
        kind: Kind::Text("ADDRESS"),
        default: "",
        section: "Service",
        commands: SERVICE_INSTALL,
        scope: Scope::FlagOnly,
        help: "systemd listens there (a port, ADDRESS:PORT or the path of a UNIX socket), and starts the server at the first connection.",
        set: |config, value| {
            config.service.socket = Some(value.text());
            Ok(())
        },
    },
    Setting {
        name: "print",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Service",
        commands: SERVICE_INSTALL,
        scope: Scope::FlagOnly,
        help: "Only print the service's files.",
        set: |config, value| {
            config.service.installation =
                if value.is_on() { Installation::Print } else { Installation::Install };
            Ok(())
        },
    },
    Setting {
        name: "follow",
        short: Some('f'),
        kind: Kind::Switch,
        default: "",
        section: "Service",
        commands: SERVICE_LOGS,
        scope: Scope::FlagOnly,
        help: "Wait for new lines.",
        set: |config, value| {
            config.service.logs = if value.is_on() { Logs::Followed } else { Logs::Written };
            Ok(())
        },
    },
];
