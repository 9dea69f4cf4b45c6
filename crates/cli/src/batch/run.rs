//! Sends requests, so many at a time, and writes down what comes back.

use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use omnibus_batches::{Answer, Input, Journal, Line, Outcome, Unanswered, Usage};
use serde_json::Value;

use crate::error::Error;
use crate::progress::Progress;

/// Longest pause before a request that the server had no room for is sent again.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// How often a request is sent whose connection broke.
const ATTEMPTS: usize = 3;

/// Where requests go.
pub struct Server {
    http: reqwest::Client,
    origin: String,
    key: Option<String>,
}

/// What a run did.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Summary {
    /// Lines of the file.
    pub lines: usize,
    /// Results that were there before.
    pub found: usize,
    /// Failures among them.
    pub found_failed: usize,
    /// Lines of this run.
    pub succeeded: usize,
    /// Lines of this run, and those that were there before.
    pub failed: usize,
    /// Tokens of this run's answers.
    pub usage: Usage,
    #[allow(missing_docs)]
    pub seconds: f64,
}

impl Server {
    /// The server at a URL without a path. Answers may take any time.
    pub fn new(origin: &str, key: Option<String>) -> Result<Self, Error> {
        omnibus_hub::install_crypto_provider();
        let http = reqwest::Client::builder().no_proxy().connect_timeout(Duration::from_secs(5));
        let http = http.pool_max_idle_per_host(usize::MAX).build().map_err(Error::failed)?;
        Ok(Self { http, origin: origin.to_owned(), key })
    }

    /// The answer to a line. One that the server has no room for is sent again. Fails where no server is left.
    async fn answer(&self, line: &Line) -> Result<Answer, Error> {
        let mut broken = 0;
        loop {
            let request = self.http.post(format!("{}{}", self.origin, line.url)).json(&line.body);
            let request = match &self.key {
                Some(key) => request.bearer_auth(key),
                None => request,
            };
            let response = match request.send().await {
                Ok(response) => response,
                Err(error) if error.is_connect() => {
                    let message = format!(
                        "no server answers at {}: {error}; run this again to go on from the results",
                        self.origin
                    );
                    return Err(Error::failed(message));
                }
                Err(error) => {
                    broken += 1;
                    if broken == ATTEMPTS {
                        return Ok(Answer::None(Unanswered::Failed(error.to_string())));
                    }
                    continue;
                }
            };
            let status = response.status().as_u16();
            let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
            if matches!(status, 429 | 503) {
                let pause = header("retry-after").and_then(|seconds| seconds.parse().ok()).unwrap_or(1);
                tokio::time::sleep(Duration::from_secs(pause).min(PAUSE_MAX)).await;
                continue;
            }
            let request_id = header("x-request-id").unwrap_or_default().to_owned();
            match response.bytes().await {
                Ok(bytes) => {
                    let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
                    let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
                    return Ok(Answer::Response { status, request_id, body });
                }
                Err(error) => {
                    broken += 1;
                    if broken == ATTEMPTS {
                        return Ok(Answer::None(Unanswered::Failed(error.to_string())));
                    }
                }
            }
        }
    }
}

/// Sends all lines without results, `width` at a time.
pub async fn run(
    server: &Server,
    input: &Input,
    journal: &mut Journal,
    width: usize,
    progress: &mut Progress,
) -> Result<Summary, Error> {
    let since = Instant::now();
    let mut summary = Summary::of(input, journal);
    let mut lines = input.lines().map_err(Error::failed)?;
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < width {
            let next = lines.next_line(|id| journal.has(id)).transpose().map_err(Error::failed)?;
            let Some(line) = next else { break };
            running.push(async move { (server.answer(&line).await, line.custom_id) });
        }
        let Some((answer, custom_id)) = running.next().await else { break };
        let answer = answer?;
        summary.count(&answer);
        journal.push(&custom_id, &answer).map_err(unwritten)?;
        progress.set(journal.len() as u64, summary.lines as u64);
    }
    journal.sync().map_err(unwritten)?;
    summary.seconds = since.elapsed().as_secs_f64();
    Ok(summary)
}

fn unwritten(error: std::io::Error) -> Error {
    Error::failed(format!(
        "results cannot be written: {error}; run this again to go on from those that are there"
    ))
}

impl Summary {
    /// Before anything is sent.
    fn of(input: &Input, journal: &Journal) -> Self {
        let (found, found_failed) = (journal.len(), journal.len() - journal.counts().succeeded);
        Self { lines: input.len(), found, found_failed, failed: found_failed, ..Self::default() }
    }

    fn count(&mut self, answer: &Answer) {
        match answer.outcome() {
            Outcome::Succeeded => self.succeeded += 1,
            Outcome::Failed | Outcome::Cancelled | Outcome::Expired => self.failed += 1,
        }
        self.usage += answer.usage();
    }
}
