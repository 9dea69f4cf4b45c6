//! Recorded answers, given again with and without draft tokens: what drafts are worth for known texts, whatever the weights.

use std::path::Path;
use std::time::Duration;

use omnibus_engine::{DraftOutcome, Speculation};
use omnibus_offline::bench::{AdapterLoad, BenchEngine, RecordedLoad, RecordedRun, Recording};
use serde::Serialize;

use super::engine::{bench_model, settings};
use crate::error::Error;
use crate::settings::{Config, Log};
use crate::{log, output};

/// Rounds of each number of streams. The first one warms up: it compiles kernels, and the engine learns what rows cost.
const ROUNDS: usize = 3;
/// Requests of a round over streams, at least.
const REQUESTS_PER_STREAM: usize = 2;

/// The results, as `--json` prints them.
#[derive(Debug, Serialize)]
pub struct RecordedBench {
    /// The model directory, the config or the preset.
    pub model: String,
    /// Recorded answers.
    pub recordings: usize,
    /// One for each number of streams.
    pub cases: Vec<RecordedCase>,
}

/// Answers that are given to so many at once, in the fastest of its rounds.
#[derive(Debug, Serialize)]
pub struct RecordedCase {
    /// Requests at once.
    pub streams: usize,
    /// Requests of a round.
    pub requests: usize,
    /// Without draft tokens.
    pub plain: RecordedRun,
    /// With.
    pub drafted: RecordedRun,
    /// Tokens a second with over those without.
    pub ratio: f64,
}

/// Runs the benchmark, with a line on stderr after each case.
pub fn run(config: &Config, file: &Path) -> Result<RecordedBench, Error> {
    log::install(&Log { filter: "warn".to_owned(), ..config.log.clone() });
    let bench = &config.engine_bench;
    let recordings = read(file)?;
    let settings = settings(config, Some(DraftOutcome::Recorded))?;
    let none = AdapterLoad::default();
    let mut engine = BenchEngine::start(&bench_model(config)?, settings, none).map_err(Error::failed)?;
    let timeout = Duration::from_secs_f64(bench.case_timeout_s);
    let mut cases = Vec::new();
    for streams in &bench.streams {
        let rounds = (REQUESTS_PER_STREAM * streams).div_ceil(recordings.len());
        let requests = rounds * recordings.len();
        let mut best: [Option<RecordedRun>; 2] = [None, None];
        for round in 0..ROUNDS {
            for (speculation, best) in [Speculation::Off, Speculation::Allowed].into_iter().zip(&mut best) {
                // No answer may help a later one.
                let number =
                    cases.len() * ROUNDS * 2 + round * 2 + usize::from(speculation == Speculation::Off);
                let cache_salt = (number as u128) << 64;
                let load = RecordedLoad { streams: *streams, requests, speculation, cache_salt };
                let run = engine.give(&recordings, load, timeout).map_err(Error::failed)?;
                if round > 0 && best.is_none_or(|best| run.seconds < best.seconds) {
                    *best = Some(run);
                }
            }
        }
        if let [Some(plain), Some(drafted)] = best {
            let ratio = drafted.tokens_per_s() / plain.tokens_per_s().max(f64::MIN_POSITIVE);
            let case = RecordedCase { streams: *streams, requests, plain, drafted, ratio };
            output::note(case.row());
            cases.push(case);
        }
    }
    let model = bench.random_weights.clone().or_else(|| config.model.clone());
    let model = model.unwrap_or_else(|| "the embedded model".to_owned());
    Ok(RecordedBench { model, recordings: recordings.len(), cases })
}

/// Reads the answers. Fails with the number of the line that is none.
fn read(file: &Path) -> Result<Vec<Recording>, Error> {
    let invalid = |why: String| Error::usage(format!("--recorded: {}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| invalid(error.to_string()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let recording = |(at, line): (usize, &str)| match serde_json::from_str::<Recording>(line) {
        Ok(of) if of.prompt.is_empty() || of.answer.is_empty() => {
            Err(invalid(format!("line {}: `prompt` and `answer` need at least one token", at + 1)))
        }
        Ok(of) => Ok(of),
        Err(error) => Err(invalid(format!("line {}: {error}", at + 1))),
    };
    let recordings = lines.map(recording).collect::<Result<Vec<_>, _>>()?;
    if recordings.is_empty() {
        return Err(invalid("the file is empty".to_owned()));
    }
    Ok(recordings)
}

impl RecordedCase {
    fn row(&self) -> String {
        format!(
            "{:>7} {:>12.1} {:>12.1} {:>7.2}x {:>12.2}",
            self.streams,
            self.plain.tokens_per_s(),
            self.drafted.tokens_per_s(),
            self.ratio,
            self.drafted.tokens_per_step,
        )
    }
}

impl RecordedBench {
    /// A table for the terminal.
    pub fn table(&self) -> String {
        let mut lines = vec![
            format!("{}, {} recorded answers", self.model, self.recordings),
            format!(
                "{:>7} {:>12} {:>12} {:>8} {:>12}",
                "streams", "off, tok/s", "on, tok/s", "ratio", "tokens/step"
            ),
        ];
        lines.extend(self.cases.iter().map(RecordedCase::row));
        lines.join("\n")
    }
}
