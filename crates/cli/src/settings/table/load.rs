//! Settings of the load of `bench`.

use super::{ARRIVALS, BENCH, CLIENT_BENCH, LOAD, MAX, SENT_LOAD, choose};
use crate::settings::config::{Dataset, Endpoint};
use crate::settings::{Kind, Scope, Setting, choice};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "url",
        short: None,
        kind: Kind::Text("URL"),
        default: "http://127.0.0.1:8000/v1",
        section: "Load",
        commands: CLIENT_BENCH,
        scope: Scope::FlagOnly,
        help: "Base URL of a server with an OpenAI API.",
        set: |config, value| {
            config.bench.url = value.text().trim_end_matches('/').to_owned();
            Ok(())
        },
    },
    Setting {
        name: "endpoint",
        short: None,
        kind: Kind::Choice(&[
            choice("chat", |config| config.bench.endpoint = Endpoint::Chat),
            choice("completions", |config| config.bench.endpoint = Endpoint::Completions),
        ]),
        default: "chat",
        section: "Load",
        commands: CLIENT_BENCH,
        scope: Scope::FlagOnly,
        help: "API to benchmark.",
        set: choose,
    },
    Setting {
        name: "dataset",
        short: None,
        kind: Kind::Choice(&[
            choice("random", |config| config.bench.dataset = Dataset::Random),
            choice("shared-prefix", |config| config.bench.dataset = Dataset::SharedPrefix),
            choice("media", |config| config.bench.dataset = Dataset::Media),
        ]),
        default: "random",
        section: "Load",
        commands: BENCH,
        scope: Scope::FlagOnly,
        help: "Prompts of random words; `shared-prefix` has a first half that all prompts share, `media` a picture behind each.",
        set: choose,
    },
    Setting {
        name: "num-prompts",
        short: None,
        kind: Kind::Count(1, 1_000_000),
        default: "32",
        section: "Load",
        commands: LOAD,
        scope: Scope::FlagOnly,
        help: "Number of requests to measure; `bench prefix` measures so many twice.",
        set: |config, value| {
            config.bench.num_prompts = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "num-warmups",
        short: None,
        kind: Kind::Count(0, 1000),
        default: "1",
        section: "Load",
        commands: CLIENT_BENCH,
        scope: Scope::FlagOnly,
        help: "Number of requests to send before the measurement, one after the other.",
        set: |config, value| {
            config.bench.num_warmups = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "input-len",
        short: None,
        kind: Kind::Count(1, 10_000_000),
        default: "128",
        section: "Load",
        commands: LOAD,
        scope: Scope::FlagOnly,
        help: "Words per prompt. The server's usage reports the number of tokens.",
        set: |config, value| {
            config.bench.input_len = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "output-len",
        short: None,
        kind: Kind::Count(1, MAX),
        default: "64",
        section: "Load",
        commands: LOAD,
        scope: Scope::FlagOnly,
        help: "Most tokens of a completion.",
        set: |config, value| {
            config.bench.output_len = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "concurrency",
        short: None,
        kind: Kind::Count(1, 65536),
        default: "",
        section: "Load",
        commands: SENT_LOAD,
        scope: Scope::FlagOnly,
        help: "Most requests at once. Default: 1, or no limit with --request-rate.",
        set: |config, value| {
            config.bench.arrivals.concurrency = Some(value.count() as usize);
            Ok(())
        },
    },
    Setting {
        name: "request-rate",
        short: None,
        kind: Kind::Number(0.001, 1e6),
        default: "",
        section: "Load",
        commands: ARRIVALS,
        scope: Scope::FlagOnly,
        help: "Requests per second of a Poisson process, independent of earlier requests' progress.",
        set: |config, value| {
            config.bench.arrivals.rate = Some(value.number());
            Ok(())
        },
    },
    Setting {
        name: "temperature",
        short: None,
        kind: Kind::Number(0.0, 100.0),
        default: "0",
        section: "Load",
        commands: CLIENT_BENCH,
        scope: Scope::FlagOnly,
        help: "Sampling temperature of the requests.",
        set: |config, value| {
            config.bench.temperature = value.number();
            Ok(())
        },
    },
    Setting {
        name: "ignore-eos",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Load",
        commands: SENT_LOAD,
        scope: Scope::FlagOnly,
        help: "Generate past end tokens, up to --output-len. Not every server supports it.",
        set: |config, value| {
            config.bench.ignore_eos = value.is_on();
            Ok(())
        },
    },
];
