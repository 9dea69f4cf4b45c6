//! Messages from the JSON of OpenAI's API, as far as templates see it.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use omnibus_text::{ContentPart, MediaIndex, Message, ToolArguments, ToolCall, ToolResult};
use serde_json::Value;

fn string(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn part(part: &Value) -> ContentPart {
    match part["type"].as_str().unwrap() {
        "text" => ContentPart::Text(string(&part["text"])),
        "image" => ContentPart::Image(MediaIndex(0)),
        other => panic!("a part of type {other}"),
    }
}

fn tool_call(call: &Value) -> ContentPart {
    let arguments = match &call["function"]["arguments"] {
        Value::String(text) => ToolArguments::Text(text.clone()),
        object => ToolArguments::Json(object.to_string()),
    };
    let name = string(&call["function"]["name"]);
    ContentPart::ToolCall(ToolCall { id: string(&call["id"]), name, arguments })
}

fn message(json: &Value) -> Message {
    let mut content = match &json["content"] {
        Value::Null => Vec::new(),
        Value::Array(parts) => parts.iter().map(part).collect(),
        text => vec![ContentPart::Text(string(text))],
    };
    if let Some(call_id) = json["tool_call_id"].as_str() {
        let result = ToolResult { call_id: call_id.to_owned(), text: string(&json["content"]) };
        content = vec![ContentPart::ToolResult(result)];
    }
    if let Some(reasoning) = json["reasoning_content"].as_str() {
        content.push(ContentPart::Reasoning(reasoning.to_owned()));
    }
    content.extend(json["tool_calls"].as_array().into_iter().flatten().map(tool_call));
    Message {
        role: json["role"].as_str().unwrap().into(),
        name: json["name"].as_str().map(str::to_owned),
        content,
    }
}

pub fn messages(json: &Value) -> Vec<Message> {
    json.as_array().unwrap().iter().map(message).collect()
}
