//! The table of reasoning formats.

use super::tags::Tags;
use super::{ReasoningFormat, Syntaxes};
use crate::syntax::{Dropped, Opening};
use crate::tool_calls::{MUSE_ENDS, MuseHeader, Recipients, harmony};

/// Tokens at which calls begin, for models that leave out the closing tag at times.
const CALLS: &[&str] = &["<|tool_calls_section_begin|>", "<｜tool▁calls▁begin｜>", "<minimax:tool_call>"];

/// Every format. The first one that a template shows signs of is its format, so special ones come first. A closing tag
/// at the start of a message is dropped: the prompt may have opened what it closes.
pub const REASONING_FORMATS: &[ReasoningFormat] = &[
    ReasoningFormat {
        name: "harmony",
        models: "gpt-oss",
        signs: &[&["<|channel|>analysis<|message|>"]],
        prompt_ends: &["<|channel|>analysis<|message|>"],
        closing: "<|end|>",
        syntaxes: Syntaxes::Own(|| harmony(Recipients::Other)),
    },
    ReasoningFormat {
        name: "kimi-k3",
        models: "Kimi K3",
        signs: &[&["<|open|>", "'response'"]],
        prompt_ends: &["<|open|>think<|sep|>"],
        closing: "<|close|>think<|sep|>",
        syntaxes: Syntaxes::Tagged {
            tags: Tags {
                openings: &[Opening::anywhere("<|open|>think<|sep|>")],
                closings: &["<|close|>think<|sep|>"],
                ends_before: &[],
            },
            dropped: &[
                Opening::anywhere("<|open|>response<|sep|>"),
                Opening::anywhere("<|close|>response<|sep|>"),
                Opening::anywhere("<|close|>message<|sep|>"),
            ],
        },
    },
    ReasoningFormat {
        name: "muse",
        models: "Muse Glimmer",
        signs: &[&["to=self<|message|>"]],
        prompt_ends: &["<|start|>assistant to=self<|message|>"],
        closing: "<|eom|>",
        syntaxes: Syntaxes::Own(|| {
            const TAGS: &Tags = &Tags {
                openings: &[
                    Opening::anywhere("<|start|>assistant to=self<|message|>"),
                    Opening::message_start(" to=self<|message|>"),
                ],
                closings: &["<|eom|>", "<|eot|>"],
                ends_before: &[],
            };
            vec![TAGS.syntax(), Box::new(MuseHeader), Dropped::syntax(MUSE_ENDS)]
        }),
    },
    ReasoningFormat {
        name: "solar",
        models: "Solar Open",
        signs: &[&["<|think|>", "<|begin|>assistant"]],
        prompt_ends: &["<|think|>"],
        closing: "<|end|>",
        syntaxes: Syntaxes::Tagged {
            tags: Tags {
                openings: &[Opening::anywhere("<|begin|>assistant<|think|>"), Opening::anywhere("<|think|>")],
                closings: &["<|end|>"],
                ends_before: &[],
            },
            dropped: &[
                Opening::anywhere("<|begin|>assistant<|content|>"),
                Opening::anywhere("<|begin|>assistant"),
                Opening::anywhere("<|content|>"),
                Opening::anywhere("<|end|>"),
            ],
        },
    },
    ReasoningFormat {
        name: "mistral",
        models: "Magistral, Ministral 3",
        signs: &[&["[THINK]"]],
        prompt_ends: &["[THINK]"],
        closing: "[/THINK]",
        syntaxes: Syntaxes::Tagged {
            tags: Tags {
                openings: &[Opening::anywhere("[THINK]")],
                closings: &["[/THINK]"],
                ends_before: &[],
            },
            dropped: &[],
        },
    },
    ReasoningFormat {
        name: "command-a",
        models: "Command R7B, Command A Reasoning, Cohere 2 MoE",
        signs: &[&["<|START_THINKING|>"]],
        prompt_ends: &["<|START_THINKING|>"],
        closing: "<|END_THINKING|>",
        syntaxes: Syntaxes::Tagged {
            tags: Tags {
                openings: &[Opening::anywhere("<|START_THINKING|>")],
                closings: &["<|END_THINKING|>"],
                ends_before: &[],
            },
            dropped: &[
                Opening::anywhere("<|START_RESPONSE|>"),
                Opening::anywhere("<|END_RESPONSE|>"),
                Opening::anywhere("<|START_TEXT|>"),
                Opening::anywhere("<|END_TEXT|>"),
            ],
        },
    },
    ReasoningFormat {
        name: "gemma-4",
        models: "Gemma 4",
        signs: &[&["<|channel>thought"], &["<|channel>", "<channel|>"]],
        prompt_ends: &["<|channel>thought"],
        closing: "<channel|>",
        syntaxes: Syntaxes::Tagged {
            tags: Tags {
                openings: &[Opening::anywhere("<|channel>thought")],
                closings: &["<channel|>"],
                ends_before: &[],
            },
            dropped: &[],
        },
    },
    ReasoningFormat {
        name: "seed-oss",
        models: "Seed OSS",
        signs: &[&["<seed:think>"]],
        prompt_ends: &["<seed:think>"],
        closing: "</seed:think>",
        syntaxes: Syntaxes::Tagged {
            tags: Tags {
                openings: &[Opening::anywhere("<seed:think>")],
                closings: &["</seed:think>"],
                ends_before: &[],
            },
            dropped: &[],
        },
    },
    ReasoningFormat {
        name: "minimax-m3",
        models: "MiniMax M3",
        signs: &[&["<mm:think>"]],
        prompt_ends: &["<mm:think>"],
        closing: "</mm:think>",
        syntaxes: Syntaxes::Tagged {
            tags: Tags {
                openings: &[Opening::anywhere("<mm:think>")],
                closings: &["</mm:think>"],
                ends_before: &[],
            },
            dropped: &[Opening::message_start("</mm:think>")],
        },
    },
    ReasoningFormat {
        name: "hunyuan-3",
        models: "Hunyuan 3",
        signs: &[&["<think{}>"]],
        prompt_ends: &["<think:opensource>"],
        closing: "</think:opensource>",
        syntaxes: Syntaxes::Tagged {
            tags: Tags {
                openings: &[Opening::anywhere("<think:opensource>")],
                closings: &["</think:opensource>"],
                ends_before: &[],
            },
            dropped: &[],
        },
    },
    ReasoningFormat {
        name: "apertus",
        models: "Apertus",
        signs: &[&["<|inner_prefix|>"]],
        prompt_ends: &["<|inner_prefix|>"],
        closing: "<|inner_suffix|>",
        syntaxes: Syntaxes::Tagged {
            tags: Tags {
                openings: &[Opening::anywhere("<|inner_prefix|>")],
                closings: &["<|inner_suffix|>"],
                ends_before: &[],
            },
            dropped: &[],
        },
    },
    ReasoningFormat {
        name: "apriel",
        models: "Apriel 1.5 and 1.6",
        signs: &[&["[BEGIN FINAL RESPONSE]"]],
        prompt_ends: &["Here are my reasoning steps:"],
        closing: "[BEGIN FINAL RESPONSE]",
        syntaxes: Syntaxes::Tagged {
            tags: Tags {
                openings: &[
                    Opening::message_start("Here are my reasoning steps:"),
                    Opening::line_start("<thinking>"),
                ],
                closings: &["[BEGIN FINAL RESPONSE]", "</thinking>"],
                ends_before: &[],
            },
            dropped: &[Opening::anywhere("[END FINAL RESPONSE]")],
        },
    },
    ReasoningFormat {
        name: "granite",
        models: "Granite 3.2",
        signs: &[&["Here is my thought process:"]],
        prompt_ends: &[],
        closing: "Here is my response:",
        syntaxes: Syntaxes::Tagged {
            tags: Tags {
                openings: &[
                    Opening::message_start("Here is my thought process:"),
                    Opening::message_start("Here's my thought process:"),
                ],
                closings: &["Here is my response:", "Here's my response:"],
                ends_before: &[],
            },
            dropped: &[],
        },
    },
    ReasoningFormat {
        name: "ernie",
        models: "ERNIE 4.5, Granite 3.3",
        signs: &[&["<response></response>"], &["<response>", "<tool_output>"]],
        prompt_ends: &["<think>"],
        closing: "</think>",
        syntaxes: Syntaxes::Tagged {
            tags: Tags {
                openings: &[Opening::line_start("<think>")],
                closings: &["</think>"],
                ends_before: &[],
            },
            dropped: &[
                Opening::message_start("</think>"),
                Opening::anywhere("<response>"),
                Opening::anywhere("</response>"),
            ],
        },
    },
    ReasoningFormat {
        name: "hunyuan",
        models: "Hunyuan A13B",
        signs: &[&["<answer>", "<think>"]],
        prompt_ends: &["<think>"],
        closing: "</think>",
        syntaxes: Syntaxes::Tagged {
            tags: Tags {
                openings: &[Opening::line_start("<think>")],
                closings: &["</think>"],
                ends_before: &[],
            },
            dropped: &[
                Opening::message_start("</think>"),
                Opening::anywhere("<answer>"),
                Opening::anywhere("</answer>"),
            ],
        },
    },
    ReasoningFormat {
        name: "think",
        models: "Qwen 3, DeepSeek R1 to V4, GLM 4, Kimi K2, MiniMax M2, Nemotron, Step, OLMo 3 and others",
        signs: &[&["<think>"], &["</think>"]],
        prompt_ends: &["<think>"],
        closing: "</think>",
        syntaxes: Syntaxes::Tagged {
            tags: Tags {
                openings: &[Opening::line_start("<think>")],
                closings: &["</think>"],
                ends_before: CALLS,
            },
            dropped: &[Opening::message_start("</think>")],
        },
    },
];
