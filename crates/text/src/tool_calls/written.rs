//! How calls of a format are written: what a model is made to write when a call is certain.
//!
//! Each row says it as the models' templates do; the format's parser reads it. Literals may hold special tokens.

use super::ToolCallFormat;

/// How calls of a format are written. A message of calls is `begin`, the calls with `between` between them, and `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenCalls {
    /// The format's name.
    format: &'static str,
    /// The marker that begins a call wherever it stands in a message, and leaves no doubt. Empty if there is none. What is
    /// written begins with it, or has it before the name.
    pub marker: &'static str,
    /// Before the first call.
    pub begin: &'static str,
    /// Before the name.
    pub name: &'static str,
    /// Between the name and the arguments.
    pub arguments: &'static str,
    /// How the arguments are written.
    pub style: ArgumentStyle,
    /// Behind the arguments.
    pub call_end: &'static str,
    /// Between two calls. `None`: a message has one call.
    pub between: Option<&'static str>,
    /// Behind the last call.
    pub end: &'static str,
    /// Reasoning that may come before the calls, where it begins with what calls begin with.
    pub reasoning: Option<WrittenReasoning>,
}

/// How reasoning before calls is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenReasoning {
    /// Before it.
    pub begin: &'static str,
    /// What ends it.
    pub end: &'static str,
    /// Between its end and the calls.
    pub behind: &'static str,
}

/// How arguments are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentStyle {
    /// A JSON object.
    Json,
    /// A tag for each argument: strings as they are, other values as JSON.
    Parameters {
        /// Before a key.
        key: &'static str,
        /// Between the key and a value that is a string.
        value: &'static str,
        /// Between the key and another value.
        json: &'static str,
        /// Behind the value.
        end: &'static str,
    },
    /// Python's keyword arguments, with values as JSON.
    Keywords,
}

const fn json(
    format: &'static str,
    marker: &'static str,
    name: &'static str,
    call_end: &'static str,
) -> WrittenCalls {
    let arguments = "\", \"arguments\": ";
    WrittenCalls {
        format,
        marker,
        begin: "",
        name,
        arguments,
        style: ArgumentStyle::Json,
        call_end,
        between: None,
        end: "",
        reasoning: None,
    }
}

/// Calls as in Python, with keyword arguments.
const fn keywords(
    format: &'static str,
    marker: &'static str,
    begin: &'static str,
    between: &'static str,
    end: &'static str,
) -> WrittenCalls {
    WrittenCalls {
        begin,
        arguments: "(",
        style: ArgumentStyle::Keywords,
        between: Some(between),
        end,
        ..json(format, marker, "", ")")
    }
}

/// Calls as a JSON list of objects.
const fn list(
    format: &'static str,
    marker: &'static str,
    begin: &'static str,
    end: &'static str,
) -> WrittenCalls {
    let (name, between) = ("{\"name\": \"", Some(", "));
    WrittenCalls { begin, between, end, ..json(format, marker, name, "}") }
}

