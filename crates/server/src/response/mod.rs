//! Responses, made from [events](Event). Start at [`Framer`]; [`reply()`] sends what a framer makes.
//!
//! Invariant: nothing here but `openai`, `anthropic`, `responses`, `ollama`, `decisions` and `page` knows an API's format. An API is a wire module, a lowering and a framer.

pub mod anthropic;
mod completion;
mod custom_input;
pub mod decisions;
mod event;
mod frame;
mod merge;
pub mod ndjson;
pub mod not_enforced;
pub mod ollama;
pub mod openai;
pub mod page;
mod reply;
pub mod responses;
pub mod sse;
mod timings;
mod tool_event;
mod usage;

use axum::response::IntoResponse;
use omnibus_engine::Usage;

pub use completion::{Completion, CompletionPart, ToolCall, Transcript};
pub use event::Event;
pub use frame::{Frame, Frames};
pub use merge::{ChoiceEvents, merge};
pub use reply::{Delivery, frames, full, reply};
pub use timings::TimedChoice;
pub use tool_event::{Found, ListedServer, SearchFailure, StartedCall, ToolEvent};

pub use crate::json_body::JsonBody;

use crate::error::ApiError;

/// The fields that all chunks of a response repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHeader {
    /// The response's id, as in `chatcmpl-…`.
    pub id: String,
    /// Unix seconds.
    pub created: u64,
    /// The requested model, or the default one.
    pub model: String,
}

/// Turns events into the frames of an API, or into one full response. One value frames one response.
pub trait Framer: Send + 'static {
    /// The body of a response that is not streamed.
    type Body: IntoResponse;

    /// Notes that the engine has taken the request. One that is refused leaves nothing.
    fn submitted(&mut self) {}
    /// The frames before the first event.
    fn start(&mut self, frames: &mut Frames);
    /// The frames of an event of a choice. Never called with one that reports a failure.
    fn event(&mut self, choice: usize, event: Event, frames: &mut Frames);
    /// Notes an event of a response that is not streamed, before it is folded into a completion.
    fn observe(&mut self, _event: &Event) {}
    /// The frames that show, after a silence, that the stream is alive. Without, it is silent but for comments.
    fn keep_alive(&mut self, _frames: &mut Frames) {}
    /// The frames after the last event of the last choice.
    fn finish(&mut self, usage: Usage, frames: &mut Frames);
    /// The frames that end a stream which failed after its first byte.
    fn fail(&mut self, error: &ApiError, frames: &mut Frames);
    /// The body that says that the response will be generated in the background.
    fn accepted(&mut self) -> JsonBody {
        JsonBody::of(&serde_json::Map::new())
    }
    /// The body of a response that is not streamed. `completions` has one entry per choice.
    fn full(self, completions: Vec<Completion>, usage: Usage) -> Self::Body;
}
