//! What the prefix cache of a server gives: the time to the first text of prompts whose first half is new, and of prompts whose
//! first half was sent before.
//!
//! Invariant: a round is one request at a time, so that no request waits for another.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use omnibus_engine::random::Rng;
use serde::Serialize;

use super::client::{Client, RequestTiming};
use super::prompts::prompts;
use super::summary::Percentiles;
use crate::error::Error;
use crate::settings::{BenchSettings, Dataset};

/// The results, as `--json` prints them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PrefixBench {
    /// Base URL of the API.
    pub url: String,
    /// The model's name.
    pub model: String,
    /// Words per prompt.
    pub input_len: usize,
    /// Prompts of each round.
    pub num_prompts: usize,
    /// Prompts whose first half is new.
    pub cold: PrefixRound,
    /// Prompts with the first halves of the cold ones.
    pub warm: PrefixRound,
    /// The median time to the first text of the cold round, divided by that of the warm one.
    pub ttft_ratio: f64,
}

/// A round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PrefixRound {
    /// Time from sending to the first text.
    pub ttft_ms: Percentiles,
    /// Tokens of all prompts, if the server reports usage.
    pub prompt_tokens: Option<usize>,
    /// Cached tokens among them, if it reports that.
    pub cached_tokens: Option<usize>,
    /// The share of the cached ones.
    pub cached_share: Option<f64>,
}

/// Sends the warm-up requests, then all cold prompts, then all warm ones.
pub async fn measure(settings: &BenchSettings, model: Option<&str>) -> Result<PrefixBench, Error> {
    let client = Client::new(settings, model).await?;
    // Words that no earlier run has sent: what it has left in the cache would not be cold.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let mut random = Rng::new(since);
    let warmups: Vec<String> = (0..settings.num_warmups).flat_map(|_| pair(settings, &mut random)).collect();
    let pairs: Vec<[String; 2]> = (0..settings.num_prompts).map(|_| pair(settings, &mut random)).collect();
    round(&client, warmups.iter()).await?;
    let cold = round(&client, pairs.iter().map(|[cold, _]| cold)).await?;
    let warm = round(&client, pairs.iter().map(|[_, warm]| warm)).await?;
    Ok(PrefixBench {
        url: settings.url.clone(),
        model: client.model().to_owned(),
        input_len: settings.input_len,
        num_prompts: settings.num_prompts,
        ttft_ratio: cold.ttft_ms.p50 / warm.ttft_ms.p50.max(1e-6),
        cold,
        warm,
    })
}

/// Two prompts with the same first half.
fn pair(settings: &BenchSettings, random: &mut Rng) -> [String; 2] {
    let settings = BenchSettings {
        dataset: Dataset::SharedPrefix,
        seed: random.draw(),
        num_warmups: 0,
        num_prompts: 2,
        ..settings.clone()
    };
    let mut prompts = prompts(&settings).into_iter();
    [prompts.next(), prompts.next()].map(Option::unwrap_or_default)
}

/// Sends prompts, one after the other. Fails with the first that fails: a round without it would be another.
async fn round(client: &Client, prompts: impl Iterator<Item = &String>) -> Result<PrefixRound, Error> {
    let mut timings = Vec::new();
    for prompt in prompts {
        let timing = client.send_request(prompt).await;
        timings.push(timing.map_err(|why| Error::failed(format!("a request failed: {why}")))?);
    }
    Ok(PrefixRound::of(&timings))
}

impl PrefixRound {
    fn of(timings: &[RequestTiming]) -> Self {
        let sum =
            |tokens: fn(&RequestTiming) -> Option<usize>| timings.iter().map(tokens).sum::<Option<usize>>();
        let (prompt_tokens, cached_tokens) =
            (sum(|timing| timing.prompt_tokens), sum(|timing| timing.cached_tokens));
        let share = |(cached, all): (usize, usize)| cached as f64 / all.max(1) as f64;
        Self {
            ttft_ms: Percentiles::of(timings.iter().map(|timing| timing.first)),
            prompt_tokens,
            cached_tokens,
            cached_share: cached_tokens.zip(prompt_tokens).map(share),
        }
    }
}

impl PrefixBench {
    /// A table for the terminal.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{} at {}\n{} prompts of {} words, and as many that begin with their first halves\n{:<5} {:>12} {:>8}",
            self.model, self.url, self.num_prompts, self.input_len, "", "ttft p50 ms", "cached"
        );
        for (name, round) in [("cold", &self.cold), ("warm", &self.warm)] {
            let share =
                round.cached_share.map_or("unknown".to_owned(), |share| format!("{:.1}%", 100.0 * share));
            _ = write!(text, "\n{name:<5} {:>12.2} {share:>8}", round.ttft_ms.p50);
        }
        text + &format!("\nratio {:>12.2}", self.ttft_ratio)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_pair_shares_its_first_half_with_no_other() {
        let settings = BenchSettings { input_len: 40, ..BenchSettings::default() };
        let mut random = Rng::new(1);
        let half = |prompt: &str| prompt.split(' ').take(20).map(str::to_owned).collect::<Vec<_>>();
        let [[cold, warm], [other, _]] = [pair(&settings, &mut random), pair(&settings, &mut random)];
        assert_eq!(half(&cold), half(&warm));
        assert_ne!(cold, warm);
        assert_ne!(half(&cold), half(&other));
    }

    #[test]
    fn a_share_is_known_where_the_server_reports_it() {
        let timing = |cached_tokens| RequestTiming {
            first: Duration::from_millis(2),
            prompt_tokens: Some(10),
            cached_tokens,
            ..RequestTiming::default()
        };
        let known = PrefixRound::of(&[timing(Some(4)), timing(Some(6))]);
        assert_eq!((known.ttft_ms.p50, known.cached_tokens, known.cached_share), (2.0, Some(10), Some(0.5)));
        assert_eq!(PrefixRound::of(&[timing(Some(4)), timing(None)]).cached_share, None);
    }
}
