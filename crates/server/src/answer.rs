//! What an answer says, read from its bytes: for records of requests, and for the command that replays them.
//!
//! Invariant: two answers to one request have equal digests when they say the same, whatever their ids and times.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;
use sha2::{Digest, Sha256};

/// The APIs whose answers are read, by the ends of their paths.
const FORMATS: &[(&str, AnswerFormat)] = &[
    ("/chat/completions", AnswerFormat::Chat),
    ("/completions", AnswerFormat::Chat),
    ("/messages", AnswerFormat::Messages),
    ("/responses", AnswerFormat::Responses),
    ("/api/chat", AnswerFormat::Ollama),
    ("/api/generate", AnswerFormat::Ollama),
];

/// The shape of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerFormat {
    /// OpenAI's chat and text completions.
    Chat,
    /// Anthropic's messages.
    Messages,
    /// OpenAI's Responses API.
    Responses,
    /// Ollama's.
    Ollama,
}

impl AnswerFormat {
    /// Of the answers of a path, with or without its version.
    pub fn of(path: &str) -> Option<Self> {
        let path = path.strip_prefix("/v1").unwrap_or(path);
        FORMATS.iter().find(|(own, _)| *own == path).map(|(_, format)| *format)
    }
}

/// What an answer says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The id that later requests may refer to.
    pub id: Option<String>,
    /// Why it ended.
    pub finish: Option<String>,
    /// Tokens of the prompt, where the answer has them.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the completion, where the answer has them.
    pub completion_tokens: Option<u64>,
    /// Texts, reasoning and calls, by their places.
    parts: BTreeMap<String, String>,
}

impl Answer {
    /// Reads a body: one JSON value, events, or lines.
    pub fn read(format: AnswerFormat, body: &[u8]) -> Self {
        let mut answer = Self::default();
        for value in values(body) {
            match format {
                AnswerFormat::Chat => answer.chat(&value),
                AnswerFormat::Messages => answer.messages(&value),
                AnswerFormat::Responses => answer.responses(&value),
                AnswerFormat::Ollama => answer.ollama(&value),
            }
        }
        answer
    }

    /// A hash of what it says.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for text in self.parts.iter().flat_map(|(place, text)| [place, text]) {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        hash.finalize().iter().fold(String::new(), |mut hex, byte| {
            // Writing to a string does not fail.
            _ = write!(hex, "{byte:02x}");
            hex
        })
    }

    fn chat(&mut self, value: &Value) {
        self.named(value);
        self.usage(value.get("usage"), ["prompt_tokens", "completion_tokens"]);
        for choice in list(value, "choices") {
            let place = number(choice, "index");
            self.finished(choice, "finish_reason");
            self.add(format!("{place}.text"), choice.get("text"));
            let message = choice.get("message").or(choice.get("delta"));
            let Some(message) = message else { continue };
            for name in ["content", "reasoning_content", "refusal"] {
                self.add(format!("{place}.{name}"), message.get(name));
            }
            for (at, call) in list(message, "tool_calls").enumerate() {
                let at = call.get("index").and_then(Value::as_u64).unwrap_or(at as u64);
                let function = call.get("function").or(call.get("custom"));
                for name in ["name", "arguments", "input"] {
                    let text = function.and_then(|function| function.get(name));
                    self.add(format!("{place}.call.{at}.{name}"), text);
                }
            }
        }
    }

    fn messages(&mut self, value: &Value) {
        // The start of a stream has the message, its end the reason and the last counts.
        let message = value.get("message").unwrap_or(value);
        self.named(message);
        self.usage(message.get("usage"), ["input_tokens", "output_tokens"]);
        self.finished(value.get("delta").unwrap_or(value), "stop_reason");
        for (at, block) in list(message, "content").enumerate() {
            self.block(at as u64, block);
        }
        let at = number(value, "index");
        if let Some(block) = value.get("content_block") {
            self.block(at, block);
        }
        if let Some(delta) = value.get("delta") {
            self.block(at, delta);
        }
    }

    fn block(&mut self, at: u64, block: &Value) {
        for name in ["text", "thinking", "name", "partial_json"] {
            self.add(format!("{at}.{name}"), block.get(name));
        }
        let input =
            block.get("input").filter(|input| input.as_object().is_some_and(|input| !input.is_empty()));
        self.add(format!("{at}.input"), input.map(|input| Value::from(input.to_string())).as_ref());
    }

    fn responses(&mut self, value: &Value) {
        // The last event of a stream has the whole response.
        let response = value.get("response").unwrap_or(value);
        let status = response.get("status").and_then(Value::as_str);
        if matches!(status, None | Some("in_progress" | "queued")) {
            return;
        }
        self.named(response);
        self.finished(response, "status");
        self.usage(response.get("usage"), ["input_tokens", "output_tokens"]);
        for (at, item) in list(response, "output").enumerate() {
            for part in list(item, "content").chain(list(item, "summary")) {
                self.add(format!("{at}.text"), part.get("text"));
            }
            for name in ["type", "name", "arguments", "input"] {
                self.add(format!("{at}.{name}"), item.get(name));
            }
        }
    }

    fn ollama(&mut self, value: &Value) {
        self.finished(value, "done_reason");
        self.usage(Some(value), ["prompt_eval_count", "eval_count"]);
        self.add("response".to_owned(), value.get("response"));
        self.add("thinking".to_owned(), value.get("thinking"));
        let Some(message) = value.get("message") else { return };
        for name in ["content", "thinking"] {
            self.add(format!("message.{name}"), message.get(name));
        }
        let calls = message.get("tool_calls").map(|calls| Value::from(calls.to_string()));
        self.add("message.tool_calls".to_owned(), calls.as_ref());
    }

    fn named(&mut self, value: &Value) {
        let id = value.get("id").and_then(Value::as_str);
        self.id = self.id.take().or(id.map(str::to_owned));
    }

    fn finished(&mut self, value: &Value, name: &str) {
        if let Some(reason) = value.get(name).and_then(Value::as_str) {
            self.finish = Some(reason.to_owned());
        }
    }

    /// Later counts replace earlier ones.
    fn usage(&mut self, usage: Option<&Value>, [prompt, completion]: [&str; 2]) {
        let count = |name: &str| usage?.get(name)?.as_u64();
        self.prompt_tokens = count(prompt).or(self.prompt_tokens);
        self.completion_tokens = count(completion).or(self.completion_tokens);
    }

    fn add(&mut self, place: String, text: Option<&Value>) {
        if let Some(text) = text.and_then(Value::as_str).filter(|text| !text.is_empty()) {
            self.parts.entry(place).or_default().push_str(text);
        }
    }
}

