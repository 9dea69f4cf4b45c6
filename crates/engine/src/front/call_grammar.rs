//! Grammars of tool calls that must be, or must be valid.

use omnibus_grammar::{
    self as grammar, CallCount, CallStart, Grammar, GrammarLimits, SchemaUse, calls_or_answer, calls_or_text,
    tool_calls,
};
use omnibus_text::{CallRule, InputGrammar, Tokenizer, Tool, ToolCallFormat};

use crate::error::Failure;
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
    let OutputMode::Message { calls: Some(calls) } = &request.output else {
        return match request.tool_choice {
            ToolChoice::Auto => Ok(request.structured.clone()),
            ToolChoice::Required | ToolChoice::Function(_) => {
                Err(Failure::bad_request("tool_choice", "`tool_choice` needs `tools`"))
            }
        };
    };
    let tools = tools(request.tools(), &request.tool_choice)?;
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

/// The tools that may be called.
fn tools(list: &[Tool], choice: &ToolChoice) -> Result<Vec<grammar::Tool>, Failure> {
    let mut tools: Vec<grammar::Tool> = list.iter().map(tool).collect();
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

fn tool(tool: &Tool) -> grammar::Tool {
    let (schema, input) = match &tool.rule {
        CallRule::Lenient => (SchemaUse::Lenient, None),
        CallRule::Strict => (SchemaUse::Strict, None),
        CallRule::Input(InputGrammar::Lark(text)) => (SchemaUse::Strict, Some(Grammar::Lark(text.clone()))),
        CallRule::Input(InputGrammar::Regex(text)) => (SchemaUse::Strict, Some(Grammar::Regex(text.clone()))),
    };
    let parameters = Some(&tool.parameters).filter(|schema| !schema.is_null()).cloned();
    grammar::Tool { name: tool.name.clone(), parameters, schema, input }
}
