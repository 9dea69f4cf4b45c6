//! The messages of Ollama's chats.
//!
//! Invariant: each result of a tool has the id of a call, if there is one: by its id, else by the tool's name, else by its
//! place among the calls without a result.

use serde_json::Value;

use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, honoured, type_error};
use crate::wire::media::{MediaKind, MediaPart, MediaSource, Part};
use crate::wire::messages::{Content, ContinuationMode, Message, ToolCall};

/// Fields of a message.
pub const MESSAGE: &[Field] = &[
    honoured("role", "`system`, `user`, `assistant` or `tool`, in any case"),
    honoured("content", "a string"),
    honoured("thinking", "of the assistant; passed to the chat template"),
    honoured("images", "in base64, for models that see"),
    honoured("tool_calls", "of the assistant"),
    honoured("tool_name", "of a tool's result: the tool"),
    honoured("tool_call_id", "of a tool's result: the call"),
];

/// Fields of a tool call.
pub const CALL: &[Field] = &[
    honoured("id", "what a result refers to; optional"),
    honoured("function", "`name`, and `arguments` as an object"),
];

/// Fields of a tool call's `function`.
pub const CALLED: &[Field] =
    &[honoured("name", "of the function"), honoured("arguments", "an object, or its JSON in a string")];

/// A conversation, and where its answer begins: a last message of the assistant is continued.
pub fn read(list: Vec<Value>) -> Result<(Vec<Message>, ContinuationMode), ApiError> {
    let mut open = Open::default();
    let mut messages = Vec::with_capacity(list.len());
    for (index, value) in list.into_iter().enumerate() {
        messages.push(message(value, &format!("messages[{index}]"), &mut open)?);
    }
    let continuation = match messages.last() {
        Some(Message::Assistant { text, calls, .. }) if calls.is_empty() && has_text(text) => {
            ContinuationMode::LastMessage
        }
        _ => ContinuationMode::NewMessage,
    };
    Ok((messages, continuation))
}

fn has_text(content: &Content) -> bool {
    content.parts.iter().any(|part| matches!(part, Part::Text(text) if !text.is_empty()))
}

/// The calls without a result, oldest first.
#[derive(Debug, Default)]
struct Open(Vec<ToolCall>);

impl Open {
    /// The id of the call that a result belongs to.
    fn close(&mut self, id: Option<String>, name: Option<&str>) -> String {
        let of_id = id.as_ref().and_then(|id| self.0.iter().position(|call| call.id == *id));
        let of_name = || name.and_then(|name| self.0.iter().position(|call| call.name == name));
        let first = || (name.is_none() && id.is_none() && !self.0.is_empty()).then_some(0);
        match of_id.or_else(of_name).or_else(first) {
            Some(index) => self.0.remove(index).id,
            // Ollama takes results without a call, too.
            None => id.or(name.map(str::to_owned)).unwrap_or_default(),
        }
    }
}

fn message(value: Value, at: &str, open: &mut Open) -> Result<Message, ApiError> {
    let mut fields = Fields::tolerant(value, at, &[MESSAGE])?;
    let role = fields.text("role")?;
    let role = fields.required("role", role)?.to_lowercase();
    let mut content = content(&mut fields, "images")?;
    match role.as_str() {
        "system" | "developer" => Ok(Message::System(content)),
        "user" => Ok(Message::User(content)),
        "assistant" => {
            let calls = calls(&mut fields)?;
            open.0.extend(calls.iter().cloned());
            let reasoning = fields.text("thinking")?.filter(|text| !text.is_empty());
            Ok(Message::Assistant { text: content, reasoning, calls })
        }
        "tool" => {
            let id = fields.text("tool_call_id")?.filter(|id| !id.is_empty());
            let name = fields.text("tool_name")?.filter(|name| !name.is_empty());
            let call_id = open.close(id, name.as_deref());
            content.name = name;
            Ok(Message::Tool { text: content, call_id })
        }
        other => {
            let at = fields.at("role");
            let message = format!("`{at}` must be system, user, assistant or tool, not `{other}`");
            Err(ApiError::invalid(at, message))
        }
    }
}

/// The images of an object, and then its text.
fn content(fields: &mut Fields, images: &str) -> Result<Content, ApiError> {
    let text = fields.text("content")?.unwrap_or_default();
    with_images(fields, images, text)
}

/// A text behind the images of an object's field.
pub fn with_images(fields: &mut Fields, images: &str, text: String) -> Result<Content, ApiError> {
    let at = fields.at(images);
    let image = |(index, value): (usize, Value)| {
        let field = format!("{at}[{index}]");
        match value {
            Value::String(data) => Ok(Part::Media(image(data, field))),
            other => Err(type_error(&field, "a string in base64", &other)),
        }
    };
    let list = fields.list(images)?.unwrap_or_default();
    let mut parts = list.into_iter().enumerate().map(image).collect::<Result<Vec<_>, ApiError>>()?;
    parts.push(Part::Text(text));
    Ok(Content { parts, name: None })
}

/// Bare base64; the head of a data URL, which some clients leave in, is cut off.
fn image(data: String, field: String) -> MediaPart {
    let bare = match data.split_once(',') {
        Some((head, bare)) if head.starts_with("data:") => bare.to_owned(),
        _ => data,
    };
    MediaPart { kind: MediaKind::Image, field, source: MediaSource::Base64(bare.into()) }
}

