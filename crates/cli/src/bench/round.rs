//! A round of a benchmark: requests to an engine of this process, so many at once.

use std::time::{Duration, Instant};

use omnibus_engine::{EventStream, Handle, Request};

use crate::completion_output::{self, Collected};
use crate::error::Error;

/// What a round yields.
pub struct Round {
    /// From the first request to the end of the last answer.
    pub seconds: f64,
    /// The answers, in the order of the requests.
    pub answers: Vec<Collected>,
}

impl Round {
    /// Tokens of all answers.
    pub fn tokens(&self) -> usize {
        self.answers.iter().map(|answer| answer.usage.completion_tokens).sum()
    }
}

/// Sends all requests, at most so many at once.
pub async fn run(handle: &Handle, requests: Vec<Request>, streams: usize) -> Result<Round, Error> {
    let started = Instant::now();
    let mut waiting = requests.into_iter().enumerate();
    let mut running = tokio::task::JoinSet::new();
    let mut answers = Vec::new();
    loop {
        while running.len() < streams {
            let Some((at, mut request)) = waiting.next() else { break };
            request.id = format!("bench-{at}");
            let events: EventStream = handle.submit(request).map_err(Error::failed)?;
            running.spawn(async move { (at, completion_output::collect(events).await) });
        }
        let Some(done) = running.join_next().await else { break };
        let (at, answer) = done.map_err(Error::failed)?;
        answers.push((at, answer?));
    }
    answers.sort_by_key(|(at, _)| *at);
    let seconds = started.elapsed().max(Duration::from_micros(1)).as_secs_f64();
    Ok(Round { seconds, answers: answers.into_iter().map(|(_, answer)| answer).collect() })
}
