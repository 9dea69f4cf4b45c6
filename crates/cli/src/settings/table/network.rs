//! Settings of the HTTP server: address, keys, limits and timeouts.

use omnibus_server::{AdapterUpdates, ModelNames, RequestTemplates};

use super::{SERVE, choose};
use crate::command_name::CommandName;
use crate::settings::{Kind, Page, Scope, Setting, choice};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "host",
        short: None,
        kind: Kind::Text("HOST"),
        default: "127.0.0.1",
        section: "Network",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Address to listen on. Any address but loopback accepts requests from other machines: set an API key.",
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
        scope: Scope::Everywhere,
        help: "Port to listen on. 0 picks a free port and prints it.",
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
        commands: &[
            CommandName::Serve,
            CommandName::BenchServe,
            CommandName::BenchPrefix,
            CommandName::Ps,
            CommandName::Launch,
            CommandName::Replay,
            CommandName::Batch,
        ],
        scope: Scope::Everywhere,
        help: "API key that clients must send; may be repeated. Without one, all requests are accepted. `bench serve`, `bench prefix`, `ps`, `launch`, `replay` and `batch` send the first.",
        set: |config, value| {
            config.listen.keys = value.list();
            config.bench.api_key = value.list().into_iter().next();
            config.client.key = value.list().into_iter().next();
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
        scope: Scope::Everywhere,
        help: "File with more API keys: one per line, or TOML with a name, a role, models and limits for each. Read again on SIGHUP.",
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
        scope: Scope::Everywhere,
        help: "Largest request body.",
        set: |config, value| {
            config.listen.body_bytes = usize::try_from(value.count()).map_err(|error| error.to_string())?;
            Ok(())
        },
    },
    Setting {
        name: "state-dir",
        short: None,
        kind: Kind::Text("DIR"),
        default: "",
        section: "Network",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Folder of what outlives the server: stored responses of /v1/responses, and files and batches. Created if missing. Default: responses are kept in memory, and there are no files and batches.",
        set: |config, value| {
            config.listen.state_dir = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "batch-disk-limit",
        short: None,
        kind: Kind::Bytes,
        default: "10GiB",
        section: "Network",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Most bytes of the files of batches in --state-dir, results included. A file without room is refused; results wait for it.",
        set: |config, value| {
            config.listen.batch_bytes = value.count();
            Ok(())
        },
    },
    Setting {
        name: "batch-max-inflight",
        short: None,
        kind: Kind::Count(1, 65_536),
        default: "64",
        section: "Network",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Requests of all batches in --state-dir that run at a time, in the steps that other requests leave.",
        set: |config, value| {
            config.listen.batch_width = usize::try_from(value.count()).map_err(|error| error.to_string())?;
            Ok(())
        },
    },
    Setting {
        name: "ui",
        short: None,
        kind: Kind::Choice(&[
            choice("on", |config| config.listen.page = Page::On),
            choice("off", |config| config.listen.page = Page::Off),
        ]),
        default: "on",
        section: "Network",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "The page at /ui: chat, the engine as it runs, models, requests and settings. The page itself needs no key, its data does.",
        set: choose,
    },
    Setting {
        name: "trust-request-chat-template",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Network",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Let requests bring a `chat_template` of their own, which is rendered within the limits of all templates. Default: it is refused.",
        set: |config, value| {
            config.listen.request_templates =
                if value.is_on() { RequestTemplates::Trusted } else { RequestTemplates::Refused };
            Ok(())
        },
    },
    Setting {
        name: "strict-model-names",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Network",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Refuse model names that are not served on /v1/messages and /v1/responses too. Default: the loaded model serves any name there.",
        set: |config, value| {
            config.listen.model_names = if value.is_on() { ModelNames::Strict } else { ModelNames::Any };
            Ok(())
        },
    },
    Setting {
        name: "allow-runtime-lora-updating",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Network",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Let clients load and unload adapters by POST /v1/load_lora_adapter and /v1/unload_lora_adapter: a load reads a directory on the server. Default: both routes answer 404.",
        set: |config, value| {
            config.listen.adapter_updates =
                if value.is_on() { AdapterUpdates::Allowed } else { AdapterUpdates::Refused };
            Ok(())
        },
    },
    Setting {
        name: "allow-media-domain",
        short: None,
        kind: Kind::List("HOST[:PORT]"),
        default: "",
        section: "Network",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Host that media may be fetched from. May be repeated. Only public addresses are reached, unless the host is an address itself. Default: no URL is fetched.",
        set: |config, value| {
            config.listen.media_domains = value.list();
            Ok(())
        },
    },
    Setting {
        name: "allow-media-dir",
        short: None,
        kind: Kind::List("DIR"),
        default: "",
        section: "Network",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Directory on the server that file: URLs of images may name files of; several times for several. Default: no file is read.",
        set: |config, value| {
            config.listen.media_directories = value.list().into_iter().map(Into::into).collect();
            Ok(())
        },
    },
    Setting {
        name: "adapter-memory",
        short: None,
        kind: Kind::Bytes,
        default: "1GiB",
        section: "Network",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Most memory of named adapters with --allow-runtime-lora-updating, kept free of the KV cache. While one is loaded, the matrices before and after both count. A load that needs more is refused.",
        set: |config, value| {
            config.listen.adapter_memory = value.count();
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
        scope: Scope::Everywhere,
        help: "Seconds after which a request fails with a timeout. Default: no timeout.",
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
        scope: Scope::Everywhere,
        help: "Seconds that running requests have to finish after Ctrl-C or SIGTERM, before they are cancelled.",
        set: |config, value| {
            config.listen.shutdown_timeout_s = value.number();
            Ok(())
        },
    },
];
