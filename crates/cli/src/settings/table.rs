//! Every setting. The flag, the variable, the key in `omnibus.toml`, `--help` and docs/cli.md are
//! all made from this.

use omnibus_engine::{DeviceChoice, Preemption, PrefixCache, Schedule};

use super::config::{Dataset, Endpoint, Isolate, LogFormat, Output, PromptForm, Purpose, Report};
use super::{Kind, Reach, Setting, Value};
use crate::commands::Name;

const SERVE: &[Name] = &[Name::Serve];
const ENGINE: &[Name] = &[Name::Serve, Name::Generate, Name::Chat, Name::CachePrompt];
/// All that are given one prompt.
const PROMPT: &[Name] = &[Name::Generate, Name::CachePrompt];
const WORDS: &[Name] = &[Name::Generate, Name::Chat];
/// All that have to do with `--cache-dir`.
const CACHED: &[Name] = &[Name::Serve, Name::Generate, Name::Chat, Name::CacheList, Name::CacheRemove];
const BENCH: &[Name] = &[Name::BenchServe];
const SIM: &[Name] = &[Name::BenchSim];
const TRAFFIC: &[Name] = &[Name::BenchServe, Name::BenchSim];
const SCHEDULING: &[Name] = &[Name::Serve, Name::BenchSim];
const STEPS: &[Name] = &[Name::Serve, Name::Generate, Name::Chat, Name::CachePrompt, Name::BenchSim];
const JSON: &[Name] = &[Name::Models, Name::Doctor, Name::CacheList, Name::BenchServe, Name::BenchSim];

const MAX: u64 = i32::MAX as u64;

/// Of a setting in milliseconds.
fn microseconds(value: &Value) -> u64 {
    (value.number() * 1e3).round() as u64
}

