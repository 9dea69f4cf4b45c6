//! Settings of the benchmark of speculative decoding.

use super::{ROUNDS, SPECULATION_BENCH};
use crate::settings::{Kind, Scope, Setting};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "prompts",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Speculation benchmark",
        commands: ROUNDS,
        scope: Scope::FlagOnly,
        help: "File with prompts: JSON lines with `prompt` or `messages`. Default: prompts whose answers repeat them.",
        set: |config, value| {
            config.speculation_bench.prompts = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "rounds",
        short: None,
        kind: Kind::Count(1, 1000),
        default: "4",
        section: "Speculation benchmark",
        commands: ROUNDS,
        scope: Scope::FlagOnly,
        help: "How often each number of streams is measured. `speculation` counts the fastest round, but the first of several; `energy` sends so many requests for each stream.",
        set: |config, value| {
            config.speculation_bench.rounds = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "streams",
        short: None,
        kind: Kind::Counts(1, 65536),
        default: "1,4,16",
        section: "Speculation benchmark",
        commands: SPECULATION_BENCH,
        scope: Scope::FlagOnly,
        help: "Numbers of requests at once, each measured on its own.",
        set: |config, value| {
            config.speculation_bench.streams =
                value.counts().into_iter().map(|count| count as usize).collect();
            Ok(())
        },
    },
];
