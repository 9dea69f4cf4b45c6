//! The table of commands.

use crate::command_name::CommandName;

/// One row of the table.
pub struct Spec {
    /// The name in code.
    pub name: CommandName,
    /// The words on the command line.
    pub path: &'static [&'static str],
    /// One sentence.
    pub about: &'static str,
    /// Its positional argument.
    pub argument: Option<Argument>,
}

/// A positional argument.
#[derive(Clone, Copy)]
pub struct Argument {
    /// The name in code.
    pub name: &'static str,
    /// Its placeholder in help.
    pub placeholder: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// Smallest and largest number of values.
    pub count: (usize, usize),
    /// The accepted values; empty accepts any.
    pub choices: &'static [&'static str],
}

/// A model, which `-m` names as well.
const ONE_MODEL: Argument = Argument {
    name: "MODEL",
    placeholder: "MODEL",
    help: "Model directory, or `org/name[@revision]` on the hub; also by -m. Default: the model embedded in this binary.",
    count: (0, 1),
    choices: &[],
};

/// Models, the one or the last of which `-m` names as well.
const MODELS: Argument = Argument {
    name: "MODEL",
    placeholder: "MODEL",
    help: "Model directory, or `org/name[@revision]` on the hub; a single one also by -m. Default: the model embedded in this binary.",
    count: (0, 64),
    choices: &[],
};

/// A model of a running server.
const SERVED_MODEL: Argument = Argument {
    name: "MODEL",
    placeholder: "MODEL",
    help: "A served name; also by -m. Default: the first served one.",
    count: (0, 1),
    choices: &[],
};

