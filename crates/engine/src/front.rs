//! Text: rendering and tokenizing before a job is queued, detokenizing and stop strings after.
//!
//! Invariant: no arrays and no processes. A slow or broken client costs its own request: events wait in that request's
//! own channel, which its token limit bounds.

mod adapters;
mod call_grammar;
mod embed;
mod event_stream;
mod handle;
mod media;
mod message_boundaries;
mod message_formats;
mod model_text;
mod output_processor;
mod output_text;
mod reasoning_budget;
mod session_names;

pub(crate) use adapters::check_names;
pub use embed::Generated;
pub use event_stream::EventStream;
pub use handle::Handle;
pub(crate) use handle::Started;
pub(crate) use media::SpeechWindow;
pub(crate) use model_text::{ModelText, tokenizer_of};
pub(crate) use output_processor::{OutputState, RequestOutput};
