//! Settings of several processes for one model.

use std::time::Duration;

use omnibus_engine::{EventSettings, ReplicaRole};

use super::{SERVE, choose};
use crate::settings::{Kind, Scope, Setting, choice};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "tensor-parallel-size",
        short: None,
        kind: Kind::Count(1, 64),
        default: "1",
        section: "Engine",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Processes that compute the model together on this machine, a part of every layer each: on its CPU, or on an NVIDIA GPU each. A size that does not divide the model is refused with those that do.",
        set: |config, value| {
            config.engine.tensor_parallel_size = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "pipeline-parallel-size",
        short: None,
        kind: Kind::Count(1, 64),
        default: "1",
        section: "Engine",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Processes that compute the model together on this machine's CPU, some of the layers each. A size that the layers cannot be cut into is refused with those that they can.",
        set: |config, value| {
            config.engine.pipeline_parallel_size = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "hostfile",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Engine",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Machines that serve the model together on their CPUs, a process each, in the format of mlx.launch. The first is this one; the others are reached by ssh, and have omnibus and the model at the same path.",
        set: |config, value| {
            config.isolation.hostfile = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "data-parallel-size",
        short: None,
        kind: Kind::Count(1, 64),
        default: "1",
        section: "Engine",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Replicas of the model on this machine, a process with the whole model each: on its CPU, or on an NVIDIA GPU each. Requests go where their prompt's beginning is cached, unless others have much less to do.",
        set: |config, value| {
            config.engine.data_parallel_size = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "role",
        short: None,
        kind: Kind::Choice(&[
            choice("prefill", |config| config.engine.role = Some(ReplicaRole::Prefill)),
            choice("decode", |config| config.engine.role = Some(ReplicaRole::Decode)),
            choice("both", |config| config.engine.role = Some(ReplicaRole::Both)),
        ]),
        default: "",
        section: "Engine",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "What the server does with KV blocks of replicas: `prefill` lets others read its blocks, `decode` fetches those of --kv-peer and has prompts computed there, `both` lets others read its blocks and fetches theirs. Default: `both` with --kv-peer, else none.",
        set: choose,
    },
    Setting {
        name: "kv-peer",
        short: None,
        kind: Kind::List("URL"),
        default: "",
        section: "Engine",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "A server of the same model, `http://host:port`, whose KV blocks are fetched for prompts that it has computed; may be repeated.",
        set: |config, value| {
            config.engine.kv_peers.urls = value.list();
            match value.list().iter().find(|url| !url.starts_with("http://") && !url.starts_with("https://"))
            {
                Some(url) => Err(format!("`{url}` must begin with http:// or https://")),
                None => Ok(()),
            }
        },
    },
    Setting {
        name: "kv-peer-key-file",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Engine",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "File with the API key that every --kv-peer accepts.",
        set: |config, value| {
            let path = value.text();
            let key = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
            config.engine.kv_peers.key = Some(key.trim().to_owned());
            Ok(())
        },
    },
    Setting {
        name: "kv-peer-timeout",
        short: None,
        kind: Kind::Number(0.01, 600.0),
        default: "5",
        section: "Engine",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Seconds that a request waits for an answer of a --kv-peer; then its prompt is computed.",
        set: |config, value| {
            config.engine.kv_peers.timeout = Duration::from_secs_f64(value.number());
            Ok(())
        },
    },
    Setting {
        name: "kv-events-endpoint",
        short: None,
        kind: Kind::Text("ENDPOINT"),
        default: "",
        section: "Engine",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Where ZeroMQ subscribers get which KV blocks are cached and evicted, with the tokens of all prompts, in vLLM's schema: tcp://127.0.0.1:5557. Each replica has the next port.",
        set: |config, value| {
            config.engine.kv_events = Some(EventSettings::of_endpoint(&value.text())?);
            Ok(())
        },
    },
    Setting {
        name: "kv-events-topic",
        short: None,
        kind: Kind::Text("TOPIC"),
        default: "",
        section: "Engine",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Topic of these events. Default: `kv@HOST:PORT@MODEL`, with the first served name.",
        set: |config, value| {
            config.engine.kv_events_topic = Some(value.text());
            Ok(())
        },
    },
];
