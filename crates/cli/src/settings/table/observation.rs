//! Settings of traces and records of requests.

use super::SERVE;
use crate::settings::{Kind, Scope, Setting};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "otlp-traces-endpoint",
        short: None,
        kind: Kind::Text("URL"),
        default: "",
        section: "Output",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Exports a span of each request, with its waiting, prefill and decode, to this collector by OTLP over HTTP, as in http://127.0.0.1:4318. `/v1/traces` is appended to a URL without a path.",
        set: |config, value| {
            config.listen.traces_endpoint = Some(value.text());
            Ok(())
        },
    },
    Setting {
        name: "record",
        short: None,
        kind: Kind::Text("DIR"),
        default: "",
        section: "Output",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Writes each request and what its answer said into this folder, for `omnibus replay`: the body whole, no keys. Created if missing.",
        set: |config, value| {
            config.listen.record = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "record-limit",
        short: None,
        kind: Kind::Bytes,
        default: "1GiB",
        section: "Output",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Most bytes of the folder of --record. The oldest records are removed.",
        set: |config, value| {
            config.listen.record_bytes = value.count();
            Ok(())
        },
    },
];
