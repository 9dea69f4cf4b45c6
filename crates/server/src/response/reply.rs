//! Sends a response: one JSON object, or a stream of frames.
//!
//! Invariant: an error before the first byte has its own status; after it, the framer ends the stream.

use std::time::{Duration, Instant};

use axum::response::{IntoResponse, Response};
use futures::{Stream, StreamExt, stream};
use omnibus_engine::Usage;

use super::frame::Frame;
use super::usage::UsageTotals;
use super::{ChoiceEvents, Completion, Event, Framer, Frames};
use super::{ndjson, sse};
use crate::error::ApiError;
use crate::lower::Choices;

/// How long a stream waits for its first event before the status is sent.
const FIRST_EVENT_TIMEOUT: Duration = Duration::from_secs(10);

/// How a response is delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Delivery {
    /// One JSON object at the end.
    #[default]
    Full,
    /// Server-sent events.
    Stream,
    /// JSON objects, one a line.
    Lines,
    /// Server-sent events, which are generated whether or not the client stays connected.
    LoggedStream,
    /// At once, without the completion, which is generated in the background.
    Background,
}

/// Responds with the events of all choices.
pub async fn reply(
    framer: impl Framer,
    events: ChoiceEvents,
    choices: Choices,
    delivery: Delivery,
    keep_alive: Duration,
) -> Result<Response, ApiError> {
    match delivery {
        Delivery::Full => Ok(full(framer, events, choices).await?.into_response()),
        Delivery::Stream | Delivery::LoggedStream => {
            Ok(sse::response(streamed(framer, events, choices, keep_alive).await?))
        }
        Delivery::Lines => Ok(ndjson::response(streamed(framer, events, choices, keep_alive).await?)),
        Delivery::Background => Ok(background(framer, events, choices)),
    }
}

/// The body of a whole response.
pub async fn full<F: Framer>(
    mut framer: F,
    events: ChoiceEvents,
    choices: Choices,
) -> Result<F::Body, ApiError> {
    match collect(&mut framer, events, choices).await {
        Ok((completions, usage)) => Ok(framer.full(completions, usage)),
        Err(error) => {
            // What it keeps is not in progress any more.
            framer.fail(&error, &mut Frames::default());
            Err(error)
        }
    }
}

/// The completion is generated whether or not the client stays connected; the framer keeps it.
fn background(mut framer: impl Framer, events: ChoiceEvents, choices: Choices) -> Response {
    let accepted = framer.accepted().into_response();
    tokio::spawn(async move {
        match collect(&mut framer, events, choices).await {
            Ok((completions, usage)) => _ = framer.full(completions, usage),
            Err(error) => framer.fail(&error, &mut Frames::default()),
        }
    });
    accepted
}

/// Waits for the end of all choices.
async fn collect(
    framer: &mut impl Framer,
    mut events: ChoiceEvents,
    choices: Choices,
) -> Result<(Vec<Completion>, Usage), ApiError> {
    let mut totals = UsageTotals::new(choices);
    let mut completions = vec![Completion::default(); choices.count];
    while let Some((choice, event)) = events.next().await {
        framer.observe(&event);
        if let Some(end) = event.end() {
            totals.add(choice, end?);
        }
        if let Some(completion) = completions.get_mut(choice) {
            completion.timed.add(&event, Instant::now());
            completion.fold(event);
        }
    }
    Ok((completions, totals.complete().ok_or_else(incomplete)?))
}

/// The event stream of a choice ended before its last event.
fn incomplete() -> ApiError {
    ApiError::internal("the engine stopped before the completion was finished")
}

/// The frames of a response that has begun. Fails before its first byte if the first event reports a failure.
async fn streamed(
    mut framer: impl Framer,
    mut events: ChoiceEvents,
    choices: Choices,
    keep_alive: Duration,
) -> Result<impl Stream<Item = Frame> + Send + 'static, ApiError> {
    let first = tokio::time::timeout(FIRST_EVENT_TIMEOUT, events.next()).await;
    match &first {
        Ok(Some((_, event))) => event.end().transpose().map(drop),
        Ok(None) => Err(incomplete()),
        Err(_elapsed) => Ok(()),
    }
    .inspect_err(|error| framer.fail(error, &mut Frames::default()))?;
    let mut stream = FrameStream::new(framer, choices, keep_alive);
    if let Ok(Some((choice, event))) = first {
        stream.event(choice, event);
    }
    Ok(rest(stream, events))
}

/// The frames of a response, without a wait for its status: a failure is a frame, too.
pub fn frames(
    framer: impl Framer,
    events: ChoiceEvents,
    choices: Choices,
    keep_alive: Duration,
) -> impl Stream<Item = Frame> + Send {
    rest(FrameStream::new(framer, choices, keep_alive), events)
}

fn rest(
    mut stream: FrameStream<impl Framer>,
    events: ChoiceEvents,
) -> impl Stream<Item = Frame> + Send + 'static {
    let start = stream::once(std::future::ready(stream.frames.take()));
    let rest = stream::unfold((stream, events), next_frames);
    start.chain(rest).flat_map(stream::iter)
}

/// The frames of the next event, or those that show after a silence that the stream is alive.
async fn next_frames<F: Framer>(
    (mut stream, mut events): (FrameStream<F>, ChoiceEvents),
) -> Option<(Vec<Frame>, (FrameStream<F>, ChoiceEvents))> {
    if stream.state == State::Closed {
        return None;
    }
    match tokio::time::timeout(stream.keep_alive, events.next()).await {
        Ok(Some((choice, event))) => stream.event(choice, event),
        Ok(None) => stream.finish(),
        Err(_silence) => stream.framer.keep_alive(&mut stream.frames),
    }
    Some((stream.frames.take(), (stream, events)))
}

/// A stream in progress.
struct FrameStream<F> {
    framer: F,
    totals: UsageTotals,
    frames: Frames,
    keep_alive: Duration,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    Open,
    Closed,
}

impl<F: Framer> FrameStream<F> {
    fn new(mut framer: F, choices: Choices, keep_alive: Duration) -> Self {
        let mut frames = Frames::default();
        framer.start(&mut frames);
        Self { framer, totals: UsageTotals::new(choices), frames, keep_alive, state: State::Open }
    }

    fn event(&mut self, choice: usize, event: Event) {
        match event.end() {
            Some(Err(error)) => return self.fail(&error),
            Some(Ok(usage)) => self.totals.add(choice, usage),
            None => {}
        }
        self.framer.event(choice, event, &mut self.frames);
    }

    fn finish(&mut self) {
        match self.totals.complete() {
            Some(usage) => {
                self.framer.finish(usage, &mut self.frames);
                self.state = State::Closed;
            }
            None => self.fail(&incomplete()),
        }
    }

    fn fail(&mut self, error: &ApiError) {
        self.framer.fail(error, &mut self.frames);
        self.state = State::Closed;
    }
}
