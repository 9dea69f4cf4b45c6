//! The traffic that `bench` makes.

use super::{BENCH, MAX, TRAFFIC};
use crate::settings::config::{Dataset, Endpoint};
use crate::settings::{Kind, Reach, Setting};

/// In the order in which they are shown.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "url",
        short: None,
        kind: Kind::Text("URL"),
        default: "http://127.0.0.1:8000/v1",
        section: "Load",
        commands: BENCH,
        reach: Reach::Flag,
        help: "Where the API of the server begins; any that speaks OpenAI's.",
        set: |config, value| {
            config.bench.url = value.text().trim_end_matches('/').to_owned();
            Ok(())
        },
    },
    Setting {
        name: "endpoint",
        short: None,
        kind: Kind::Choice(&["chat", "completions"]),
        default: "chat",
        section: "Load",
        commands: BENCH,
        reach: Reach::Flag,
        help: "Which API to measure.",
        set: |config, value| {
            config.bench.endpoint =
                if value.text() == "completions" { Endpoint::Completions } else { Endpoint::Chat };
            Ok(())
        },
    },
    Setting {
        name: "dataset",
        short: None,
        kind: Kind::Choice(&["random", "shared-prefix"]),
        default: "random",
        section: "Load",
        commands: BENCH,
        reach: Reach::Flag,
        help: "Prompts of random words; or the same after a first half that all of them share.",
        set: |config, value| {
            config.bench.dataset =
                if value.text() == "shared-prefix" { Dataset::SharedPrefix } else { Dataset::Random };
            Ok(())
        },
    },
    Setting {
        name: "num-prompts",
        short: None,
        kind: Kind::Count(1, 1_000_000),
        default: "32",
        section: "Load",
        commands: TRAFFIC,
        reach: Reach::Flag,
        help: "How many requests to measure.",
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
        commands: BENCH,
        reach: Reach::Flag,
        help: "How many requests to send before, one after the other.",
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
        commands: TRAFFIC,
        reach: Reach::Flag,
        help: "Words of a prompt. The server's usage says how many tokens they were.",
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
        commands: TRAFFIC,
        reach: Reach::Flag,
        help: "Most tokens of an answer.",
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
        commands: BENCH,
        reach: Reach::Flag,
        help: "Most requests at once. Alone, the next is sent when one ends; 1 without --request-rate.",
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
        commands: TRAFFIC,
        reach: Reach::Flag,
        help: "Requests a second, in a Poisson process, whether or not earlier ones have ended.",
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
        commands: BENCH,
        reach: Reach::Flag,
        help: "Temperature to ask for.",
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
        commands: BENCH,
        reach: Reach::Flag,
        help: "Ask for answers of full length. Not every server can.",
        set: |config, value| {
            config.bench.ignore_eos = value.is_on();
            Ok(())
        },
    },
];
