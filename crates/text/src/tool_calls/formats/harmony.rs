//! `<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{"key": "value"}<|call|>`

use super::super::harmony::{Recipients, harmony};
use super::ToolCallFormat;

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "harmony",
    models: "gpt-oss",
    signs: &[&["<|channel|>commentary", "<|call|>"]],
    prompt_ends: &[],
    syntaxes: |_| harmony(Recipients::Calls),
};
