//! Settings of the engine: scheduling, KV cache, and its process.

use omnibus_engine::{
    AsyncScheduling, DraftPolicy, DraftSource, PreemptionPolicy, PrefixCache, Schedule, WarmUp, WiredLimit,
};

use super::{
    BATCH_SIZE, CACHE_DIR, DRAFTED, GENERATING, LARGE_MODEL, LIBRARY, LOADED_ENGINE, LOCAL_ENGINE, MAX,
    SCHEDULER_BASICS, SCHEDULING, SERVE, TEXT, choose, microseconds,
};
use crate::settings::config::EngineIsolation;
use crate::settings::{Kind, Scope, Setting, Value, choice, program};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "max-num-seqs",
        short: None,
        kind: Kind::Count(1, 65536),
        default: "64",
        section: "Engine",
        commands: BATCH_SIZE,
        scope: Scope::Everywhere,
        help: "Most sequences in one step.",
        set: |config, value| {
            config.engine.max_num_seqs = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "async-scheduling",
        short: None,
        kind: Kind::Choice(&[
            choice("auto", |config| config.engine.async_scheduling = AsyncScheduling::Auto),
            choice("on", |config| config.engine.async_scheduling = AsyncScheduling::On),
            choice("off", |config| config.engine.async_scheduling = AsyncScheduling::Off),
        ]),
        default: "auto",
        section: "Engine",
        commands: SCHEDULER_BASICS,
        scope: Scope::Everywhere,
        help: "Launch a step while the previous one still computes, where kernels allow it; `auto` does so on GPUs. No gain on the CPU, where each token is sent one step later.",
        set: choose,
    },
    Setting {
        name: "draft",
        short: None,
        kind: Kind::Choice(&[
            choice("auto", |config| config.engine.speculation.source = DraftSource::Auto),
            choice("off", |config| config.engine.speculation.source = DraftSource::Off),
            choice("ngram", |config| config.engine.speculation.source = DraftSource::Ngram),
            choice("model", |config| config.engine.speculation.source = DraftSource::Model),
            choice("mtp", |config| config.engine.speculation.source = DraftSource::Mtp),
            choice("eagle3", |config| config.engine.speculation.source = DraftSource::Eagle3),
            choice("dflash", |config| config.engine.speculation.source = DraftSource::Dflash),
        ]),
        default: "auto",
        section: "Engine",
        commands: GENERATING,
        scope: Scope::Everywhere,
        help: "Speculative decoding: where draft tokens come from. `ngram` drafts what followed the same tokens before, in the request and in recent answers with its `cache_salt`; `model` asks the model of `--draft-model`, `eagle3` and `dflash` the EAGLE-3 or DFlash head of `--draft-model`, `mtp` the head that the model's own checkpoint has for further tokens. `auto` is, where there is a model or a head, whichever of it and `ngram` makes tokens faster, else `ngram`; on a GPU a checkpoint's own head is used where `mtp` names it. On a CPU it changes no token, on a GPU no more than another batch does, and it drafts only where that is measured to be faster.",
        set: choose,
    },
    Setting {
        name: "draft-model",
        short: None,
        kind: Kind::Text("MODEL"),
        default: "",
        section: "Engine",
        commands: DRAFTED,
        scope: Scope::Everywhere,
        help: "Speculative decoding: a smaller model with the same vocabulary, or an EAGLE-3 or DFlash head, as a directory or `org/name[@revision]` on the hub, whose tokens the target model verifies. Its keys and values share the memory of `--kv-cache-memory`.",
        set: |config, value| {
            config.engine.speculation.draft_model = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "draft-policy",
        short: None,
        kind: Kind::Choice(&[
            choice("adaptive", |config| config.engine.tuning.drafts = DraftPolicy::Adaptive),
            choice("all", |config| config.engine.tuning.drafts = DraftPolicy::All),
        ]),
        default: "adaptive",
        section: "Engine",
        commands: GENERATING,
        scope: Scope::Everywhere,
        help: "How many draft tokens are verified: as many as make tokens faster by what was measured, or all, to measure how many are accepted.",
        set: choose,
    },
    Setting {
        name: "num-draft-tokens",
        short: None,
        kind: Kind::Count(1, 256),
        default: "16",
        section: "Engine",
        commands: GENERATING,
        scope: Scope::Everywhere,
        help: "Most draft tokens of a request in one step.",
        set: |config, value| {
            config.engine.speculation.num_draft_tokens = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "warm-up",
        short: None,
        kind: Kind::Choice(&[
            choice("auto", |config| config.engine.warm_up = WarmUp::Auto),
            choice("on", |config| config.engine.warm_up = WarmUp::On),
            choice("off", |config| config.engine.warm_up = WarmUp::Off),
        ]),
        default: "auto",
        section: "Engine",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Run warm-up steps after loading a model; `auto` does so on GPUs, which compile kernels at first use.",
        set: choose,
    },
    Setting {
        name: "max-num-batched-tokens",
        short: None,
        kind: Kind::Count(1, MAX),
        default: "",
        section: "Engine",
        commands: SCHEDULER_BASICS,
        scope: Scope::Everywhere,
        help: "Most tokens computed in one step. Lower values reduce latency, higher ones raise throughput. Default: 512 on a CPU, 2048 on a GPU.",
        set: |config, value| {
            config.engine.max_num_batched_tokens = Some(value.count() as usize);
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
        scope: Scope::Everywhere,
        help: "Most requests in the queue. Further ones get status 429.",
        set: |config, value| {
            config.engine.max_queue = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "max-logprobs",
        short: None,
        kind: Kind::CountOrAll(1 << 20),
        default: "20",
        section: "Engine",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Most alternatives of a token whose log-probabilities may be requested. -1 is the whole vocabulary, which a request then gets with -1.",
        set: |config, value| {
            config.engine.max_logprobs = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "schedule",
        short: None,
        kind: Kind::Choice(&[
            choice("fair", |config| config.engine.schedule = Schedule::Fair),
            choice("fcfs", |config| config.engine.schedule = Schedule::Fcfs),
            choice("static", |config| config.engine.schedule = Schedule::Static),
            choice("split", |config| config.engine.schedule = Schedule::Split),
        ]),
        default: "fair",
        section: "Engine",
        commands: LOADED_ENGINE,
        scope: Scope::Everywhere,
        help: "Scheduling policy: `fair` chunks prefill so that decode keeps its target latency, and is round-robin among API keys; `fcfs` is first come, first served; `static` runs each batch to its end; `split` runs prefill and decode in separate steps.",
        set: choose,
    },
    Setting {
        name: "ttft-slo-ms",
        short: None,
        kind: Kind::Number(0.001, 1e9),
        default: "",
        section: "Engine",
        commands: SCHEDULING,
        scope: Scope::Everywhere,
        help: "Target time to first token of `fair`, in milliseconds. Default: 2000.",
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
        scope: Scope::Everywhere,
        help: "Target time per output token of `fair`, in milliseconds. Default: four times a decode step, at least 50.",
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
        scope: Scope::Everywhere,
        help: "Sequences per batch of `static`.",
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
        scope: Scope::Everywhere,
        help: "Milliseconds after which `static` starts a batch that is not full.",
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
        scope: Scope::Everywhere,
        help: "Most sequences in the prefill pool of `split`.",
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
        scope: Scope::Everywhere,
        help: "Most sequences in the decode pool of `split`.",
        set: |config, value| {
            config.engine.tuning.stages.decode = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "memory-limit",
        short: None,
        kind: Kind::BytesOr(&[choice("auto", |config| config.engine.memory_limit = None)]),
        default: "auto",
        section: "Engine",
        commands: LOCAL_ENGINE,
        scope: Scope::Everywhere,
        help: "Most memory for weights, KV cache and scratch together. `auto`: what the device and the system have; on a Mac 8 GiB or a quarter of the memory, whichever is more, but at most half of it, are left to other programs.",
        set: |config, value| {
            match value {
                Value::Choice(word) => (word.apply)(config),
                bytes => config.engine.memory_limit = Some(bytes.count()),
            }
            Ok(())
        },
    },
    Setting {
        name: "wired-limit",
        short: None,
        kind: Kind::BytesOr(&[
            choice("off", |config| config.engine.wired_limit = WiredLimit::Off),
            choice("weights", |config| config.engine.wired_limit = WiredLimit::Weights),
        ]),
        default: "off",
        section: "Engine",
        commands: LOCAL_ENGINE,
        scope: Scope::Everywhere,
        help: "Memory that macOS may not page out while the model is idle, since macOS 15. `weights`: as much as the weights take.",
        set: |config, value| {
            match value {
                Value::Choice(word) => (word.apply)(config),
                bytes => config.engine.wired_limit = WiredLimit::Bytes(bytes.count()),
            }
            Ok(())
        },
    },
    Setting {
        name: "expert-memory",
        short: None,
        kind: Kind::Bytes,
        default: "",
        section: "Engine",
        commands: LARGE_MODEL,
        scope: Scope::Everywhere,
        help: "Most memory for the experts of a mixture; the others stay in the model's files and are read when chosen. On a CPU. Default: all are resident.",
        set: |config, value| {
            config.engine.expert_memory = Some(value.count());
            Ok(())
        },
    },
    Setting {
        name: "kv-cache-memory",
        short: None,
        kind: Kind::Bytes,
        default: "",
        section: "Engine",
        commands: LOCAL_ENGINE,
        scope: Scope::Everywhere,
        help: "Memory for the KV cache. Default: a share of the machine's memory.",
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
        commands: LOCAL_ENGINE,
        scope: Scope::Everywhere,
        help: "Host memory for KV blocks of preempted requests. Default: a tenth of the remaining memory, at most 4 GB; 0 disables swapping.",
        set: |config, value| {
            config.engine.swap_space = Some(value.count());
            Ok(())
        },
    },
    Setting {
        name: "media-cache-memory",
        short: None,
        kind: Kind::Bytes,
        default: "256MiB",
        section: "Engine",
        commands: LOCAL_ENGINE,
        scope: Scope::Everywhere,
        help: "Memory for the features of images, so that one that comes again is not encoded again. Models without an encoder take none.",
        set: |config, value| {
            config.engine.media_cache_memory = value.count();
            Ok(())
        },
    },
    Setting {
        name: "ffmpeg",
        short: None,
        kind: Kind::Text("PROGRAM"),
        default: "",
        section: "Engine",
        commands: LOCAL_ENGINE,
        scope: Scope::Everywhere,
        help: "An ffmpeg, as a path or a name on the search path, for videos that no library here decodes, and for images in AVIF and HEIC. Default: they are refused.",
        set: |config, value| {
            config.engine.ffmpeg = Some(program::find(&value.text())?);
            Ok(())
        },
    },
    Setting {
        name: "preemption-mode",
        short: None,
        kind: Kind::Choice(&[
            choice("auto", |config| config.engine.preemption = PreemptionPolicy::Auto),
            choice("swap", |config| config.engine.preemption = PreemptionPolicy::Swap),
            choice("recompute", |config| config.engine.preemption = PreemptionPolicy::Recompute),
        ]),
        default: "auto",
        section: "Engine",
        commands: LOCAL_ENGINE,
        scope: Scope::Everywhere,
        help: "Preemption of requests: `swap` their KV blocks to host memory, `recompute` them, or `auto`, which takes the faster way.",
        set: choose,
    },
    Setting {
        name: "cache-dir",
        short: None,
        kind: Kind::Text("DIR"),
        default: "",
        section: "Engine",
        commands: CACHE_DIR,
        scope: Scope::Everywhere,
        help: "Directory for KV blocks of cached prefixes, which survive restarts. Default: none.",
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
        commands: TEXT,
        scope: Scope::Everywhere,
        help: "Most bytes in --cache-dir; least recently used blocks are evicted first. Default: 10 GB.",
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
        commands: SCHEDULER_BASICS,
        scope: Scope::Everywhere,
        help: "Tokens per KV block.",
        set: |config, value| {
            config.engine.block_size = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "kv-bits",
        short: None,
        kind: Kind::Choice(&[
            choice("4", |config| config.engine.kv_bits = Some(4)),
            choice("8", |config| config.engine.kv_bits = Some(8)),
        ]),
        default: "",
        section: "Engine",
        commands: LOCAL_ENGINE,
        scope: Scope::Everywhere,
        help: "Bits per element of a quantized KV cache. Default: not quantized.",
        set: choose,
    },
    Setting {
        name: "kv-group-size",
        short: None,
        kind: Kind::Choice(&[
            choice("32", |config| config.engine.kv_group_size = 32),
            choice("64", |config| config.engine.kv_group_size = 64),
            choice("128", |config| config.engine.kv_group_size = 128),
        ]),
        default: "64",
        section: "Engine",
        commands: LOCAL_ENGINE,
        scope: Scope::Everywhere,
        help: "Group size of a quantized KV cache: the largest that divides the head size, up to this value.",
        set: choose,
    },
    Setting {
        name: "quantized-kv-start",
        short: None,
        kind: Kind::Count(0, MAX),
        default: "0",
        section: "Engine",
        commands: LOCAL_ENGINE,
        scope: Scope::Everywhere,
        help: "With --kv-bits, the number of first tokens of each sequence whose KV cache is not quantized.",
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
        commands: LOCAL_ENGINE,
        scope: Scope::Everywhere,
        help: "Most positions in a sequence's KV cache: the first four and the most recent ones. Bounds the memory of long sequences.",
        set: |config, value| {
            config.engine.max_kv_size = Some(value.count() as usize);
            Ok(())
        },
    },
    Setting {
        name: "prefix-cache",
        short: None,
        kind: Kind::Choice(&[
            choice("on", |config| config.engine.prefix_cache = PrefixCache::On),
            choice("off", |config| config.engine.prefix_cache = PrefixCache::Off),
        ]),
        default: "on",
        section: "Engine",
        commands: SCHEDULER_BASICS,
        scope: Scope::Everywhere,
        help: "Reuse the KV blocks of common prompt prefixes.",
        set: choose,
    },
    Setting {
        name: "session-ttl",
        short: None,
        kind: Kind::Number(0.0, 1e9),
        default: "3600",
        section: "Engine",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Seconds without a request after which the blocks of a `session_id` are no longer pinned.",
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
        scope: Scope::Everywhere,
        help: "File with prompts to compute before serving: a system prompt, or JSON lines with `system`, `prompt` or `messages`.",
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
        scope: Scope::Everywhere,
        help: "Run the engine in the server's process. A crash of the engine then ends the server.",
        set: |config, value| {
            config.isolation.mode =
                if value.is_on() { EngineIsolation::InProcess } else { EngineIsolation::Process };
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
        scope: Scope::Everywhere,
        help: "Seconds without progress after which a busy engine process is restarted, and `/health` answers 503. With `--in-process`, `/health` always uses 120 s.",
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
        commands: LIBRARY,
        scope: Scope::Everywhere,
        help: "Folder of the libmlx that is loaded, for any device. Default: the first of LD_LIBRARY_PATH, of the folders beside the binary and of its Python's packages, or the one that it was built with.",
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
        commands: LIBRARY,
        scope: Scope::Everywhere,
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
        commands: LIBRARY,
        scope: Scope::Everywhere,
        help: "Folder of a libmlx for CUDA, for `--device gpu`, and for `auto` with an NVIDIA GPU.",
        set: |config, value| {
            config.isolation.cuda_folder = Some(value.text().into());
            Ok(())
        },
    },
];
