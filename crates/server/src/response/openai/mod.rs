//! OpenAI's format: chunks without event names, `[DONE]` at the end of every stream, and its error object.

pub mod chat;
mod chat_calls;
mod chat_mcp_calls;
pub mod completions;
mod error;
pub mod infill;
mod limits;
pub mod logprobs;
pub mod transcription;

use std::time::Instant;

use omnibus_engine::{FinishReason, TokenInfo, Usage};

pub use error::error_body;
pub use limits::headers as limit_headers;

use super::{Delivery, Event, Frames, TimedChoice};
use crate::error::ApiError;
use crate::wire::energy::ShownEnergy;
use crate::wire::generation::{
    Generation, ShownProgress, ShownTimings, StreamUsage, Streaming, TokenDisplay, TokenIds,
};
use crate::wire::kv_transfer::KvTransfer;
use crate::wire::logprobs::PromptLogprobs;
use crate::wire::timings::{PromptProgress, Timings};
use crate::wire::usage as wire;

/// The value of `system_fingerprint`.
pub const FINGERPRINT: &str = concat!("omnibus-", env!("CARGO_PKG_VERSION"));

/// Whether log-probabilities were requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logprobs {
    /// They are included.
    Include,
    /// They are left out.
    Omit,
}

impl Logprobs {
    /// Of a request that wants so many alternatives.
    pub fn of(alternatives: Option<usize>) -> Self {
        match alternatives {
            Some(_) => Self::Include,
            None => Self::Omit,
        }
    }
}

/// What a request asked to see, besides the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Include {
    /// A usage chunk at the end of a stream.
    pub usage: StreamUsage,
    /// Log-probabilities.
    pub logprobs: Logprobs,
    /// How tokens are shown.
    pub tokens: TokenDisplay,
    /// Log-probabilities of the prompt.
    pub prompt_logprobs: Logprobs,
    /// Times.
    pub timings: ShownTimings,
    /// How much of the prompt is computed.
    pub progress: ShownProgress,
    /// What the server that decodes gets.
    pub kv_transfer: KvTransfer,
    /// Energy in the usage.
    pub energy: ShownEnergy,
}

impl Include {
    /// What a request with these fields asked to see.
    pub fn new(generation: &Generation, logprobs: Option<usize>) -> Self {
        let usage = match generation.streaming {
            Streaming::On(usage) => usage,
            Streaming::Off => StreamUsage::Omit,
        };
        Self {
            usage,
            logprobs: Logprobs::of(logprobs),
            tokens: generation.tokens,
            prompt_logprobs: Logprobs::of(generation.prompt_logprobs),
            timings: generation.timings,
            progress: generation.progress,
            kv_transfer: generation.kv_transfer,
            energy: generation.energy,
        }
    }

    /// The `usage` field of a chunk: absent without `include_usage`, null in all chunks but the last unless it is
    /// continuous. `so_far` is that of the chunk's choice.
    fn usage_field(self, usage: Option<Usage>, so_far: Usage) -> Option<Option<wire::Usage>> {
        match self.usage {
            StreamUsage::Omit => None,
            StreamUsage::Include => Some(usage.map(|usage| self.usage_of(usage))),
            StreamUsage::Continuous => Some(Some(self.usage_of(usage.unwrap_or(so_far)))),
        }
    }

    /// The `usage` field of a response.
    fn usage_of(self, usage: Usage) -> wire::Usage {
        usage_of(usage, self.energy)
    }

    /// The times of a choice, when requested.
    fn timings(self, of: &TimedChoice) -> Option<Timings> {
        (self.timings == ShownTimings::Include).then(|| of.timings())
    }

    /// How much of the prompt is computed, when requested, at an event that says so.
    fn progress(self, of: &TimedChoice, event: &Event, now: Instant) -> Option<PromptProgress> {
        of.progress(event, now).filter(|_| self.progress == ShownProgress::Include)
    }

    /// Whether tokens are shown that come without text.
    fn shows(self, tokens: &[TokenInfo]) -> bool {
        let is_shown = self.logprobs == Logprobs::Include || self.tokens.ids == TokenIds::Return;
        is_shown && !tokens.is_empty()
    }

    /// Log-probabilities of the prompt's tokens, when requested.
    fn prompt_logprobs(self, tokens: Vec<TokenInfo>) -> Option<PromptLogprobs> {
        (self.prompt_logprobs == Logprobs::Include).then(|| logprobs::prompt(tokens))
    }

    /// The ids of tokens, when requested.
    fn token_ids(self, tokens: &[TokenInfo]) -> Option<Vec<u32>> {
        (self.tokens.ids == TokenIds::Return).then(|| tokens.iter().map(|token| token.id).collect())
    }
}

impl From<Streaming> for Delivery {
    fn from(streaming: Streaming) -> Self {
        match streaming {
            Streaming::Off => Self::Full,
            Streaming::On(_) => Self::Stream,
        }
    }
}

/// The data of the last frame of every stream.
pub const DONE: &str = "[DONE]";

/// The last frame of every stream.
fn done(frames: &mut Frames) {
    frames.text(DONE);
}

/// Ends a failed stream.
fn failed(error: &ApiError, frames: &mut Frames) {
    frames.event("error", &error::object(error));
    done(frames);
}

fn usage_of(usage: Usage, energy: ShownEnergy) -> wire::Usage {
    let Usage { prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, drafts, media, energy: _ } =
        usage;
    let omnibus_engine::MediaUsage { images, audio } = media;
    let images = (images.tokens > 0).then_some(wire::ImageDetails {
        image_tokens: images.tokens,
        encoded_images: images.encoded,
        image_encode_ms: images.encode_ms,
    });
    let audio = (audio.tokens > 0).then_some(wire::AudioDetails {
        audio_tokens: audio.tokens,
        encoded_audio: audio.encoded,
        audio_encode_ms: audio.encode_ms,
    });
    wire::Usage {
        prompt_tokens,
        completion_tokens,
        total_tokens: prompt_tokens + completion_tokens,
        prompt_tokens_details: wire::PromptTokensDetails { cached_tokens, images, audio },
        completion_tokens_details: wire::CompletionTokensDetails {
            reasoning_tokens,
            accepted_prediction_tokens: drafts.accepted,
            rejected_prediction_tokens: drafts.rejected,
        },
        energy: energy.of(&usage),
    }
}

/// OpenAI's finish reason. `cancelled` is ours: only the client that cancels sees it.
pub fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::Cancelled => "cancelled",
    }
}