/// Every command.
pub const COMMANDS: &[Spec] = &[
    Spec {
        name: CommandName::Serve,
        path: &["serve"],
        about: "Serve models over HTTP",
        argument: Some(MODELS),
    },
    Spec {
        name: CommandName::Generate,
        path: &["generate"],
        about: "Complete one prompt",
        argument: Some(Argument {
            name: "PROMPT",
            placeholder: "PROMPT",
            help: "The prompt; also by -p, and then this is the model, which is named by -m otherwise. `-` reads the prompt from stdin.",
            count: (0, 1),
            choices: &[],
        }),
    },
    Spec {
        name: CommandName::Chat,
        path: &["chat"],
        about: "Chat in the terminal",
        argument: Some(ONE_MODEL),
    },
    Spec {
        name: CommandName::Run,
        path: &["run"],
        about: "Chat with a model, or complete one prompt: `run MODEL [PROMPT]`",
        argument: Some(Argument {
            name: "MODEL",
            placeholder: "MODEL",
            help: "The model, unless -m names it, and then the prompt. Without one, a terminal has a chat; elsewhere stdin has the prompt.",
            count: (0, 1024),
            choices: &[],
        }),
    },
    Spec {
        name: CommandName::Ps,
        path: &["ps"],
        about: "Show the models and the requests of a running server",
        argument: None,
    },
    Spec {
        name: CommandName::Batch,
        path: &["batch"],
        about: "Answer a file of requests, going on where an earlier run ended: `batch [MODEL] -i FILE -o FILE`",
        argument: Some(ONE_MODEL),
    },
    Spec {
        name: CommandName::Launch,
        path: &["launch"],
        about: "Start a coding agent with a running server, or with a server of its own: `launch AGENT [-- ARGUMENTS]`",
        argument: Some(Argument {
            name: "AGENT",
            placeholder: "AGENT",
            help: "claude, codex, opencode, qwen, copilot or aider, and then arguments for it, after `--`. No file of the agent's own configuration is changed.",
            count: (1, 1024),
            choices: &[],
        }),
    },
    Spec {
        name: CommandName::Replay,
        path: &["replay"],
        about: "Send recorded requests again, and compare the answers",
        argument: Some(Argument {
            name: "DIR",
            placeholder: "DIR",
            help: "The folder that `serve --record DIR` wrote. Exit code 1 when an answer with a seed or at temperature 0 differs, or a status.",
            count: (1, 1),
            choices: &[],
        }),
    },
    Spec {
        name: CommandName::Convert,
        path: &["convert"],
        about: "Write a model in mlx-lm's layout: quantized, cast or dequantized",
        argument: Some(Argument {
            name: "MODEL",
            placeholder: "MODEL",
            help: "Model directory, or `org/name[@revision]` on the hub; also by -m or --hf-path.",
            count: (0, 1),
            choices: &[],
        }),
    },
    Spec {
        name: CommandName::Perplexity,
        path: &["perplexity"],
        about: "Measure how well models and quantizations of them predict a text",
        argument: Some(MODELS),
    },
    Spec {
        name: CommandName::Models,
        path: &["models"],
        about: "List the supported model architectures",
        argument: None,
    },
    Spec {
        name: CommandName::Plan,
        path: &["plan"],
        about: "Say whether a model fits before it is downloaded: its size, its memory, the context and the streams",
        argument: Some(Argument {
            name: "MODEL",
            placeholder: "MODEL",
            help: "org/name on the hub, of which the list of files and config.json are read, a directory, or a GGUF file; also by -m.",
            count: (0, 1),
            choices: &[],
        }),
    },
    Spec {
        name: CommandName::Doctor,
        path: &["doctor"],
        about: "Check this machine and suggest fixes",
        argument: None,
    },
    Spec {
        name: CommandName::BenchServe,
        path: &["bench", "serve"],
        about: "Benchmark a server: latency percentiles and throughput",
        argument: Some(SERVED_MODEL),
    },
    Spec {
        name: CommandName::BenchPrefix,
        path: &["bench", "prefix"],
        about: "Benchmark a server's prefix cache: time to first token of new prompts, and of prompts whose first half was sent before",
        argument: Some(SERVED_MODEL),
    },
    Spec {
        name: CommandName::BenchEngine,
        path: &["bench", "engine"],
        about: "Benchmark the engine in this process: time per step beside the device's limits",
        argument: Some(ONE_MODEL),
    },
    Spec {
        name: CommandName::BenchSpeculation,
        path: &["bench", "speculation"],
        about: "Benchmark speculative decoding: speed with and without draft tokens, and how many are accepted",
        argument: Some(ONE_MODEL),
    },
    Spec {
        name: CommandName::BenchEnergy,
        path: &["bench", "energy"],
        about: "Benchmark energy: tokens per joule at several numbers of streams, with draft tokens and with cached prompts",
        argument: Some(ONE_MODEL),
    },
    Spec {
        name: CommandName::BenchReport,
        path: &["bench", "report"],
        about: "Compare this server with itself without some of its parts, and with other servers, on several loads in one report",
        argument: Some(ONE_MODEL),
    },
    Spec {
        name: CommandName::BenchCompare,
        path: &["bench", "compare"],
        about: "Compare two reports: `bench compare BEFORE.json AFTER.json`",
        argument: Some(Argument {
            name: "FILE",
            placeholder: "FILE",
            help: "The `report.json` before, and then the one after.",
            count: (2, 2),
            choices: &[],
        }),
    },
    Spec {
        name: CommandName::BenchSim,
        path: &["bench", "sim"],
        about: "Compare scheduling policies in a simulation",
        argument: None,
    },
    Spec {
        name: CommandName::CachePrompt,
        path: &["cache", "prompt"],
        about: "Compute a prompt and write its KV cache to a file that `generate` and mlx-lm can load",
        argument: Some(ONE_MODEL),
    },
    Spec {
        name: CommandName::CacheList,
        path: &["cache", "ls"],
        about: "List the blocks in --cache-dir, by model",
        argument: None,
    },
    Spec {
        name: CommandName::CacheRemove,
        path: &["cache", "rm"],
        about: "Remove blocks from --cache-dir",
        argument: Some(Argument {
            name: "MODEL",
            placeholder: "MODEL",
            help: "Model fingerprint, as listed by `cache ls`. Default: all models.",
            count: (0, 64),
            choices: &[],
        }),
    },
    Spec {
        name: CommandName::Pull,
        path: &["pull"],
        about: "Download models from the hub into the cache",
        argument: Some(Argument {
            name: "MODEL",
            placeholder: "MODEL",
            help: "`org/name[@revision]`; a single one also by -m.",
            count: (0, 64),
            choices: &[],
        }),
    },
    Spec {
        name: CommandName::Push,
        path: &["push"],
        about: "Upload a model's folder to the hub: `push DIRECTORY org/name`",
        argument: Some(Argument {
            name: "DIRECTORY",
            placeholder: "DIRECTORY",
            help: "The folder, and then the repository, which is created where there is none.",
            count: (2, 2),
            choices: &[],
        }),
    },
    Spec {
        name: CommandName::ListModels,
        path: &["ls"],
        about: "List the models in the hub's cache",
        argument: None,
    },
    Spec {
        name: CommandName::ListModels,
        path: &["list"],
        about: "List the models in the hub's cache, as `ls` does",
        argument: None,
    },
    Spec {
        name: CommandName::RemoveModels,
        path: &["rm"],
        about: "Remove models from the hub's cache",
        argument: Some(Argument {
            name: "MODEL",
            placeholder: "MODEL",
            help: "`org/name`, as listed by `ls`; all its revisions are removed. A single one also by -m.",
            count: (0, 64),
            choices: &[],
        }),
    },
    Spec {
        name: CommandName::McpList,
        path: &["mcp", "ls"],
        about: "Start the MCP servers of --mcp-config, and list their tools with the hashes of their definitions",
        argument: None,
    },
    Spec {
        name: CommandName::McpCall,
        path: &["mcp", "call"],
        about: "Call a tool of an MCP server: `mcp call SERVER/TOOL [JSON]`",
        argument: Some(Argument {
            name: "TOOL",
            placeholder: "TOOL",
            help: "`server/tool`, or the name that `mcp ls` shows, and then the arguments as a JSON object.",
            count: (1, 2),
            choices: &[],
        }),
    },
    Spec {
        name: CommandName::ServiceInstall,
        path: &["service", "install"],
        about: "Run the server as a service: `service install [-- ARGUMENTS]`",
        argument: Some(Argument {
            name: "ARGUMENT",
            placeholder: "ARGUMENT",
            help: "Models and flags of `serve`, after `--`. Keys are given by --api-key-file only.",
            count: (0, 1024),
            choices: &[],
        }),
    },
    Spec {
        name: CommandName::ServiceUninstall,
        path: &["service", "uninstall"],
        about: "Stop the service and remove its files",
        argument: None,
    },
    Spec {
        name: CommandName::ServiceStatus,
        path: &["service", "status"],
        about: "Show whether the service runs",
        argument: None,
    },
    Spec {
        name: CommandName::ServiceLogs,
        path: &["service", "logs"],
        about: "Show what the service logs",
        argument: None,
    },
    Spec {
        name: CommandName::Completions,
        path: &["completions"],
        about: "Print a shell completion script",
        argument: Some(Argument {
            name: "SHELL",
            placeholder: "SHELL",
            help: "The shell.",
            count: (1, 1),
            choices: &["bash", "elvish", "fish", "powershell", "zsh"],
        }),
    },
];
