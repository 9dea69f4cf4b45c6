//! Text: rendering and tokenizing before a job is queued, detokenizing and stop strings after.
//!
//! Invariant: no arrays and no processes. A slow or broken client costs its own request: events wait in that request's
//! own channel, which its token limit bounds.

mod active_requests;
mod adapters;
mod bad_words;
mod call_grammar;
mod dry_breakers;
mod embed;
mod event_stream;
mod handle;
mod loaded_model;
mod long_text;
mod media;
mod message_boundaries;
mod message_formats;
mod model_text;
mod output_processor;
mod output_text;
mod pooling;
mod reasoning_budget;
mod scoring;
mod session_names;

pub(crate) use active_requests::ActiveRequests;
pub use active_requests::Admission;
pub(crate) use adapters::check_names;
pub use embed::Generated;
pub use event_stream::EventStream;
pub use handle::Handle;
pub(crate) use loaded_model::{LoadedModel, Started};
pub use loaded_model::{PoolingRun, ScoringRun};
pub(crate) use media::{LargestMedia, SpeechWindow};
pub(crate) use model_text::ModelText;
pub use model_text::tokenizer_of;
pub use pooling::{Pooled, PoolingInput, PoolingPrompt, PoolingRequest, TooLong};
pub use scoring::{Scoring, ScoringPrompt, ScoringRequest};
