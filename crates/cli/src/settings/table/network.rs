//! Where the server listens, who is let in, and how long things may take.

use super::SERVE;
use crate::commands::Name;
use crate::settings::{Kind, Reach, Setting};

/// In the order in which they are shown.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "host",
        short: None,
        kind: Kind::Text("HOST"),
        default: "127.0.0.1",
        section: "Network",
        commands: SERVE,
        reach: Reach::Everywhere,
        help: "Address to listen on. Anything but loopback lets others in: set an API key.",
        set: |config, value| {
            config.listen.host = value.text();
            Ok(())
        },
    },
    Setting {
        name: "port",
        short: None,
        kind: Kind::Count(0, 65535),
        default: "8000",
        section: "Network",
        commands: SERVE,
        reach: Reach::Everywhere,
        help: "Port to listen on. 0 takes any that is free, and says which.",
        set: |config, value| {
            config.listen.port = u16::try_from(value.count()).map_err(|error| error.to_string())?;
            Ok(())
        },
    },
    Setting {
        name: "api-key",
        short: None,
        kind: Kind::List("KEY"),
        default: "",
        section: "Network",
        commands: &[Name::Serve, Name::BenchServe],
        reach: Reach::Everywhere,
        help: "Key that lets a client in; may be repeated. Without any, everybody is let in. `bench serve` sends the first.",
        set: |config, value| {
            config.listen.keys = value.list();
            config.bench.api_key = value.list().into_iter().next();
            Ok(())
        },
    },
    Setting {
        name: "api-key-file",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Network",
        commands: SERVE,
        reach: Reach::Everywhere,
        help: "File with more keys, one a line.",
        set: |config, value| {
            config.listen.key_file = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "max-body-size",
        short: None,
        kind: Kind::Bytes,
        default: "32MiB",
        section: "Network",
        commands: SERVE,
        reach: Reach::Everywhere,
        help: "Largest request body.",
        set: |config, value| {
            config.listen.body_bytes = usize::try_from(value.count()).map_err(|error| error.to_string())?;
            Ok(())
        },
    },
    Setting {
        name: "request-timeout",
        short: None,
        kind: Kind::Number(0.001, 1e9),
        default: "",
        section: "Network",
        commands: SERVE,
        reach: Reach::Everywhere,
        help: "Seconds after which a request is given up. Without it, requests take as long as they take.",
        set: |config, value| {
            config.engine.request_timeout_s = Some(value.number());
            Ok(())
        },
    },
    Setting {
        name: "shutdown-timeout",
        short: None,
        kind: Kind::Number(0.0, 1e6),
        default: "30",
        section: "Network",
        commands: SERVE,
        reach: Reach::Everywhere,
        help: "Seconds that Ctrl-C and SIGTERM give to what runs, before it is cancelled.",
        set: |config, value| {
            config.listen.shutdown_timeout_s = value.number();
            Ok(())
        },
    },
];
