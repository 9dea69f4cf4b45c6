//! `truncation: "auto"`: the oldest items are left out of an input that does not fit.
//!
//! Invariant: instructions stay, and the last item; an output stays only with its call. The fewest items are left out.

use std::collections::BTreeSet;

use omnibus_engine::{AddSpecial, Failure, Input};

use crate::api::RequestContext;
use crate::error::ApiError;
use crate::lower::GenerationBatch;
use crate::lower::responses::{Toolbox, lower};
use crate::wire::responses::ResponsesRequest;
use crate::wire::responses::input_item::{Author, InputItem};

type Lowered = (GenerationBatch, Toolbox);

/// Lowers a request without as many of its oldest items as do not fit. Its media are not counted.
pub fn lower_fitting(
    wire: &ResponsesRequest,
    items: Vec<InputItem>,
    model: Option<String>,
    context: &RequestContext<'_>,
) -> Result<Lowered, ApiError> {
    let without = |count: usize| lower(wire, shortened(&items, count), model.clone(), &context.caller);
    let whole = without(0)?;
    let Some(room) = room(wire, model.as_deref(), context) else { return Ok(whole) };
    if fits(&whole, room, context)? {
        return Ok(whole);
    }
    // With so many items left out it fits, or nothing does.
    let (mut least, mut most) = (1, items.len().saturating_sub(1));
    while least < most {
        let middle = least.midpoint(most);
        if fits(&without(middle)?, room, context)? {
            most = middle;
        } else {
            least = middle + 1;
        }
    }
    without(most)
}

/// Most tokens of the prompt.
fn room(wire: &ResponsesRequest, model: Option<&str>, context: &RequestContext<'_>) -> Option<usize> {
    Some(context.max_model_len(model)?.saturating_sub(wire.max_output_tokens.unwrap_or(1)))
}

/// Whether the prompt fits. One with media is left to the engine, which counts them when they are fetched.
fn fits(lowered: &Lowered, room: usize, context: &RequestContext<'_>) -> Result<bool, ApiError> {
    for prompt in &lowered.0.prompts {
        if matches!(&prompt.input, Input::Chat(chat) if !chat.media.is_empty()) {
            continue;
        }
        match context.engine.tokenize(prompt.model.as_deref(), &prompt.input, AddSpecial::Yes) {
            Ok(tokens) if tokens.len() <= room => {}
            Ok(_) | Err(Failure::TooLong { .. }) => return Ok(false),
            Err(failure) => return Err(failure.into()),
        }
    }
    Ok(true)
}

/// The items without the first `count` of those that are no instructions.
fn shortened(items: &[InputItem], count: usize) -> Vec<InputItem> {
    let (mut kept, mut calls, mut left_out) = (Vec::new(), BTreeSet::new(), 0);
    for item in items {
        let is_instruction = matches!(item, InputItem::Message { author: Author::System, .. });
        if !is_instruction && left_out < count {
            left_out += 1;
            continue;
        }
        let is_answered = match item {
            InputItem::Call { call_id, .. } => calls.insert(call_id),
            InputItem::Output { call_id, .. } | InputItem::FoundTools { call_id, .. } => {
                count == 0 || calls.contains(call_id)
            }
            InputItem::Message { .. } | InputItem::Reasoning { .. } | InputItem::Compaction { .. } => true,
        };
        if is_answered || matches!(item, InputItem::Call { .. }) {
            kept.push(item.clone());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::{Value, json};

    use super::*;

    fn check(count: usize, expected: Expect) {
        let input: Vec<Value> = vec![
            json!({"role": "user", "content": "a"}),
            json!({"role": "developer", "content": "rule"}),
            json!({"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}),
            json!({"type": "function_call_output", "call_id": "1", "output": "x"}),
            json!({"role": "user", "content": "b"}),
        ];
        let items = shortened(&ResponsesRequest::items(&input).unwrap(), count);
        let line = |item: &InputItem| match item {
            InputItem::Message { parts, .. } => format!("{parts:?}"),
            InputItem::Call { call_id, .. } => format!("call {call_id}"),
            InputItem::Output { call_id, .. } => format!("output {call_id}"),
            other => format!("{other:?}"),
        };
        expected.assert_eq(&items.iter().map(line).collect::<Vec<_>>().join(", "));
    }

    #[test]
    fn the_oldest_are_left_out_and_outputs_go_with_their_calls() {
        check(0, expect![[r#"[Text("a")], [Text("rule")], call 1, output 1, [Text("b")]"#]]);
        check(1, expect![[r#"[Text("rule")], call 1, output 1, [Text("b")]"#]]);
        check(2, expect![[r#"[Text("rule")], [Text("b")]"#]]);
        check(3, expect![[r#"[Text("rule")], [Text("b")]"#]]);
    }
}