/// Every format whose calls can be made certain.
const WRITTEN: &[WrittenCalls] = &[
    WrittenCalls {
        between: Some("\n"),
        ..json("hermes", "<tool_call>", "<tool_call>\n{\"name\": \"", "}\n</tool_call>")
    },
    WrittenCalls {
        between: Some("\n"),
        ..json("ernie", "<tool_call>", "<tool_call>\n{\"name\": \"", "}\n</tool_call>")
    },
    WrittenCalls {
        between: Some("\n"),
        ..json(
            "longcat",
            "<longcat_tool_call>",
            "<longcat_tool_call>\n{\"name\": \"",
            "}\n</longcat_tool_call>",
        )
    },
    WrittenCalls { arguments: "\", \"parameters\": ", ..json("llama-3", "", "{\"name\": \"", "}") },
    json("json", "", "{\"name\": \"", "}"),
    list("xlam", "", "[", "]"),
    WrittenCalls {
        arguments: "\", \"parameters\": ",
        ..json("internlm", "<|action_start|>", "<|action_start|><|plugin|>\n{\"name\": \"", "}<|action_end|>")
    },
    list("nemotron", "<TOOLCALL>", "<TOOLCALL>[", "]</TOOLCALL>"),
    list("phi-4", "<|tool_call|>", "<|tool_call|>[", "]<|/tool_call|>"),
    list("granite", "<|tool_call|>", "<|tool_call|>[", "]"),
    list("hunyuan", "<tool_calls>", "<tool_calls>[", "]</tool_calls>"),
    list("tool-calls", "<tool_calls>", "<tool_calls>[", "]</tool_calls>"),
    list("firefunction", "functools[", "functools[", "]"),
    WrittenCalls {
        arguments: "\", \"parameters\": ",
        name: "{\"tool_name\": \"",
        ..list("command-r", "", "Action:\n```json\n[", "]```")
    },
    WrittenCalls {
        arguments: "\", \"parameters\": ",
        name: "{\"tool_call_id\": \"0\", \"tool_name\": \"",
        between: None,
        ..list("command-a", "<|START_ACTION|>", "<|START_ACTION|>[", "]<|END_ACTION|>")
    },
    WrittenCalls {
        arguments: "\": ",
        name: "{\"",
        ..list("apertus", "<|tools_prefix|>", "<|tools_prefix|>[", "]<|tools_suffix|>")
    },
    WrittenCalls {
        arguments: "[ARGS]",
        between: Some(""),
        ..json("mistral", "[TOOL_CALLS]", "[TOOL_CALLS]", "")
    },
    WrittenCalls {
        arguments: ":0<|tool_call_argument_begin|>",
        begin: "<|tool_calls_section_begin|>",
        end: "<|tool_calls_section_end|>",
        ..json(
            "kimi-k2",
            "<|tool_calls_section_begin|>",
            "<|tool_call_begin|>functions.",
            "<|tool_call_end|>",
        )
    },
    WrittenCalls {
        arguments: "<｜tool▁sep｜>",
        begin: "<｜tool▁calls▁begin｜>",
        between: Some(""),
        end: "<｜tool▁calls▁end｜>",
        ..json("deepseek-v3.1", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>")
    },
    WrittenCalls {
        arguments: "\n```json\n",
        begin: "<｜tool▁calls▁begin｜>",
        between: Some("\n"),
        end: "<｜tool▁calls▁end｜>",
        ..json(
            "deepseek-v3",
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
            "\n```<｜tool▁call▁end｜>",
        )
    },
    WrittenCalls {
        arguments: ">",
        between: Some(""),
        ..json("functionary-v3.1", "<function=", "<function=", "</function>")
    },
    WrittenCalls {
        arguments: ">\n",
        style: ArgumentStyle::Parameters {
            key: "<parameter=",
            value: ">\n",
            json: ">\n",
            end: "\n</parameter>\n",
        },
        between: Some("\n"),
        ..json("qwen3-coder", "<tool_call>", "<tool_call>\n<function=", "</function>\n</tool_call>")
    },
    WrittenCalls {
        arguments: ">\n",
        style: ArgumentStyle::Parameters { key: "<parameter=", value: ">", json: ">", end: "</parameter>\n" },
        ..json(
            "seed-oss",
            "<seed:tool_call>",
            "<seed:tool_call>\n<function=",
            "</function>\n</seed:tool_call>",
        )
    },
    WrittenCalls {
        arguments: "\">\n",
        style: ArgumentStyle::Parameters {
            key: "<parameter name=\"",
            value: "\">",
            json: "\">",
            end: "</parameter>\n",
        },
        ..json(
            "minimax-m2",
            "<minimax:tool_call>",
            "<minimax:tool_call>\n<invoke name=\"",
            "</invoke>\n</minimax:tool_call>",
        )
    },
    WrittenCalls {
        arguments: "\n",
        style: ArgumentStyle::Parameters {
            key: "<arg_key>",
            value: "</arg_key>\n<arg_value>",
            json: "</arg_key>\n<arg_value>",
            end: "</arg_value>\n",
        },
        between: Some("\n"),
        ..json("glm", "<tool_call>", "<tool_call>", "</tool_call>")
    },
    WrittenCalls {
        arguments: "\">\n",
        begin: "<｜DSML｜function_calls>\n",
        style: ArgumentStyle::Parameters {
            key: "<｜DSML｜parameter name=\"",
            value: "\" string=\"true\">",
            json: "\" string=\"false\">",
            end: "</｜DSML｜parameter>\n",
        },
        between: Some("\n"),
        end: "\n</｜DSML｜function_calls>",
        ..json("deepseek-v3.2", "<｜DSML｜function_calls>", "<｜DSML｜invoke name=\"", "</｜DSML｜invoke>")
    },
    WrittenCalls {
        arguments: "\">",
        style: ArgumentStyle::Parameters {
            key: "<steptml:parameter name=\"",
            value: "\">",
            json: "\">",
            end: "</steptml:parameter>",
        },
        begin: "<｜tool_calls_begin｜>",
        end: "<｜tool_calls_end｜>",
        ..json(
            "step-3",
            "<｜tool_calls_begin｜>",
            "<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"",
            "</steptml:invoke><｜tool_call_end｜>",
        )
    },
    WrittenCalls {
        between: Some("\n"),
        ..json("tool-call-text", "TOOL_CALL:", "TOOL_CALL: {\"name\": \"", "}")
    },
    json("gigachat", "<|function_call|>", "<|function_call|>{\"name\": \"", "}"),
    WrittenCalls {
        arguments: "\">",
        style: ArgumentStyle::Parameters {
            key: "<param name=\"",
            value: "\">",
            json: "\">",
            end: "</param>",
        },
        between: Some("\n"),
        ..json("minicpm-5", "<function name=\"", "<function name=\"", "</function>")
    },
    WrittenCalls {
        arguments: "<tool_sep:opensource>\n",
        begin: "<tool_calls:opensource>\n",
        style: ArgumentStyle::Parameters {
            key: "<arg_key:opensource>",
            value: "</arg_key:opensource>\n<arg_value:opensource>",
            json: "</arg_key:opensource>\n<arg_value:opensource>",
            end: "</arg_value:opensource>\n",
        },
        between: Some("\n"),
        end: "\n</tool_calls:opensource>",
        ..json("hunyuan-3", "<tool_calls:opensource>", "<tool_call:opensource>", "</tool_call:opensource>")
    },
    keywords("gemma", "```tool_code", "```tool_code\n", "\n", "\n```"),
    keywords("llama-4", "", "[", ", ", "]"),
    keywords("lfm2", "<|tool_call_start|>", "<|tool_call_start|>[", ", ", "]<|tool_call_end|>"),
    keywords("olmo-3", "<function_calls>", "<function_calls>", "\n", "</function_calls>"),
    WrittenCalls {
        arguments: " <|constrain|>json<|message|>",
        reasoning: Some(WrittenReasoning {
            begin: "<|channel|>analysis<|message|>",
            end: "<|end|>",
            behind: "<|start|>assistant",
        }),
        ..json("harmony", " to=functions.", "<|channel|>commentary to=functions.", "<|call|>")
    },
];

impl ToolCallFormat {
    /// How its calls are written. `None` for formats whose calls cannot be made certain.
    pub fn written(&self) -> Option<&'static WrittenCalls> {
        WRITTEN.iter().find(|written| written.format == self.name)
    }
}
