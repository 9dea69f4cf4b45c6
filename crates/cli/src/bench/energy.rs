//! Tokens per joule: the same prompts at several numbers of streams, alone, with draft tokens, and with cached prompts.
//!
//! One engine answers all: a request can switch its draft tokens off, and a cache salt of its own keeps it from cached
//! prompts. Energy is what the steps of the requests used; idle time is apart.

use std::time::Duration;

use omnibus_engine::{EnergySource, EnergyUsage, Handle, Input, Request, Speculation};
use serde::Serialize;

use super::round::{self, Round};
use super::speculation::{prompts, start_engine};
use crate::error::Error;
use crate::settings::Config;
use crate::{completion_output, log, output};

/// The results, as `--json` prints them.
#[derive(Debug, Serialize)]
pub struct EnergyBench {
    /// The model.
    pub model: String,
    /// What counts the energy; with `estimate` joules are seconds times `--power-model`.
    pub source: EnergySource,
    /// Where draft tokens come from.
    pub drafts: String,
    /// Power while nothing was computed, in watts.
    pub idle_watts: f64,
    /// Seconds of that measurement.
    pub idle_seconds: f64,
    /// One for each number of streams and each mode.
    pub cases: Vec<EnergyCase>,
}

/// What helps the requests of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Nothing.
    Plain,
    /// Draft tokens.
    Speculation,
    /// Prompts that are in the prefix cache.
    PrefixHits,
}

/// Requests of one mode, so many at once.
#[derive(Debug, Serialize)]
pub struct EnergyCase {
    /// Requests at once.
    pub streams: usize,
    /// What helps them.
    pub mode: Mode,
    /// All requests.
    pub requests: usize,
    /// Time of all of them.
    pub seconds: f64,
    /// Tokens of their prompts.
    pub prompt_tokens: usize,
    /// Tokens of those that were cached.
    pub cached_tokens: usize,
    /// Tokens that they generated.
    pub tokens: usize,
    /// Draft tokens that were accepted.
    pub accepted_drafts: usize,
    /// Energy for tokens of prompts.
    pub prompt_joules: f64,
    /// Energy for tokens of completions.
    pub completion_joules: f64,
    /// Generated tokens for each joule, that of prompts included.
    pub tokens_per_joule: f64,
    /// Generated tokens for each joule of completions.
    pub completion_tokens_per_joule: f64,
}

const MODES: [Mode; 3] = [Mode::Plain, Mode::Speculation, Mode::PrefixHits];
/// How long the idle power is measured.
const IDLE: Duration = Duration::from_secs(2);

/// Runs the benchmark, with a line on stderr after each case.
pub fn run(config: &Config) -> Result<EnergyBench, Error> {
    log::install(&crate::settings::Log { filter: "warn".to_owned(), ..config.log.clone() });
    let prompts = prompts(&config.speculation_bench)?;
    let (handle, drafts) = start_engine(config)?;
    let runtime = completion_output::runtime()?;
    let bench = EnergyRun { config, handle: &handle, prompts: &prompts };
    runtime.block_on(bench.all(drafts))
}

/// What the cases have in common.
struct EnergyRun<'a> {
    config: &'a Config,
    handle: &'a Handle,
    prompts: &'a [Input],
}

impl EnergyRun<'_> {
    async fn all(&self, drafts: String) -> Result<EnergyBench, Error> {
        // It teaches the engine what rows cost, and compiles what this needs.
        round::run(self.handle, self.requests(self.prompts.len(), Mode::Plain, 1, "warm up"), 1).await?;
        let Some(source) = self.handle.stats().energy.source else { return Err(no_sensor()) };
        let (idle_watts, idle_seconds) = self.idle().await?;
        let mut cases = Vec::new();
        for streams in &self.config.speculation_bench.streams {
            for mode in MODES {
                let case = self.case(*streams, mode).await?;
                output::note(case.row());
                cases.push(case);
            }
        }
        let model = self.config.model.clone().unwrap_or_else(|| "the embedded model".to_owned());
        Ok(EnergyBench { model, source, drafts, idle_watts, idle_seconds, cases })
    }

    /// Power while there is no request: the idle energy is known when the next one comes.
    async fn idle(&self) -> Result<(f64, f64), Error> {
        let before = self.handle.stats().energy.idle_millijoules_total;
        let started = std::time::Instant::now();
        tokio::time::sleep(IDLE).await;
        let seconds = started.elapsed().as_secs_f64();
        round::run(self.handle, self.requests(1, Mode::Plain, 1, "idle"), 1).await?;
        let joules = self.handle.stats().energy.idle_millijoules_total.saturating_sub(before) as f64 / 1e3;
        Ok((joules / seconds, seconds))
    }

    async fn case(&self, streams: usize, mode: Mode) -> Result<EnergyCase, Error> {
        if mode == Mode::PrefixHits {
            // The prompts are computed, and so cached.
            let salt = format!("{streams} hits");
            round::run(self.handle, self.requests(self.prompts.len(), mode, streams, &salt), streams).await?;
        }
        let count = streams * self.config.speculation_bench.rounds;
        let salt = format!("{streams} {mode:?}");
        let requests = self.requests(count, mode, streams, &salt);
        EnergyCase::of(streams, mode, &round::run(self.handle, requests, streams).await?)
    }

    /// Requests with the prompts in turns.
    fn requests(&self, count: usize, mode: Mode, streams: usize, salt: &str) -> Vec<Request> {
        let request = |(at, prompt): (usize, &Input)| Request {
            speculation: match mode {
                Mode::Speculation => Speculation::Allowed,
                Mode::Plain | Mode::PrefixHits => Speculation::Off,
            },
            cache_salt: Some(match mode {
                Mode::PrefixHits => format!("{streams} hits"),
                Mode::Plain | Mode::Speculation => format!("{salt} {at}"),
            }),
            ..completion_output::request(self.config, prompt.clone())
        };
        self.prompts.iter().cycle().take(count).enumerate().map(request).collect()
    }
}

