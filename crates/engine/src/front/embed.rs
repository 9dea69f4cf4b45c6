//! Generation for programs that embed the engine: one call, with a callback that may stop it.

use std::ops::ControlFlow;

use super::handle::Handle;
use crate::error::Failure;
use crate::event::{Delta, Event, FinishReason, TokenInfo, Usage};
use crate::request::Request;

/// How a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generated {
    /// Why; [`FinishReason::Cancelled`] where the callback stopped it.
    pub reason: FinishReason,
    /// Token counts; `None` where the callback stopped it.
    pub usage: Option<Usage>,
}

impl Handle {
    /// Generates on this thread. `on_delta` gets each part of the message with its tokens, which have log-probabilities
    /// where the request wants them; with [`ControlFlow::Break`] it stops the generation, and the engine goes on with
    /// other requests. Fails as the request does.
    pub fn generate(
        &self,
        request: Request,
        mut on_delta: impl FnMut(&Delta, &[TokenInfo]) -> ControlFlow<()>,
    ) -> Result<Generated, Failure> {
        let mut events = self.submit(request)?;
        while let Some(event) = events.blocking_next() {
            match event {
                Event::Started { .. }
                | Event::Prompt(_)
                | Event::Alignment(_)
                | Event::Hidden(_)
                | Event::TokenLogits(_)
                | Event::Progress { .. } => {}
                Event::Delta { delta, tokens } => {
                    if on_delta(&delta, &tokens).is_break() {
                        return Ok(Generated { reason: FinishReason::Cancelled, usage: None });
                    }
                }
                Event::Finished { reason, usage, .. } => return Ok(Generated { reason, usage: Some(usage) }),
                Event::Failed(failure) => return Err(failure),
            }
        }
        Err(Failure::unavailable("the engine has stopped"))
    }
}
