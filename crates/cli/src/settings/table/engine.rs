//! How requests are scheduled, what is kept of them, and the process they run in.

use omnibus_engine::{AsyncScheduling, PreemptionPolicy, PrefixCache, Schedule, WarmUp};

use super::{CACHED, ENGINE, MAX, SCHEDULING, SERVE, STEPS, microseconds};
use crate::settings::config::Isolate;
use crate::settings::{Kind, Reach, Setting};

/// In the order in which they are shown.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "max-num-seqs",
        short: None,
        kind: Kind::Count(1, 65536),
        default: "64",
        section: "Engine",
        commands: SCHEDULING,
        reach: Reach::Everywhere,
        help: "Most sequences in one step.",
        set: |config, value| {
            config.engine.max_num_seqs = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "async-scheduling",
        short: None,
        kind: Kind::Choice(&["on", "off"]),
        default: "off",
        section: "Engine",
        commands: STEPS,
        reach: Reach::Everywhere,
        help: "Whether a step is launched while the one before it computes, where kernels allow it. On the CPU it gains nothing, and each token is told a step later.",
        set: |config, value| {
            config.engine.async_scheduling = match value.text().as_str() {
                "on" => AsyncScheduling::On,
                _ => AsyncScheduling::Off,
            };
            Ok(())
        },
    },
    Setting {
        name: "warm-up",
        short: None,
        kind: Kind::Choice(&["auto", "on", "off"]),
        default: "auto",
        section: "Engine",
        commands: SERVE,
        reach: Reach::Everywhere,
        help: "Whether steps are taken when a model is loaded, before anybody waits for one; auto does so on a GPU, which compiles its kernels then.",
        set: |config, value| {
            config.engine.warm_up = match value.text().as_str() {
                "on" => WarmUp::On,
                "off" => WarmUp::Off,
                _ => WarmUp::Auto,
            };
            Ok(())
        },
    },
    Setting {
        name: "max-num-batched-tokens",
        short: None,
        kind: Kind::Count(1, MAX),
        default: "512",
        section: "Engine",
        commands: STEPS,
        reach: Reach::Everywhere,
        help: "Most tokens computed in one step. Lower answers sooner; higher finishes more a second.",
        set: |config, value| {
            config.engine.max_num_batched_tokens = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "max-queue",
        short: None,
        kind: Kind::Count(1, MAX),
        default: "1024",
        section: "Engine",
        commands: SCHEDULING,
        reach: Reach::Everywhere,
        help: "Most requests that wait. Beyond them the answer is 429.",
        set: |config, value| {
            config.engine.max_queue = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "schedule",
        short: None,
        kind: Kind::Choice(&["fair", "fcfs", "static", "split"]),
        default: "fair",
        section: "Engine",
        commands: SERVE,
        reach: Reach::Everywhere,
        help: "Who goes first: `fair` reads prompts in chunks that leave answers their pace, and takes turns among keys; `fcfs` is first come, first served; `static` runs a batch to its end before the next; `split` reads and answers in steps of their own.",
        set: |config, value| {
            config.engine.schedule = match value.text().as_str() {
                "fcfs" => Schedule::Fcfs,
                "static" => Schedule::Static,
                "split" => Schedule::Split,
                _ => Schedule::Fair,
            };
            Ok(())
        },
    },
    Setting {
        name: "ttft-slo-ms",
        short: None,
        kind: Kind::Number(0.001, 1e9),
        default: "",
        section: "Engine",
        commands: SCHEDULING,
        reach: Reach::Everywhere,
        help: "Milliseconds in which `fair` aims to begin an answer. Otherwise two seconds.",
        set: |config, value| {
            config.engine.tuning.targets.ttft = Some(microseconds(value));
            Ok(())
        },
    },
    Setting {
        name: "tpot-slo-ms",
        short: None,
        kind: Kind::Number(0.001, 1e9),
        default: "",
        section: "Engine",
        commands: SCHEDULING,
        reach: Reach::Everywhere,
        help: "Milliseconds between tokens that `fair` aims at. Otherwise four times what a step takes that reads no prompt, and at least 50.",
        set: |config, value| {
            config.engine.tuning.targets.tpot = Some(microseconds(value));
            Ok(())
        },
    },
    Setting {
        name: "static-batch-size",
        short: None,
        kind: Kind::Count(1, 65536),
        default: "8",
        section: "Engine",
        commands: SCHEDULING,
        reach: Reach::Everywhere,
        help: "Sequences that `static` waits for before it begins a batch.",
        set: |config, value| {
            config.engine.tuning.batch.sequences = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "static-batch-wait-ms",
        short: None,
        kind: Kind::Number(0.0, 1e9),
        default: "50",
        section: "Engine",
        commands: SCHEDULING,
        reach: Reach::Everywhere,
        help: "Milliseconds after which `static` begins a batch that is not full.",
        set: |config, value| {
            config.engine.tuning.batch.wait = microseconds(value);
            Ok(())
        },
    },
    Setting {
        name: "split-prefill-seqs",
        short: None,
        kind: Kind::Count(1, 65536),
        default: "4",
        section: "Engine",
        commands: SCHEDULING,
        reach: Reach::Everywhere,
        help: "Most sequences in the pool of `split` that reads prompts.",
        set: |config, value| {
            config.engine.tuning.stages.prefill = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "split-decode-seqs",
        short: None,
        kind: Kind::Count(1, 65536),
        default: "64",
        section: "Engine",
        commands: SCHEDULING,
        reach: Reach::Everywhere,
        help: "Most sequences in the pool of `split` that answers.",
        set: |config, value| {
            config.engine.tuning.stages.decode = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "kv-cache-memory",
        short: None,
        kind: Kind::Bytes,
        default: "",
        section: "Engine",
        commands: ENGINE,
        reach: Reach::Everywhere,
        help: "Memory for keys and values. Otherwise a share of what the machine has.",
        set: |config, value| {
            config.engine.kv_cache_memory = Some(value.count());
            Ok(())
        },
    },
    Setting {
        name: "swap-space",
        short: None,
        kind: Kind::Bytes,
        default: "",
        section: "Engine",
        commands: ENGINE,
        reach: Reach::Everywhere,
        help: "Memory of the host for keys and values of requests that have to wait for others. Otherwise a tenth of what is left, at most 4 GB; 0 is none.",
        set: |config, value| {
            config.engine.swap_space = Some(value.count());
            Ok(())
        },
    },
    Setting {
        name: "preemption-mode",
        short: None,
        kind: Kind::Choice(&["auto", "swap", "recompute"]),
        default: "auto",
        section: "Engine",
        commands: ENGINE,
        reach: Reach::Everywhere,
        help: "What becomes of the keys and values of requests that have to wait: moved, computed again, or what takes less time.",
        set: |config, value| {
            config.engine.preemption = match value.text().as_str() {
                "swap" => PreemptionPolicy::Swap,
                "recompute" => PreemptionPolicy::Recompute,
                _ => PreemptionPolicy::Auto,
            };
            Ok(())
        },
    },
    Setting {
        name: "cache-dir",
        short: None,
        kind: Kind::Text("DIR"),
        default: "",
        section: "Engine",
        commands: CACHED,
        reach: Reach::Everywhere,
        help: "Directory for blocks of keys and values that outlive the process. Without it they are forgotten at the end.",
        set: |config, value| {
            config.engine.disk.get_or_insert_default().directory = value.text().into();
            Ok(())
        },
    },
    Setting {
        name: "cache-disk-limit",
        short: None,
        kind: Kind::Bytes,
        default: "",
        section: "Engine",
        commands: ENGINE,
        reach: Reach::Everywhere,
        help: "Bytes that `--cache-dir` may take; what was used longest ago goes first. Otherwise 10 GB.",
        set: |config, value| {
            config.engine.disk.get_or_insert_default().limit_bytes = value.count();
            Ok(())
        },
    },
    Setting {
        name: "block-size",
        short: None,
        kind: Kind::Count(1, 4096),
        default: "32",
        section: "Engine",
        commands: STEPS,
        reach: Reach::Everywhere,
        help: "Tokens of a block of keys and values.",
        set: |config, value| {
            config.engine.block_size = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "kv-bits",
        short: None,
        kind: Kind::Choice(&["4", "8"]),
        default: "",
        section: "Engine",
        commands: ENGINE,
        reach: Reach::Everywhere,
        help: "Bits in which each element of keys and values is kept. Otherwise floats.",
        set: |config, value| {
            config.engine.kv_bits = Some(value.text().parse().map_err(|_| "not a number".to_owned())?);
            Ok(())
        },
    },
    Setting {
        name: "kv-group-size",
        short: None,
        kind: Kind::Choice(&["32", "64", "128"]),
        default: "64",
        section: "Engine",
        commands: ENGINE,
        reach: Reach::Everywhere,
        help: "Most elements that share a scale, with --kv-bits. The largest that divides the heads is taken.",
        set: |config, value| {
            config.engine.kv_group_size = value.text().parse().map_err(|_| "not a number".to_owned())?;
            Ok(())
        },
    },
    Setting {
        name: "quantized-kv-start",
        short: None,
        kind: Kind::Count(0, MAX),
        default: "0",
        section: "Engine",
        commands: ENGINE,
        reach: Reach::Everywhere,
        help: "With --kv-bits, let the first so many tokens of a sequence see floats; a sequence that is no longer is as without.",
        set: |config, value| {
            config.engine.quantized_kv_start = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "max-kv-size",
        short: None,
        kind: Kind::Count(8, MAX),
        default: "",
        section: "Engine",
        commands: ENGINE,
        reach: Reach::Everywhere,
        help: "Positions that a token sees: the first four and the last ones. Bounds the memory of long sequences.",
        set: |config, value| {
            config.engine.max_kv_size = Some(value.count() as usize);
            Ok(())
        },
    },
    Setting {
        name: "prefix-cache",
        short: None,
        kind: Kind::Choice(&["on", "off"]),
        default: "on",
        section: "Engine",
        commands: STEPS,
        reach: Reach::Everywhere,
        help: "Whether equal beginnings of prompts are computed once.",
        set: |config, value| {
            config.engine.prefix_cache =
                if value.text() == "off" { PrefixCache::Off } else { PrefixCache::On };
            Ok(())
        },
    },
    Setting {
        name: "session-ttl",
        short: None,
        kind: Kind::Number(0.0, 1e9),
        default: "3600",
        section: "Engine",
        commands: SERVE,
        reach: Reach::Everywhere,
        help: "Seconds without a request after which the blocks of a `session_id` are no longer kept before others.",
        set: |config, value| {
            config.engine.session_ttl_s = value.number();
            Ok(())
        },
    },
    Setting {
        name: "warm-prompts",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Engine",
        commands: SERVE,
        reach: Reach::Everywhere,
        help: "File of prompts to compute before serving: a system prompt, or JSON lines with `system`, `prompt` or `messages`.",
        set: |config, value| {
            config.listen.warm_prompts = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "in-process",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Engine",
        commands: SERVE,
        reach: Reach::Everywhere,
        help: "Run the engine in the server's own process. What ends the engine then ends the server.",
        set: |config, value| {
            config.isolation.isolate = if value.is_on() { Isolate::Nothing } else { Isolate::Process };
            Ok(())
        },
    },
    Setting {
        name: "watchdog-s",
        short: None,
        kind: Kind::Number(0.1, 1e6),
        default: "120",
        section: "Engine",
        commands: SERVE,
        reach: Reach::Everywhere,
        help: "Seconds after which an engine that has work and does not get on is started again.",
        set: |config, value| {
            config.isolation.watchdog_s = value.number();
            Ok(())
        },
    },
    Setting {
        name: "mlx-lib-dir",
        short: None,
        kind: Kind::Text("DIR"),
        default: "",
        section: "Engine",
        commands: SERVE,
        reach: Reach::Everywhere,
        help: "Folder of the libmlx that the engine loads, whatever the device. Otherwise the one the binary was built with.",
        set: |config, value| {
            config.isolation.folder = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "mlx-lib-cpu",
        short: None,
        kind: Kind::Text("DIR"),
        default: "",
        section: "Engine",
        commands: SERVE,
        reach: Reach::Everywhere,
        help: "Folder of a libmlx for the CPU, for `--device cpu`, and for `auto` without an NVIDIA GPU.",
        set: |config, value| {
            config.isolation.cpu_folder = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "mlx-lib-cuda",
        short: None,
        kind: Kind::Text("DIR"),
        default: "",
        section: "Engine",
        commands: SERVE,
        reach: Reach::Everywhere,
        help: "Folder of a libmlx for CUDA, for `--device gpu`, and for `auto` with an NVIDIA GPU.",
        set: |config, value| {
            config.isolation.cuda_folder = Some(value.text().into());
            Ok(())
        },
    },
];
