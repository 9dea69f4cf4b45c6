//! When requests are sent: as soon as there is room, or at their own pace.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::client::{Client, Trace};
use super::prompts::prompts;
use super::random::Random;
use crate::error::Error;
use crate::settings::BenchSettings;

/// What a measurement saw.
#[derive(Debug)]
pub struct Run {
    /// Which model was asked.
    pub model: String,
    /// From the first request to the last answer.
    pub wall: Duration,
    /// One for each request.
    pub traces: Vec<Result<Trace, String>>,
}

/// Warms the server up, then measures it.
pub async fn measure(settings: &BenchSettings, model: Option<&str>) -> Result<Run, Error> {
    let client = Client::new(settings, model).await?;
    let mut prompts = prompts(settings);
    for prompt in prompts.drain(..settings.num_warmups) {
        client.ask(&prompt).await.map_err(|why| Error::failed(format!("the first request failed: {why}")))?;
    }
    let since = Instant::now();
    let traces = send(settings, &client, prompts).await?;
    Ok(Run { model: client.model().to_owned(), wall: since.elapsed(), traces })
}

async fn send(
    settings: &BenchSettings,
    client: &Client,
    prompts: Vec<String>,
) -> Result<Vec<Result<Trace, String>>, Error> {
    let most = match (settings.arrivals.concurrency, settings.arrivals.rate) {
        (Some(most), _) => most,
        (None, Some(_)) => Semaphore::MAX_PERMITS,
        (None, None) => 1,
    };
    let room = Arc::new(Semaphore::new(most));
    let mut random = Random::new(settings.seed ^ u64::MAX);
    let mut next = tokio::time::Instant::now();
    let mut running = JoinSet::new();
    for prompt in prompts {
        if let Some(rate) = settings.arrivals.rate {
            tokio::time::sleep_until(next).await;
            next += Duration::from_secs_f64(random.gap_s(rate));
        }
        let place = Arc::clone(&room).acquire_owned().await.map_err(Error::failed)?;
        let client = client.clone();
        running.spawn(async move {
            let trace = client.ask(&prompt).await;
            drop(place);
            trace
        });
    }
    Ok(running.join_all().await)
}
