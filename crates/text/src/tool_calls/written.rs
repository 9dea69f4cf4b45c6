//! How calls of a format are written: what a model is made to write when a call is certain.
//!
//! Each row says it as the models' templates do; the format's parser reads it. Literals may hold special tokens.

use super::ToolCallFormat;

/// Stands in a literal for a name that the model makes up, such as the id of a call: letters, digits, `_` and `-`.
pub const IDENTIFIER: char = '\u{1}';

/// Stands in a literal for the JSON type of a value that is no string.
pub const JSON_TYPE: char = '\u{3}';

/// Stands in [`WrittenCalls::arguments`] for the tool's name, where it is written once more.
pub const NAME: char = '\u{2}';

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
    /// How an answer without calls differs from calls. `Some` where there is no marker.
    pub answer: Option<WrittenAnswer>,
}

/// How an answer without calls is written, where calls have no marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenAnswer {
    /// Before the text.
    pub begin: &'static str,
    /// A regular expression of texts that are calls, at least in part: the text does not match it.
    pub calls: &'static str,
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
    /// An object in a notation of the format's own.
    Notation(Notation),
}

/// What stands around the parts of a value. Numbers, `true`, `false` and `null` are as in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notation {
    /// Around the members of an object.
    pub object: [&'static str; 2],
    /// Around a key.
    pub key: [&'static str; 2],
    /// Around the key where it stands again after its value. `None`: it does not.
    pub key_again: Option<[&'static str; 2]>,
    /// Around the items of a list.
    pub list: [&'static str; 2],
    /// Around an item.
    pub item: [&'static str; 2],
    /// Between members, and between items.
    pub separator: &'static str,
    /// Around a string. Empty: a string ends where the text begins that follows it.
    pub string: [&'static str; 2],
}

impl Notation {
    /// What stands around a text that is the only member of an object.
    pub fn object_of_text(&self, key: &str) -> [String; 2] {
        let end = self.key_again.map_or(String::new(), |[before, behind]| [before, key, behind].concat());
        [
            [self.object[0], self.key[0], key, self.key[1], self.string[0]].concat(),
            [self.string[1], &end, self.object[1]].concat(),
        ]
    }
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
        answer: None,
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

/// Gemma's notation: bare keys, and strings between markers.
const fn gemma(quote: &'static str) -> ArgumentStyle {
    ArgumentStyle::Notation(Notation {
        object: ["{", "}"],
        key: ["", ":"],
        key_again: None,
        list: ["[", "]"],
        item: ["", ""],
        separator: ",",
        string: [quote, quote],
    })
}

/// MiniMax M3's notation: tags with the keys, each after a token that marks it.
const TAGS: Notation = Notation {
    object: ["", ""],
    key: ["]<]minimax[>[<", ">"],
    key_again: Some(["]<]minimax[>[</", ">"]),
    list: ["", ""],
    item: ["]<]minimax[>[<item>", "]<]minimax[>[</item>"],
    separator: "",
    string: ["", ""],
};

/// An answer beside calls that are JSON: it has no object that begins like a call where calls may stand.
const NO_JSON_CALL: Option<WrittenAnswer> = Some(WrittenAnswer {
    begin: "",
    calls: r#"((.|\n)*(<tool_call>|\[TOOL_CALLS\]|<\|python_tag\|>|```(json)?\n))?\s*\[?\s*\{\s*"(name|function|type|id|arguments|parameters)"(.|\n)*"#,
});

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
    WrittenCalls {
        arguments: "\", \"parameters\": ",
        answer: NO_JSON_CALL,
        ..json("llama-3", "", "{\"name\": \"", "}")
    },
    WrittenCalls { answer: NO_JSON_CALL, ..json("json", "", "{\"name\": \"", "}") },
    WrittenCalls { answer: NO_JSON_CALL, ..list("xlam", "", "[", "]") },
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
        answer: Some(WrittenAnswer { begin: "", calls: r"((.|\n)*\n)?[ \t]*Action:(.|\n)*" }),
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
        arguments: ":\u{1}<|tool_call_argument_begin|>",
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
    WrittenCalls {
        answer: Some(WrittenAnswer {
            begin: "",
            calls: r"((.|\n)*<\|python_start\|>)?\s*\[\s*[^\s\[\](]+\((.|\n)*",
        }),
        ..keywords("llama-4", "", "[", ", ", "]")
    },
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
    WrittenCalls {
        arguments: "",
        style: gemma("<|\"|>"),
        between: Some(""),
        ..json("gemma-4", "<|tool_call>", "<|tool_call>call:", "<tool_call|>")
    },
    WrittenCalls {
        arguments: "",
        style: gemma("<escape>"),
        between: Some(""),
        ..json("function-gemma", "<start_function_call>", "<start_function_call>call:", "<end_function_call>")
    },
    // The prompt ends with the first `>>>`.
    WrittenCalls {
        arguments: "\n",
        between: Some(">>>"),
        answer: Some(WrittenAnswer { begin: "all\n", calls: r"(.|\n)*>>>(.|\n)*" }),
        ..json("functionary-v3.2", "", "", "")
    },
    // The prompt, or the end of the reasoning, has opened the response.
    WrittenCalls {
        begin: "<|close|>response<|sep|><|open|>tools<|sep|>",
        arguments: "\" index=\"\u{1}\"<|sep|>",
        style: ArgumentStyle::Parameters {
            key: "<|open|>argument key=\"",
            value: "\" type=\"string\"<|sep|>",
            json: "\" type=\"\u{3}\"<|sep|>",
            end: "<|close|>argument<|sep|>",
        },
        between: Some(""),
        end: "<|close|>tools<|sep|>",
        ..json("kimi-k3", "<|open|>tools<|sep|>", "<|open|>call tool=\"", "<|close|>call<|sep|>")
    },
    WrittenCalls {
        arguments: "\">",
        style: ArgumentStyle::Notation(TAGS),
        begin: "]<]minimax[>[<tool_call>\n",
        between: Some(""),
        end: "]<]minimax[>[</tool_call>",
        ..json(
            "minimax-m3",
            "]<]minimax[>[<tool_call>",
            "]<]minimax[>[<invoke name=\"",
            "]<]minimax[>[</invoke>\n",
        )
    },
    WrittenCalls {
        arguments: "<|message|><atem:function_calls>\n<atem:invoke name=\"\u{2}\">\n",
        style: ArgumentStyle::Parameters {
            key: "<atem:parameter name=\"",
            value: "\">",
            json: "\">",
            end: "</atem:parameter>\n",
        },
        between: Some("<|eom|><|start|>assistant"),
        reasoning: Some(WrittenReasoning {
            begin: " to=self<|message|>",
            end: "<|eom|>",
            behind: "<|start|>assistant",
        }),
        ..json("muse", "<atem:function_calls>", " to=", "</atem:invoke>\n</atem:function_calls>")
    },
    WrittenCalls {
        arguments: "<|tool_call:args|>",
        begin: "<|tool_calls|>",
        between: Some(""),
        end: "<|calls|>",
        reasoning: Some(WrittenReasoning {
            begin: "<|think|>",
            end: "<|end|>",
            behind: "<|begin|>assistant",
        }),
        ..json("solar", "<|tool_calls|>", "<|tool_call:begin|>\u{1}<|tool_call:name|>", "<|tool_call:end|>")
    },
];

impl ToolCallFormat {
    /// How its calls are written. `None` for formats whose calls cannot be made certain.
    pub fn written(&self) -> Option<&'static WrittenCalls> {
        WRITTEN.iter().find(|written| written.format == self.name)
    }
}