fn calls(fields: &mut Fields) -> Result<Vec<ToolCall>, ApiError> {
    let at = fields.at("tool_calls");
    let list = fields.list("tool_calls")?.unwrap_or_default();
    let call = |(index, value)| call(value, &format!("{at}[{index}]"));
    list.into_iter().enumerate().map(call).collect()
}

fn call(value: Value, at: &str) -> Result<ToolCall, ApiError> {
    let mut fields = Fields::tolerant(value, at, &[CALL])?;
    // Ollama's clients drop ids. The place of a call is one.
    let id = fields.text("id")?.filter(|id| !id.is_empty()).unwrap_or_else(|| at.to_owned());
    let function_at = fields.at("function");
    let function = fields.value("function");
    let mut function = Fields::tolerant(fields.required("function", function)?, &function_at, &[CALLED])?;
    let name = function.text("name")?;
    let name = function.required("name", name)?;
    let arguments = match function.value("arguments") {
        None => "{}".to_owned(),
        Some(Value::String(text)) => text,
        Some(object @ Value::Object(_)) => object.to_string(),
        Some(other) => return Err(type_error(&function.at("arguments"), "an object", &other)),
    };
    Ok(ToolCall { id, name, arguments })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ids(messages: Value) -> Vec<String> {
        let (messages, _) = read(messages.as_array().unwrap().clone()).unwrap();
        let id = |message: &Message| match message {
            Message::Tool { call_id, .. } => Some(call_id.clone()),
            Message::System(_) | Message::User(_) | Message::Assistant { .. } => None,
        };
        messages.iter().filter_map(id).collect()
    }

    fn calls(calls: &[(&str, &str)]) -> Value {
        let call = |(id, name): &(&str, &str)| json!({"id": id, "function": {"name": name, "arguments": {}}});
        json!({"role": "assistant", "tool_calls": calls.iter().map(call).collect::<Vec<_>>()})
    }

    #[test]
    fn a_result_belongs_to_a_call_by_id_by_name_or_by_order() {
        let both = calls(&[("1", "a"), ("2", "b")]);
        let result = |fields: Value| {
            let mut message = json!({"role": "tool", "content": "x"});
            message.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            message
        };
        let by = |first: Value, second: Value| ids(json!([both, result(first), result(second)]));
        assert_eq!(by(json!({"tool_call_id": "2"}), json!({"tool_call_id": "1"})), ["2", "1"]);
        assert_eq!(by(json!({"tool_name": "b"}), json!({"tool_name": "a"})), ["2", "1"]);
        assert_eq!(by(json!({}), json!({})), ["1", "2"]);
        let twice = calls(&[("1", "a"), ("2", "a")]);
        assert_eq!(
            ids(json!([twice, result(json!({"tool_name": "a"})), result(json!({"tool_name": "a"}))])),
            ["1", "2"]
        );
        assert_eq!(ids(json!([result(json!({"tool_name": "gone"})), result(json!({}))])), ["gone", ""]);
    }

    #[test]
    fn calls_without_ids_are_known_by_their_place() {
        let call = json!({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "a", "arguments": {"x": 1}}}]});
        let result = json!({"role": "TOOL", "content": "1", "tool_name": "a"});
        assert_eq!(ids(json!([call, result])), ["messages[0].tool_calls[0]"]);
    }

    #[test]
    fn a_last_message_of_the_assistant_is_continued() {
        let continuation = |last: Value| read(vec![json!({"role": "user", "content": "a"}), last]).unwrap().1;
        assert_eq!(continuation(json!({"role": "assistant", "content": "b"})), ContinuationMode::LastMessage);
        assert_eq!(continuation(json!({"role": "assistant", "content": ""})), ContinuationMode::NewMessage);
        assert_eq!(continuation(calls(&[("1", "a")])), ContinuationMode::NewMessage);
    }

    #[test]
    fn images_come_before_the_text_and_are_named() {
        let message =
            json!({"role": "user", "content": "look", "images": ["QUJD", "data:image/png;base64,QUJE"]});
        let (messages, _) = read(vec![message]).unwrap();
        let [Message::User(Content { parts, .. })] = messages.as_slice() else { panic!("{messages:?}") };
        let image = |field: &str, data: &'static str| {
            Part::Media(MediaPart {
                kind: MediaKind::Image,
                field: field.to_owned(),
                source: MediaSource::Base64(data.into()),
            })
        };
        let expected = [
            image("messages[0].images[0]", "QUJD"),
            image("messages[0].images[1]", "QUJE"),
            Part::Text("look".into()),
        ];
        assert_eq!(parts.as_slice(), expected);
    }

    #[test]
    fn what_has_the_wrong_type_is_refused_by_name() {
        let param = |message: Value| read(vec![message]).unwrap_err().param().unwrap_or_default().to_owned();
        assert_eq!(param(json!({"content": "a"})), "messages[0].role");
        assert_eq!(param(json!({"role": "cook", "content": "a"})), "messages[0].role");
        assert_eq!(
            param(json!({"role": "user", "content": [{"type": "text", "text": "a"}]})),
            "messages[0].content"
        );
        assert_eq!(param(json!({"role": "user", "images": [1]})), "messages[0].images[0]");
        let call = json!({"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": 3}}]});
        assert_eq!(param(call), "messages[0].tool_calls[0].function.arguments");
    }
}
