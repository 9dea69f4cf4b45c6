//! Settings of `bench engine`. Some are those of `doctor --plan` and `doctor --report` too.

use super::{ENGINE_BENCH, MAX, RANDOM_WEIGHTS, choose};
use crate::settings::{Kind, Measured, Scope, Setting, choice};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "random-weights",
        short: None,
        kind: Kind::Text("CONFIG"),
        default: "",
        section: "Engine benchmark",
        commands: RANDOM_WEIGHTS,
        scope: Scope::FlagOnly,
        help: "Make random weights on the device instead of loading a model: a config.json, its directory, or a preset such as qwen3-0.6b (an unknown name lists all presets).",
        set: |config, value| {
            config.engine_bench.random_weights = Some(value.text());
            Ok(())
        },
    },
    Setting {
        name: "quantize",
        short: None,
        kind: Kind::Choice(&[
            choice("2", |config| config.engine_bench.quantize = Some(2)),
            choice("3", |config| config.engine_bench.quantize = Some(3)),
            choice("4", |config| config.engine_bench.quantize = Some(4)),
            choice("5", |config| config.engine_bench.quantize = Some(5)),
            choice("6", |config| config.engine_bench.quantize = Some(6)),
            choice("8", |config| config.engine_bench.quantize = Some(8)),
        ]),
        default: "",
        section: "Engine benchmark",
        commands: RANDOM_WEIGHTS,
        scope: Scope::FlagOnly,
        help: "Quantize the random weights with so many bits, in groups of 64; routers get 8.",
        set: choose,
    },
    Setting {
        name: "streams",
        short: None,
        kind: Kind::Counts(1, 65536),
        default: "1,16",
        section: "Engine benchmark",
        commands: ENGINE_BENCH,
        scope: Scope::FlagOnly,
        help: "Numbers of sequences that decode at once, each measured on its own.",
        set: |config, value| {
            config.engine_bench.streams = value.counts().into_iter().map(|count| count as usize).collect();
            Ok(())
        },
    },
    Setting {
        name: "context",
        short: None,
        kind: Kind::Count(1, MAX),
        default: "512",
        section: "Engine benchmark",
        commands: RANDOM_WEIGHTS,
        scope: Scope::FlagOnly,
        help: "Tokens of each sequence's prompt, or of the longest.",
        set: |config, value| {
            config.engine_bench.context = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "shortest-context",
        short: None,
        kind: Kind::Count(1, MAX),
        default: "",
        section: "Engine benchmark",
        commands: ENGINE_BENCH,
        scope: Scope::FlagOnly,
        help: "Tokens of the shortest prompt; the others lie evenly between it and --context. Default: all are equal.",
        set: |config, value| {
            config.engine_bench.shortest_context = Some(value.count() as usize);
            Ok(())
        },
    },
    Setting {
        name: "prefill",
        short: None,
        kind: Kind::Count(0, MAX),
        default: "0",
        section: "Engine benchmark",
        commands: ENGINE_BENCH,
        scope: Scope::FlagOnly,
        help: "Also measure the first token of a prompt of so many tokens; 0 does not.",
        set: |config, value| {
            config.engine_bench.prefill = Some(value.count() as usize).filter(|tokens| *tokens > 0);
            Ok(())
        },
    },
    Setting {
        name: "steps",
        short: None,
        kind: Kind::Count(1, 1_000_000),
        default: "64",
        section: "Engine benchmark",
        commands: ENGINE_BENCH,
        scope: Scope::FlagOnly,
        help: "Decode steps to measure at least, for each number of streams.",
        set: |config, value| {
            config.engine_bench.steps = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "profile",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Engine benchmark",
        commands: ENGINE_BENCH,
        scope: Scope::FlagOnly,
        help: "Instead of steps, measure each kernel of one decode step per number of streams, and of a prompt with --prefill. On CUDA.",
        set: |config, value| {
            config.engine_bench.measured = if value.is_on() { Measured::Kernels } else { Measured::Steps };
            Ok(())
        },
    },
    Setting {
        name: "adapters",
        short: None,
        kind: Kind::Count(0, 1024),
        default: "0",
        section: "Engine benchmark",
        commands: ENGINE_BENCH,
        scope: Scope::FlagOnly,
        help: "Measure each number of streams again with so many random LoRA adapters, which the streams take in turn; 0 does not.",
        set: |config, value| {
            config.engine_bench.adapters = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "adapter-rank",
        short: None,
        kind: Kind::Count(1, 512),
        default: "16",
        section: "Engine benchmark",
        commands: ENGINE_BENCH,
        scope: Scope::FlagOnly,
        help: "Rank of the random adapters, which change every linear layer of the layers.",
        set: |config, value| {
            config.engine_bench.adapter_rank = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "synthetic-acceptance",
        short: None,
        kind: Kind::Counts(0, 100),
        default: "",
        section: "Engine benchmark",
        commands: ENGINE_BENCH,
        scope: Scope::FlagOnly,
        help: "Measure each number of streams again with draft tokens, of which chance accepts so many percent at each position; the last counts for later ones. What drafts is --draft; without a model or head they take no time. Without this and --recorded nothing is drafted.",
        set: |config, value| {
            let percent = value.counts().into_iter().filter_map(|percent| u8::try_from(percent).ok());
            config.engine_bench.synthetic_acceptance = percent.collect();
            Ok(())
        },
    },
    Setting {
        name: "recorded",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Engine benchmark",
        commands: ENGINE_BENCH,
        scope: Scope::FlagOnly,
        help: "Instead of steps, measure answers that are given again, with and without draft tokens: JSON lines with `prompt` and `answer`, lists of token ids. The answer counts as what the model sampled.",
        set: |config, value| {
            config.engine_bench.recorded = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "case-timeout",
        short: None,
        kind: Kind::Number(1.0, 1e6),
        default: "120",
        section: "Engine benchmark",
        commands: ENGINE_BENCH,
        scope: Scope::FlagOnly,
        help: "Seconds after which a number of streams, or prefill, is given up.",
        set: |config, value| {
            config.engine_bench.case_timeout_s = value.number();
            Ok(())
        },
    },
];
