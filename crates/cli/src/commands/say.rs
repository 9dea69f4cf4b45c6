//! One answer, shown as it comes.

use std::time::{Duration, Instant};

use omnibus_engine::{Chat, Event, EventStream, FinishReason, Handle, Input, Request, Usage};
use serde_json::{Value, json};

use crate::error::Error;
use crate::output;
use crate::settings::{Config, Report};

/// What came of a generation.
#[derive(Debug)]
pub struct Said {
    /// The answer.
    pub text: String,
    /// Why it ended.
    pub reason: FinishReason,
    /// What it cost.
    pub usage: Usage,
    /// Until the first token.
    pub first: Duration,
    /// From then on.
    pub rest: Duration,
}

/// A request for one answer.
pub fn request(config: &Config, input: Input) -> Request {
    Request {
        max_new_tokens: Some(config.prompt.max_tokens),
        sampling: config.prompt.sampling.clone(),
        ..Request::new("terminal", input)
    }
}

/// A conversation so far.
pub fn chat(messages: Vec<Value>) -> Input {
    Input::Chat(Chat { messages: Value::Array(messages), ..Chat::default() })
}

/// One message of it.
pub fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

/// Shows an answer as it comes.
pub async fn show(mut events: EventStream) -> Result<Said, Error> {
    let (since, mut first, mut text) = (Instant::now(), None, String::new());
    while let Some(event) = events.next().await {
        match event {
            Event::Started { .. } | Event::Prompt(_) => {}
            Event::Delta { text: more, .. } => {
                first.get_or_insert_with(|| since.elapsed());
                output::piece(&more);
                text.push_str(&more);
            }
            Event::Finished { reason, usage, .. } => {
                output::piece("\n");
                let first = first.unwrap_or_else(|| since.elapsed());
                return Ok(Said { text, reason, usage, first, rest: since.elapsed().saturating_sub(first) });
            }
            Event::Failed(failure) => return Err(Error::failed(failure)),
        }
    }
    Err(Error::failed("the engine stopped before the answer was complete"))
}

/// Says how it was, if anybody wants to know.
pub fn report(config: &Config, handle: &Handle, said: &Said) {
    if config.report == Report::Quiet {
        return;
    }
    let Usage { prompt_tokens, cached_tokens, completion_tokens } = said.usage;
    let prompt_rate = (prompt_tokens - cached_tokens.min(prompt_tokens)) as f64 / said.first.as_secs_f64();
    output::note(format!(
        "prompt: {prompt_tokens} tokens, {cached_tokens} cached, {prompt_rate:.1} tokens/s"
    ));
    let rate = completion_tokens.saturating_sub(1) as f64 / said.rest.as_secs_f64().max(1e-9);
    let why = match said.reason {
        FinishReason::Stop => "it was done",
        FinishReason::Length => "it reached --max-tokens",
        FinishReason::Cancelled => "it was stopped",
    };
    output::note(format!("answer: {completion_tokens} tokens, {rate:.1} tokens/s, until {why}"));
    let peak = handle.stats().peak_memory_bytes as f64 / 1e9;
    output::note(format!("peak memory: {peak:.3} GB"));
}

/// A runtime for commands that wait for one thing at a time.
pub fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::failed)
}
