//! Streams one completion to stdout, and prints its statistics to stderr.

use std::path::Path;
use std::time::{Duration, Instant};

use omnibus_engine::{
    Chat, ContentPart, Event, EventStream, FinishReason, Handle, Input, MediaItem, MediaSource, Message,
    Request, Role, Usage,
};

use crate::error::Error;
use crate::output;
use crate::settings::{Config, Verbosity};
use crate::wrap::Wrap;

/// A finished completion.
#[derive(Debug)]
pub struct Completion {
    /// The text.
    pub text: String,
    /// Why it ended.
    pub reason: FinishReason,
    /// Token counts.
    pub usage: Usage,
    /// Time to first text.
    pub ttft: Duration,
    /// Time from the first text to the end.
    pub decode: Duration,
}

/// A request for one completion of `input`.
pub fn request(config: &Config, input: Input) -> Request {
    Request {
        max_new_tokens: Some(config.prompt.max_tokens),
        sampling: config.prompt.sampling.clone(),
        structured: config.prompt.structured.clone(),
        ..Request::new("terminal", input)
    }
}

/// The input of a conversation, whose messages refer to `media`.
pub fn chat(messages: Vec<Message>, media: Vec<MediaItem>) -> Input {
    Input::Chat(Chat { messages, media, ..Chat::default() })
}

/// A file with an image or with audio.
pub fn media(path: &Path) -> Result<MediaItem, Error> {
    let field = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| Error::failed(format!("{field}: {error}")))?;
    Ok(MediaItem { field, source: MediaSource::Bytes(bytes.into()) })
}

/// A user's message with media before its text.
pub fn question(text: &str, media: Vec<ContentPart>) -> Message {
    let mut message = Message::new(Role::User, text);
    message.content.splice(..0, media);
    message
}

/// Prints a completion as it is generated. Fails when the request fails.
pub async fn print_stream(events: EventStream) -> Result<Completion, Error> {
    print_shaped(events, &mut |piece| output::piece(piece.unwrap_or("\n"))).await
}

/// Prints a completion as it is generated, wrapped to the terminal where there is one.
pub async fn print_wrapped(events: EventStream) -> Result<Completion, Error> {
    let Some(columns) = output::columns() else { return print_stream(events).await };
    let mut wrap = Wrap::new(columns);
    let mut print = |piece: Option<&str>| {
        let text = match piece {
            Some(piece) => wrap.piece(piece),
            None => wrap.end() + "\n",
        };
        output::piece(&text);
    };
    print_shaped(events, &mut print).await
}

/// Gives each piece to `print`, and `None` at the end.
async fn print_shaped(
    mut events: EventStream,
    print: &mut dyn FnMut(Option<&str>),
) -> Result<Completion, Error> {
    let (since, mut first, mut text) = (Instant::now(), None, String::new());
    while let Some(event) = events.next().await {
        match event {
            Event::Started { .. }
            | Event::Prompt(_)
            | Event::Alignment(_)
            | Event::Hidden(_)
            | Event::TokenLogits(_)
            | Event::Progress { .. } => {}
            Event::Delta { delta, .. } => {
                let more = delta.text();
                first.get_or_insert_with(|| since.elapsed());
                print(Some(more));
                text.push_str(more);
            }
            Event::Finished { reason, usage, .. } => {
                print(None);
                let ttft = first.unwrap_or_else(|| since.elapsed());
                let decode = since.elapsed().saturating_sub(ttft);
                return Ok(Completion { text, reason, usage, ttft, decode });
            }
            Event::Failed(failure) => return Err(Error::failed(failure)),
        }
    }
    Err(Error::failed("the engine stopped before the completion was finished"))
}

/// What a completion says, and its token counts.
#[derive(Debug)]
pub struct Collected {
    /// The text.
    pub text: String,
    /// Token counts.
    pub usage: Usage,
}

/// Waits for a completion. Fails when the request fails.
pub async fn collect(mut events: EventStream) -> Result<Collected, Error> {
    let mut text = String::new();
    while let Some(event) = events.next().await {
        match event {
            Event::Started { .. }
            | Event::Prompt(_)
            | Event::Alignment(_)
            | Event::Hidden(_)
            | Event::TokenLogits(_)
            | Event::Progress { .. } => {}
            Event::Delta { delta, .. } => text.push_str(delta.text()),
            Event::Finished { usage, .. } => return Ok(Collected { text, usage }),
            Event::Failed(failure) => return Err(Error::failed(failure)),
        }
    }
    Err(Error::failed("the engine stopped before the completion was finished"))
}

/// Prints speed and memory, with `--verbose`.
pub fn print_stats(config: &Config, handle: &Handle, completion: &Completion) {
    if config.verbosity == Verbosity::Quiet {
        return;
    }
    let Usage { prompt_tokens, cached_tokens, completion_tokens, drafts, .. } = completion.usage;
    let prompt_rate =
        (prompt_tokens - cached_tokens.min(prompt_tokens)) as f64 / completion.ttft.as_secs_f64();
    output::note(format!(
        "prompt: {prompt_tokens} tokens, {cached_tokens} cached, {prompt_rate:.1} tokens/s"
    ));
    let rate = completion_tokens.saturating_sub(1) as f64 / completion.decode.as_secs_f64().max(1e-9);
    let why = match completion.reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "--max-tokens reached",
        FinishReason::Cancelled => "cancelled",
    };
    output::note(format!("generation: {completion_tokens} tokens, {rate:.1} tokens/s, finish reason: {why}"));
    let verified = drafts.accepted + drafts.rejected;
    if verified > 0 {
        output::note(format!("draft tokens: {} of {verified} accepted", drafts.accepted));
    }
    let peak = handle.stats().peak_memory_bytes as f64 / 1e9;
    output::note(format!("peak memory: {peak:.3} GB"));
}

/// A single-threaded async runtime.
pub fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::failed)
}
