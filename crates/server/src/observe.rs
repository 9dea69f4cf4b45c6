//! Records the metrics of a generation request from its events.
//!
//! Invariant: events pass unchanged. A stream that is dropped before its last event counts as disconnected.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use futures::{Stream, StreamExt};
use metrics::{counter, histogram};
use omnibus_engine::{Event, FinishReason, Usage};

use crate::active::ActiveGuard;
use crate::engine::Events;
use crate::error::ApiError;

/// The API of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
}

impl Api {
    /// The value of the `api` label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Completions => "completions",
        }
    }
}

/// Events of a request, with its metrics recorded as they pass.
pub struct ObservedEvents {
    events: Events,
    metrics: RequestMetrics,
    _guard: ActiveGuard,
}

impl ObservedEvents {
    /// Wraps the events of a request that was just submitted.
    pub fn new(events: Events, api: Api, guard: ActiveGuard) -> Self {
        let metrics = RequestMetrics { api, since: Instant::now(), first: None, outcome: None };
        Self { events, metrics, _guard: guard }
    }
}

impl Stream for ObservedEvents {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let polled = self.events.poll_next_unpin(context);
        if let Poll::Ready(Some(event)) = &polled {
            self.metrics.observe(event);
        }
        polled
    }
}

struct RequestMetrics {
    api: Api,
    since: Instant,
    first: Option<Instant>,
    outcome: Option<&'static str>,
}

impl RequestMetrics {
    fn observe(&mut self, event: &Event) {
        match event {
            Event::Started { .. } => self.record("omnibus_queue_seconds", self.since.elapsed().as_secs_f64()),
            Event::Prompt(_) => {}
            Event::Delta { .. } if self.first.is_none() => {
                self.first = Some(Instant::now());
                self.record("omnibus_ttft_seconds", self.since.elapsed().as_secs_f64());
            }
            Event::Delta { .. } => {}
            Event::Finished { reason, usage, .. } => self.finish(*reason, usage),
            Event::Failed(failure) => self.outcome = Some(ApiError::from(failure.clone()).outcome()),
        }
    }

    fn finish(&mut self, reason: FinishReason, usage: &Usage) {
        self.outcome = Some(match reason {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Cancelled => "cancelled",
        });
        counter!("omnibus_prompt_tokens_total").increment(usage.prompt_tokens as u64);
        counter!("omnibus_cached_tokens_total").increment(usage.cached_tokens as u64);
        counter!("omnibus_generated_tokens_total").increment(usage.completion_tokens as u64);
        self.record("omnibus_e2e_seconds", self.since.elapsed().as_secs_f64());
        if let (Some(first), 2..) = (self.first, usage.completion_tokens) {
            self.record(
                "omnibus_tpot_seconds",
                first.elapsed().as_secs_f64() / (usage.completion_tokens - 1) as f64,
            );
        }
    }

    fn record(&self, name: &'static str, seconds: f64) {
        histogram!(name, "api" => self.api.name()).record(seconds);
    }
}

impl Drop for RequestMetrics {
    fn drop(&mut self) {
        let outcome = self.outcome.unwrap_or("disconnected");
        counter!("omnibus_requests_total", "api" => self.api.name(), "outcome" => outcome).increment(1);
    }
}
