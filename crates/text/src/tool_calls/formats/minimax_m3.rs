//! ```text
//! ]<]minimax[>[<tool_call>
//! ]<]minimax[>[<invoke name="NAME">]<]minimax[>[<KEY>VALUE]<]minimax[>[</KEY>]<]minimax[>[</invoke>
//! ]<]minimax[>[</tool_call>
//! ```
//!
//! A token marks every tag. Objects nest as tags with the keys, lists as tags `item`.

use super::super::call::CallHead;
use super::super::parameters::{Padding, ParameterHead, Parameters};
use super::super::schemas::{Schema, Types};
use super::super::typed_value::typed_value;
use super::ToolCallFormat;
use crate::syntax::{Opening, Peek, Stop, push_json_string};

pub(super) const FORMAT: ToolCallFormat = ToolCallFormat {
    name: "minimax-m3",
    models: "MiniMax M3",
    signs: &[&["]<]minimax[>["]],
    prompt_ends: &[],
    syntaxes: |schemas| vec![CALLS.syntax(schemas)],
};

const CALLS: &Parameters = &Parameters {
    openings: &[Opening::anywhere("]<]minimax[>[<tool_call>")],
    head,
    parameter: OPEN,
    parameter_head,
    value_end: "",
    convert: nested_value,
    padding: Padding::None,
    call_end: "]<]minimax[>[</invoke>",
    next_call: "]<]minimax[>[<invoke name=\"",
    tail: &["]<]minimax[>[</tool_call>"],
};

const OPEN: &str = "]<]minimax[>[<";
const CLOSE: &str = "]<]minimax[>[</";

/// The deepest nesting of tags.
const MAX_DEPTH: usize = 64;

fn head(peek: &mut Peek<'_>) -> Result<CallHead, Stop> {
    peek.optional("]<]minimax[>[<tool_call>")?;
    peek.whitespace()?;
    peek.literal("]<]minimax[>[<invoke name=\"")?;
    let name = peek.name(&['"'])?;
    peek.literal("\">")?;
    Ok(CallHead::named(name))
}

fn parameter_head(peek: &mut Peek<'_>) -> Result<ParameterHead, Stop> {
    let mut head = ParameterHead::named(peek.name(&['>'])?);
    peek.literal(">")?;
    head.end = Some(format!("{CLOSE}{}>", head.name));
    head.nested = Some(format!("{OPEN}{}>", head.name));
    Ok(head)
}

/// The JSON of a value with tags in it. What is no such value is bare text.
fn nested_value(text: &str, schema: Schema<'_>) -> String {
    if !text.trim_start().starts_with(OPEN) {
        return bare_value(text, schema);
    }
    let mut rest = text;
    match children(&mut rest, schema, 0) {
        Some(json) if rest.trim().is_empty() => json,
        _ => typed_value(text, schema.types()),
    }
}

/// Nothing is an empty list or object where the schema wants one.
fn bare_value(text: &str, schema: Schema<'_>) -> String {
    let types = schema.types();
    match text {
        "" if types == Types::ARRAY => "[]".to_owned(),
        "" if types == Types::OBJECT => "{}".to_owned(),
        text => typed_value(text, types),
    }
}

/// Takes tags, and gives the list or object that they are.
fn children(rest: &mut &str, schema: Schema<'_>, depth: usize) -> Option<String> {
    if depth > MAX_DEPTH {
        return None;
    }
    let is_list = rest.trim_start().strip_prefix(OPEN)?.starts_with("item>")
        && (schema.types().has(Types::ARRAY) || !schema.types().has(Types::OBJECT));
    let mut json = String::new();
    loop {
        let tag = rest.trim_start();
        let Some(inside) = tag.strip_prefix(OPEN).filter(|inside| !inside.starts_with('/')) else { break };
        let (key, content) = inside.split_once('>')?;
        json.push(if json.is_empty() { if is_list { '[' } else { '{' } } else { ',' });
        if !is_list {
            push_json_string(&mut json, key);
            json.push(':');
        }
        let inner = if is_list { schema.items() } else { schema.member(key) };
        *rest = content;
        let close = format!("{CLOSE}{key}>");
        let begins_with_tag =
            content.trim_start().starts_with(OPEN) && !content.trim_start().starts_with(CLOSE);
        if begins_with_tag {
            json.push_str(&children(rest, inner, depth + 1)?);
            *rest = rest.trim_start().strip_prefix(&close)?;
        } else {
            let (value, behind) = content.split_once(&close)?;
            json.push_str(&bare_value(value, inner));
            *rest = behind;
        }
    }
    json.push(if is_list { ']' } else { '}' });
    Some(json)
}