/// Every setting.
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
    Setting {
        name: "model",
        short: Some('m'),
        kind: Kind::Text("MODEL"),
        default: "",
        section: "Model",
        commands: &[Name::Generate, Name::Chat, Name::CachePrompt, Name::BenchServe],
        reach: Reach::Flag,
        help: "Model directory; for `bench serve` a served name. Without it, the embedded model or the first served.",
        set: |config, value| {
            config.model = Some(value.text());
            Ok(())
        },
    },
    Setting {
        name: "served-model-name",
        short: None,
        kind: Kind::List("NAME"),
        default: "",
        section: "Model",
        commands: SERVE,
        reach: Reach::Everywhere,
        help: "What clients call the model; may be repeated, the first is listed. Otherwise the directory's name.",
        set: |config, value| {
            config.served_names = value.list();
            Ok(())
        },
    },
    Setting {
        name: "chat-template",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Model",
        commands: ENGINE,
        reach: Reach::Everywhere,
        help: "File with a chat template to use instead of the model's own.",
        set: |config, value| {
            let path = value.text();
            let read =
                std::fs::read_to_string(&path).map_err(|error| format!("cannot read `{path}`: {error}"));
            config.engine.chat_template = Some(read?);
            Ok(())
        },
    },
    Setting {
        name: "max-model-len",
        short: None,
        kind: Kind::Count(1, MAX),
        default: "",
        section: "Model",
        commands: ENGINE,
        reach: Reach::Everywhere,
        help: "Longest sequence, prompt and answer together, in tokens. Otherwise what the model was trained for, or what memory holds.",
        set: |config, value| {
            config.engine.max_model_len = Some(value.count() as usize);
            Ok(())
        },
    },
    Setting {
        name: "device",
        short: None,
        kind: Kind::Choice(&["auto", "gpu", "cpu"]),
        default: "auto",
        section: "Model",
        commands: ENGINE,
        reach: Reach::Everywhere,
        help: "Where the model runs.",
        set: |config, value| {
            config.engine.device = match value.text().as_str() {
                "gpu" => DeviceChoice::Gpu,
                "cpu" => DeviceChoice::Cpu,
                _ => DeviceChoice::Auto,
            };
            Ok(())
        },
    },
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
            config.engine.tuning.pools.prefill = value.count() as usize;
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
            config.engine.tuning.pools.decode = value.count() as usize;
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
                "swap" => Preemption::Swap,
                "recompute" => Preemption::Recompute,
                _ => Preemption::Cheaper,
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
        help: "With --kv-bits, keep floats where --max-model-len allows no sequence longer than this.",
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
    Setting {
        name: "prompt",
        short: Some('p'),
        kind: Kind::Text("TEXT"),
        default: "",
        section: "Generation",
        commands: PROMPT,
        reach: Reach::Flag,
        help: "What to answer. `-` reads it from stdin.",
        set: |config, value| {
            config.prompt.text = Some(value.text());
            Ok(())
        },
    },
    Setting {
        name: "prompt-cache-file",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Generation",
        commands: PROMPT,
        reach: Reach::Flag,
        help: "Computed prompt in mlx-lm's format (*.safetensors): `cache prompt` writes it, `generate` goes on from it.",
        set: |config, value| {
            config.prompt.cache_file = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "system-prompt",
        short: None,
        kind: Kind::Text("TEXT"),
        default: "",
        section: "Generation",
        commands: &[Name::Generate, Name::Chat, Name::CachePrompt],
        reach: Reach::Flag,
        help: "What the model is told before the conversation.",
        set: |config, value| {
            config.prompt.system = Some(value.text());
            Ok(())
        },
    },
    Setting {
        name: "raw",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Generation",
        commands: PROMPT,
        reach: Reach::Flag,
        help: "Continue the prompt as it is, without the chat template.",
        set: |config, value| {
            config.prompt.form = if value.is_on() { PromptForm::Raw } else { PromptForm::Chat };
            Ok(())
        },
    },
    Setting {
        name: "max-tokens",
        short: None,
        kind: Kind::Count(1, MAX),
        default: "256",
        section: "Generation",
        commands: WORDS,
        reach: Reach::Everywhere,
        help: "Most tokens of an answer.",
        set: |config, value| {
            config.prompt.max_tokens = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "temp",
        short: None,
        kind: Kind::Number(0.0, 100.0),
        default: "0",
        section: "Generation",
        commands: WORDS,
        reach: Reach::Everywhere,
        help: "Temperature. 0 always takes the likeliest token.",
        set: |config, value| {
            config.prompt.sampling.temperature = value.number() as f32;
            Ok(())
        },
    },
    Setting {
        name: "top-p",
        short: None,
        kind: Kind::Number(0.0, 1.0),
        default: "1",
        section: "Generation",
        commands: WORDS,
        reach: Reach::Everywhere,
        help: "Keeps the smallest set of tokens whose probabilities reach it.",
        set: |config, value| {
            config.prompt.sampling.top_p = value.number() as f32;
            Ok(())
        },
    },
    Setting {
        name: "top-k",
        short: None,
        kind: Kind::Count(0, MAX),
        default: "0",
        section: "Generation",
        commands: WORDS,
        reach: Reach::Everywhere,
        help: "Keeps the likeliest tokens. 0 keeps all.",
        set: |config, value| {
            config.prompt.sampling.top_k = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "min-p",
        short: None,
        kind: Kind::Number(0.0, 1.0),
        default: "0",
        section: "Generation",
        commands: WORDS,
        reach: Reach::Everywhere,
        help: "Keeps tokens at least this fraction as likely as the likeliest.",
        set: |config, value| {
            config.prompt.sampling.min_p = value.number() as f32;
            Ok(())
        },
    },
    Setting {
        name: "seed",
        short: None,
        kind: Kind::Count(0, u64::MAX),
        default: "0",
        section: "Generation",
        commands: &[Name::Serve, Name::Generate, Name::Chat, Name::BenchServe, Name::BenchSim],
        reach: Reach::Everywhere,
        help: "Seeds what is drawn at random, where a request brings no seed of its own.",
        set: |config, value| {
            config.engine.seed = value.count();
            config.bench.seed = value.count();
            Ok(())
        },
    },
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
    Setting {
        name: "profile",
        short: None,
        kind: Kind::Text("PROFILE"),
        default: "m5-max-70b",
        section: "Simulation",
        commands: SIM,
        reach: Reach::Flag,
        help: "How long steps take: `m5-max-70b` (published throughput of a 70B model in 4 bits), `laptop`, or a file with the answer of a server's /v1/status.",
        set: |config, value| {
            config.sim.profile = value.text();
            Ok(())
        },
    },
    Setting {
        name: "workload",
        short: None,
        kind: Kind::Choice(&["sharegpt", "agents", "flood", "bursts", "long", "random"]),
        default: "sharegpt",
        section: "Simulation",
        commands: SIM,
        reach: Reach::Flag,
        help: "What is asked, and when. `random` is what `bench serve` sends: --input-len and --output-len are tokens.",
        set: |config, value| {
            config.sim.workload = value.text();
            Ok(())
        },
    },
    Setting {
        name: "trace",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Simulation",
        commands: SIM,
        reach: Reach::Flag,
        help: "File with a request a line to play instead, as JSON: `at` in microseconds, `prompt` and `max_new_tokens` in tokens; also `answer`, `priority`, `key`.",
        set: |config, value| {
            config.sim.trace = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "log-format",
        short: None,
        kind: Kind::Choice(&["text", "json"]),
        default: "text",
        section: "Output",
        commands: SERVE,
        reach: Reach::Everywhere,
        help: "How diagnostics look.",
        set: |config, value| {
            config.log.format = if value.text() == "json" { LogFormat::Json } else { LogFormat::Text };
            Ok(())
        },
    },
    Setting {
        name: "log",
        short: None,
        kind: Kind::Text("FILTER"),
        default: "info",
        section: "Output",
        commands: SERVE,
        reach: Reach::Everywhere,
        help: "Which diagnostics to show: error, warn, info, debug or trace, also by module.",
        set: |config, value| {
            config.log.filter = value.text();
            Ok(())
        },
    },
    Setting {
        name: "verbose",
        short: Some('v'),
        kind: Kind::Switch,
        default: "",
        section: "Output",
        commands: WORDS,
        reach: Reach::Everywhere,
        help: "Say tokens a second and peak memory, on stderr.",
        set: |config, value| {
            config.report = if value.is_on() { Report::Verbose } else { Report::Quiet };
            Ok(())
        },
    },
    Setting {
        name: "json",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Output",
        commands: JSON,
        reach: Reach::Flag,
        help: "Results as JSON.",
        set: |config, value| {
            config.output = if value.is_on() { Output::Json } else { Output::Text };
            Ok(())
        },
    },
    Setting {
        name: "config",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Output",
        commands: &[Name::Serve, Name::Generate, Name::Chat, Name::BenchServe],
        reach: Reach::Flag,
        help: "Settings file. Otherwise `omnibus.toml` in this folder, or in `omnibus/` of the user's configuration.",
        set: |_, _| Ok(()),
    },
    Setting {
        name: "print-config",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Output",
        commands: &[Name::Serve, Name::Generate, Name::Chat, Name::BenchServe],
        reach: Reach::Flag,
        help: "Show each setting and where it came from, and do nothing else.",
        set: |config, value| {
            config.purpose = if value.is_on() { Purpose::PrintConfig } else { Purpose::Work };
            Ok(())
        },
    },
];
