//! The load: closed loop with a limit on concurrency, or open loop with a request rate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use omnibus_engine::random::Rng;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::client::{Client, RequestTiming};
use super::prompts::prompts;
use crate::error::Error;
use crate::settings::BenchSettings;

/// The results of a benchmark run.
#[derive(Debug)]
pub struct RunResult {
    /// The model's name.
    pub model: String,
    /// Time from the first request to the end of the last response.
    pub wall: Duration,
    /// One entry per request.
    pub timings: Vec<Result<RequestTiming, String>>,
}

/// Sends the warm-up requests, then measures.
pub async fn measure(settings: &BenchSettings, model: Option<&str>) -> Result<RunResult, Error> {
    let client = Client::new(settings, model).await?;
    let mut prompts = prompts(settings);
    for prompt in prompts.drain(..settings.num_warmups) {
        client
            .send_request(&prompt)
            .await
            .map_err(|why| Error::failed(format!("the warm-up request failed: {why}")))?;
    }
    let since = Instant::now();
    let timings = send(settings, &client, prompts).await?;
    Ok(RunResult { model: client.model().to_owned(), wall: since.elapsed(), timings })
}

async fn send(
    settings: &BenchSettings,
    client: &Client,
    prompts: Vec<String>,
) -> Result<Vec<Result<RequestTiming, String>>, Error> {
    let most = match (settings.arrivals.concurrency, settings.arrivals.rate) {
        (Some(most), _) => most,
        (None, Some(_)) => Semaphore::MAX_PERMITS,
        (None, None) => 1,
    };
    let permits = Arc::new(Semaphore::new(most));
    let mut random = Rng::new(settings.seed ^ u64::MAX);
    let mut next = tokio::time::Instant::now();
    let mut running = JoinSet::new();
    for (at, prompt) in prompts.into_iter().enumerate() {
        if let Some(rate) = settings.arrivals.rate
            && at.is_multiple_of(settings.arrivals.burst.max(1))
        {
            tokio::time::sleep_until(next).await;
            next += Duration::from_secs_f64(random.exponential(rate));
        }
        let permit = Arc::clone(&permits).acquire_owned().await.map_err(Error::failed)?;
        let client = client.clone();
        running.spawn(async move {
            let timing = client.send_request(&prompt).await;
            drop(permit);
            timing
        });
    }
    Ok(running.join_all().await)
}