/// The JSON values of a body.
fn values(body: &[u8]) -> Vec<Value> {
    if let Ok(value) = serde_json::from_slice(body) {
        return vec![value];
    }
    let line = |line: &[u8]| {
        let data = line.strip_prefix(b"data:").unwrap_or(line);
        serde_json::from_slice(data).ok().filter(Value::is_object)
    };
    body.split(|byte| *byte == b'\n').filter_map(line).collect()
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, bodies: [&str; 2], expected: (&str, u64, u64)) {
        let format = AnswerFormat::of(path).unwrap();
        let [whole, streamed] = bodies.map(|body| Answer::read(format, body.as_bytes()));
        assert_eq!(whole, streamed, "{path}");
        let counts = (whole.prompt_tokens.unwrap(), whole.completion_tokens.unwrap());
        assert_eq!((whole.finish.as_deref().unwrap(), counts.0, counts.1), expected);
    }

    #[test]
    fn a_stream_says_what_the_whole_answer_says() {
        check(
            "/v1/chat/completions",
            [
                r#"{"id":"a","choices":[{"index":0,"message":{"content":"hi you","tool_calls":[{"id":"x","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#,
                "data: {\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\n: keep-alive\n\ndata: {\"id\":\"a\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" you\",\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n",
            ],
            ("stop", 1, 2),
        );
        check(
            "/messages",
            [
                r#"{"id":"m","content":[{"type":"text","text":"hi you"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}"#,
                "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"content\":[],\"usage\":{\"input_tokens\":3,\"output_tokens\":0}}}\n\ndata: {\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\ndata: {\"index\":0,\"delta\":{\"text\":\"hi \"}}\n\ndata: {\"index\":0,\"delta\":{\"text\":\"you\"}}\n\ndata: {\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\n",
            ],
            ("end_turn", 3, 2),
        );
        check(
            "/v1/responses",
            [
                r#"{"id":"r","status":"completed","output":[{"type":"message","content":[{"text":"hi"}]}],"usage":{"input_tokens":4,"output_tokens":1}}"#,
                "data: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"status\":\"in_progress\"}}\n\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"status\":\"completed\",\"output\":[{\"type\":\"message\",\"content\":[{\"text\":\"hi\"}]}],\"usage\":{\"input_tokens\":4,\"output_tokens\":1}}}\n\n",
            ],
            ("completed", 4, 1),
        );
        check(
            "/api/chat",
            [
                r#"{"message":{"content":"hi you"},"done_reason":"stop","prompt_eval_count":5,"eval_count":2}"#,
                "{\"message\":{\"content\":\"hi \"}}\n{\"message\":{\"content\":\"you\"},\"done_reason\":\"stop\",\"prompt_eval_count\":5,\"eval_count\":2}\n",
            ],
            ("stop", 5, 2),
        );
    }

    #[test]
    fn a_digest_depends_on_texts_and_their_places_alone() {
        let of = |body: &str| Answer::read(AnswerFormat::Chat, body.as_bytes()).digest();
        let first = of(r#"{"id":"a","choices":[{"index":0,"text":"x"},{"index":1,"text":"y"}]}"#);
        assert_eq!(of(r#"{"id":"b","choices":[{"index":1,"text":"y"},{"index":0,"text":"x"}]}"#), first);
        assert_ne!(of(r#"{"id":"a","choices":[{"index":0,"text":"y"},{"index":1,"text":"x"}]}"#), first);
        assert_eq!(of("no answer"), of(""), "{first}");
    }

    #[test]
    fn other_paths_have_no_answers() {
        assert_eq!(AnswerFormat::of("/v1/models"), None);
    }
}
