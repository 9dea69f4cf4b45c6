//! Grammars of tool calls that must be, or must be valid.

use omnibus_grammar::{
    CallCount, CallStart, Grammar, GrammarLimits, SchemaUse, Tool, calls_or_answer, calls_or_text, tool_calls,
};
use omnibus_text::{Tokenizer, ToolCallFormat};
use serde_json::Value;

use crate::Failure;
use crate::request::{CallLimit, OutputMode, ReasoningPlace, Request, StructuredOutput, ToolChoice, refused};

/// The field of errors about a tool's schema.
const FIELD: &str = "tools";

/// What a request's answer must match, its tool calls considered. `format`: how the model writes calls.
pub(super) fn structured(
    request: &Request,
    format: Option<&ToolCallFormat>,
    tokenizer: &Tokenizer,
    limits: &GrammarLimits,
) -> Result<Option<StructuredOutput>, Failure> {
    let OutputMode::Message { tools: Some(list), calls } = &request.output else {
        return match request.tool_choice {
            ToolChoice::Auto => Ok(request.structured.clone()),
            ToolChoice::Required | ToolChoice::Function(_) => {
                Err(Failure::bad_request("tool_choice", "`tool_choice` needs `tools`"))
            }
        };
    };
    let tools = tools(list, &request.tool_choice)?;
    if tools.is_empty() {
        return Ok(request.structured.clone());
    }
    let is_forced = request.tool_choice != ToolChoice::Auto;
    let Some(written) = format.and_then(ToolCallFormat::written) else {
        if !is_forced {
            return Ok(request.structured.clone());
        }
        let message = "calls cannot be forced in this model's format; use a `tool_choice` of auto";
        return Err(Failure::bad_request("tool_choice", message));
    };
    let count = match calls {
        CallLimit::Any => CallCount::Several,
        CallLimit::One => CallCount::One,
    };
    let reasoning = match written.reasoning {
        Some(_) => ReasoningPlace::Inside,
        None => ReasoningPlace::Before,
    };
    let fail = |error| refused(FIELD, &error);
    if is_forced {
        let calls =
            tool_calls(written, &tools, (count, CallStart::Answer), tokenizer, limits).map_err(fail)?;
        return Ok(
            calls.map(|grammar| StructuredOutput { reasoning, ..StructuredOutput::new(grammar, FIELD) })
        );
    }
    if let Some(answer) = &request.structured {
        let either = calls_or_answer(written, &tools, count, &answer.grammar, (tokenizer, limits));
        let either = either.map_err(fail)?.map(|grammar| StructuredOutput::new(grammar, &answer.field));
        return Ok(either.or_else(|| request.structured.clone()));
    }
    if tools.iter().all(|tool| tool.schema == SchemaUse::Lenient) {
        return Ok(None);
    }
    if written.marker.is_empty() {
        let either = calls_or_text(written, &tools, count, (tokenizer, limits)).map_err(fail)?;
        return Ok(either.map(|grammar| StructuredOutput::new(grammar, FIELD)));
    }
    // Without a text that ends the calls, each further one has a marker of its own.
    let count = if written.end.is_empty() { CallCount::One } else { count };
    let call = tool_calls(written, &tools, (count, CallStart::Marker), tokenizer, limits).map_err(fail)?;
    let marker = Some(written.marker.to_owned());
    Ok(call.map(|grammar| StructuredOutput { marker, reasoning, ..StructuredOutput::new(grammar, FIELD) }))
}

/// The tools that may be called, from a list of OpenAI tool objects.
fn tools(list: &Value, choice: &ToolChoice) -> Result<Vec<Tool>, Failure> {
    let tool = |tool: &Value| {
        let function = tool.get("function").unwrap_or(tool);
        let is_strict = function.get("strict").and_then(Value::as_bool) == Some(true);
        let input = tool.get("format").and_then(input_grammar);
        Some(Tool {
            name: function.get("name")?.as_str()?.to_owned(),
            parameters: function.get("parameters").filter(|schema| !schema.is_null()).cloned(),
            schema: if is_strict || input.is_some() { SchemaUse::Strict } else { SchemaUse::Lenient },
            input,
        })
    };
    let mut tools: Vec<Tool> = list.as_array().into_iter().flatten().filter_map(tool).collect();
    if let ToolChoice::Function(name) = choice {
        tools.retain(|tool| tool.name == *name);
        if tools.is_empty() {
            let message = format!("`tool_choice` names `{name}`, which is not among the tools");
            return Err(Failure::bad_request("tool_choice", message));
        }
    }
    if tools.is_empty() && *choice != ToolChoice::Auto {
        return Err(Failure::bad_request("tool_choice", "`tool_choice` needs `tools`"));
    }
    Ok(tools)
}

/// What the input of a custom tool must match, from OpenAI's `format` of one.
fn input_grammar(format: &Value) -> Option<Grammar> {
    let text = |key| format.get(key).and_then(Value::as_str);
    let definition = text("definition")?.to_owned();
    match text("syntax")? {
        "lark" => Some(Grammar::Lark(definition)),
        "regex" => Some(Grammar::Regex(definition)),
        _ => None,
    }
}
