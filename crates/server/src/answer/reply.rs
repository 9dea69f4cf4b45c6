//! One object at the end, or events as they come.
//!
//! Invariant: an error before the first byte has its own status; after it, it is an `error` event.
//! Every stream ends with `[DONE]`.

use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use futures::stream;
use omnibus_engine::Event;

use super::totals::Totals;
use super::{Answer, Choices, Collected, Merged};
use crate::error::ApiError;
use crate::sse;
use crate::wire::generation::{Delivery, StreamUsage};

/// How long a stream's status waits for its first event.
const FIRST_EVENT_WAIT: Duration = Duration::from_secs(10);

/// Answers with the events of `choices` answers.
pub async fn reply<A: Answer>(
    answer: A,
    events: Merged,
    choices: Choices,
    delivery: Delivery,
) -> Result<Response, ApiError> {
    match delivery {
        Delivery::Whole => whole(answer, events, choices).await,
        Delivery::Stream(usage) => streamed(answer, events, choices, usage).await,
    }
}

async fn whole<A: Answer>(answer: A, mut events: Merged, choices: Choices) -> Result<Response, ApiError> {
    let mut totals = Totals::new(choices);
    let mut collected = vec![Collected::default(); choices.count];
    while let Some((choice, event)) = events.next().await {
        let collected = &mut collected[choice];
        match event {
            Event::Started { .. } => {}
            Event::Prompt(tokens) => collected.prompt.extend(tokens),
            Event::Delta { text, tokens } => {
                collected.text.push_str(&text);
                collected.tokens.extend(tokens);
            }
            Event::Finished { reason, usage, .. } => {
                collected.reason = Some(reason);
                totals.add(choice, usage);
            }
            Event::Failed(failure) => return Err(failure.into()),
        }
    }
    if !totals.complete() {
        return Err(lost());
    }
    Ok(Json(answer.whole(collected, totals.usage())).into_response())
}

/// A stream of events ended without its last.
fn lost() -> ApiError {
    ApiError::internal("the engine stopped before the answer was complete")
}

async fn streamed<A: Answer>(
    answer: A,
    mut events: Merged,
    choices: Choices,
    usage: StreamUsage,
) -> Result<Response, ApiError> {
    let mut stream =
        SseStream { answer, totals: Totals::new(choices), usage, ready: Vec::new(), state: State::Open };
    let first = tokio::time::timeout(FIRST_EVENT_WAIT, events.next()).await;
    if let Ok(Some((_, Event::Failed(failure)))) = first {
        return Err(failure.into());
    }
    for choice in 0..choices.count {
        let opening = stream.answer.opening(choice);
        stream.push(opening.as_ref());
    }
    match first {
        Ok(Some((choice, event))) => stream.take(choice, event),
        Ok(None) => return Err(lost()),
        Err(_still_queued) => {}
    }
    let opened = stream::once(std::future::ready(std::mem::take(&mut stream.ready)));
    let rest = stream::unfold((stream, events), step);
    Ok(sse::response(opened.chain(rest).flat_map(stream::iter)))
}

/// The messages that the next event leads to.
async fn step<A: Answer>(
    (mut stream, mut events): (SseStream<A>, Merged),
) -> Option<(Vec<sse::Message>, (SseStream<A>, Merged))> {
    if stream.state == State::Closed {
        return None;
    }
    match events.next().await {
        Some((choice, event)) => stream.take(choice, event),
        None => stream.close(),
    }
    let ready = std::mem::take(&mut stream.ready);
    Some((ready, (stream, events)))
}

struct SseStream<A> {
    answer: A,
    totals: Totals,
    usage: StreamUsage,
    ready: Vec<sse::Message>,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    Open,
    Closed,
}

impl<A: Answer> SseStream<A> {
    fn take(&mut self, choice: usize, event: Event) {
        match event {
            Event::Failed(failure) => return self.fail(&failure.into()),
            Event::Finished { usage, .. } => self.totals.add(choice, usage),
            Event::Started { .. } | Event::Prompt(_) | Event::Delta { .. } => {}
        }
        let chunk = self.answer.more(choice, event);
        self.push(chunk.as_ref());
    }

    fn close(&mut self) {
        if !self.totals.complete() {
            return self.fail(&lost());
        }
        if self.usage == StreamUsage::Include {
            let closing = self.answer.closing(self.totals.usage());
            self.push(Some(&closing));
        }
        self.end();
    }

    fn fail(&mut self, error: &ApiError) {
        self.ready.push(sse::Message::error(&error.body()));
        self.end();
    }

    fn end(&mut self) {
        self.ready.push(sse::Message::done());
        self.state = State::Closed;
    }

    fn push(&mut self, chunk: Option<&A::Chunk>) {
        self.ready.extend(chunk.map(sse::Message::data));
    }
}