impl EnergyCase {
    fn of(streams: usize, mode: Mode, round: &Round) -> Result<Self, Error> {
        let usages = || round.answers.iter().map(|answer| answer.usage);
        let energy = usages().fold(None, |sum, usage| EnergyUsage::sum(sum, usage.energy));
        let Some(energy) = energy else { return Err(no_sensor()) };
        let prompt_joules = energy.prompt_microjoules as f64 / 1e6;
        let completion_joules = energy.completion_microjoules as f64 / 1e6;
        let tokens = round.tokens();
        let per = |joules: f64| if joules > 0.0 { tokens as f64 / joules } else { 0.0 };
        Ok(Self {
            streams,
            mode,
            requests: round.answers.len(),
            seconds: round.seconds,
            prompt_tokens: usages().map(|usage| usage.prompt_tokens).sum(),
            cached_tokens: usages().map(|usage| usage.cached_tokens).sum(),
            tokens,
            accepted_drafts: usages().map(|usage| usage.drafts.accepted).sum(),
            prompt_joules,
            completion_joules,
            tokens_per_joule: per(prompt_joules + completion_joules),
            completion_tokens_per_joule: per(completion_joules),
        })
    }

    fn row(&self) -> String {
        let mode = match self.mode {
            Mode::Plain => "plain",
            Mode::Speculation => "speculation",
            Mode::PrefixHits => "prefix hits",
        };
        let joules = self.prompt_joules + self.completion_joules;
        format!(
            "{:>7}  {mode:<11} {:>9.1} {:>9.1} {:>9.2} {:>12.3} {:>12.3} {:>9.0} {:>8}",
            self.streams,
            self.tokens as f64 / self.seconds,
            joules / self.seconds,
            joules / self.requests.max(1) as f64,
            self.tokens_per_joule,
            self.completion_tokens_per_joule,
            100.0 * self.cached_tokens as f64 / self.prompt_tokens.max(1) as f64,
            self.accepted_drafts,
        )
    }
}

impl EnergyBench {
    /// A table for the terminal.
    pub fn table(&self) -> String {
        let mut lines = vec![
            format!("{}, energy: {}, draft tokens: {}", self.model, self.source.name(), self.drafts),
            format!("idle: {:.1} W over {:.1} s", self.idle_watts, self.idle_seconds),
            format!(
                "{:>7}  {:<11} {:>9} {:>9} {:>9} {:>12} {:>12} {:>9} {:>8}",
                "streams",
                "mode",
                "tokens/s",
                "W",
                "J/request",
                "tokens/J",
                "decode tok/J",
                "% cached",
                "drafts"
            ),
        ];
        lines.extend(self.cases.iter().map(EnergyCase::row));
        lines.join("\n")
    }
}

fn no_sensor() -> Error {
    Error::failed(
        "nothing counts this machine's energy (NVML for a GPU; RAPL for a CPU, which root may read); \
         --power-model WATTS takes a stated power instead",
    )
}

#[cfg(test)]
mod tests {
    use omnibus_engine::Usage;

    use super::*;
    use crate::completion_output::Collected;

    fn round(energy: Option<EnergyUsage>) -> Round {
        let usage = Usage { prompt_tokens: 10, completion_tokens: 6, energy, ..Usage::default() };
        let answer = || Collected { text: String::new(), usage };
        Round { seconds: 2.0, answers: vec![answer(), answer()] }
    }

    #[test]
    fn tokens_per_joule_count_the_prompt_and_the_completion() {
        let energy = EnergyUsage {
            prompt_microjoules: 1_000_000,
            completion_microjoules: 2_000_000,
            source: EnergySource::Rapl,
        };
        let case = EnergyCase::of(2, Mode::Plain, &round(Some(energy))).unwrap();
        assert_eq!((case.prompt_joules, case.completion_joules), (2.0, 4.0));
        assert_eq!((case.tokens_per_joule, case.completion_tokens_per_joule), (2.0, 3.0));
    }

    #[test]
    fn without_a_sensor_the_error_says_what_to_do() {
        let error = EnergyCase::of(2, Mode::Plain, &round(None)).unwrap_err();
        assert!(error.to_string().contains("--power-model"), "{error}");
    }
}
