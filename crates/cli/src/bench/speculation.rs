//! Speculative decoding, measured: the same prompts with and without draft tokens, at several numbers of streams.
//!
//! One engine answers both: a request can switch its draft tokens off. No answer may help a later one, so each round has a
//! cache salt of its own.

use std::collections::BTreeMap;

mod draft_stats;
mod prediction;

use omnibus_engine::{DraftSource, Handle, Input, Request, Settings, Speculation, Usage};
use serde::Serialize;

use super::round;
use crate::completion_output;
use crate::error::Error;
use crate::settings::{Config, SpeculationBenchSettings};
use crate::{log, model, output, prompt_file};
use draft_stats::DraftStats;
use prediction::Prediction;

/// The results, as `--json` prints them.
#[derive(Debug, Serialize)]
pub struct SpeculationBench {
    /// The model.
    pub model: String,
    /// Where draft tokens come from.
    pub drafts: String,
    /// Prompts of a round.
    pub prompts: usize,
    /// One for each number of streams.
    pub cases: Vec<StreamsCase>,
    /// Answers that differ with and without draft tokens.
    pub different_answers: usize,
}

/// Prompts that are answered by so many at once.
#[derive(Debug, Serialize)]
pub struct StreamsCase {
    /// Requests at once.
    pub streams: usize,
    /// Tokens a second without draft tokens.
    pub plain_tokens_per_s: f64,
    /// And with.
    pub tokens_per_s: f64,
    /// Tokens that a decode step gives a sequence, the sampled one included.
    pub tokens_per_step: f64,
    /// What the simulator makes of `tokens_per_s / plain_tokens_per_s`, by the cost model that the engine has learned and by how many
    /// draft tokens were accepted. Absent where none was.
    pub predicted_ratio: Option<f64>,
    /// Of the draft tokens at each position, the share that was accepted where those before it were.
    pub acceptance: Vec<f64>,
}

/// What a round yields.
struct Round {
    seconds: f64,
    tokens: usize,
    texts: Vec<String>,
    usages: Vec<Usage>,
    stats: DraftStats,
}

/// Runs the benchmark, with a line on stderr after each case.
pub fn run(config: &Config) -> Result<SpeculationBench, Error> {
    log::install(&crate::settings::Log { filter: "warn".to_owned(), ..config.log.clone() });
    let bench = &config.speculation_bench;
    let prompts = prompts(bench)?;
    let (handle, drafts) = start_engine(config)?;
    let runtime = completion_output::runtime()?;
    let (mut cases, mut different_answers) = (Vec::new(), 0);
    for streams in &bench.streams {
        let mut best: BTreeMap<bool, Round> = BTreeMap::new();
        for round in 0..bench.rounds {
            let mut answers = Vec::new();
            for speculation in [Speculation::Off, Speculation::Allowed] {
                let request = |prompt: &Input| Request {
                    speculation,
                    cache_salt: Some(format!("{streams} {round} {speculation:?}")),
                    ..completion_output::request(config, prompt.clone())
                };
                let requests = prompts.iter().map(request).collect();
                let measured = runtime.block_on(measure(&handle, requests, *streams))?;
                answers.push(measured.texts.clone());
                let drafted = speculation == Speculation::Allowed;
                let is_faster = |best: &Round| measured.seconds < best.seconds;
                // The first of several rounds teaches the engine what rows cost.
                let counts = round > 0 || bench.rounds == 1;
                if counts && best.get(&drafted).is_none_or(is_faster) {
                    best.insert(drafted, measured);
                }
            }
            if let [plain, drafted] = &answers[..] {
                different_answers += plain.iter().zip(drafted).filter(|(one, other)| one != other).count();
            }
        }
        if let (Some(plain), Some(drafted)) = (best.get(&false), best.get(&true)) {
            let prediction = Prediction { config, cost: &handle.stats().cost_model, streams: *streams };
            let case = StreamsCase::of(prediction, plain, drafted);
            output::note(case.row());
            cases.push(case);
        }
    }
    Ok(SpeculationBench {
        model: config.model.clone().unwrap_or_else(|| "the embedded model".to_owned()),
        drafts,
        prompts: prompts.len(),
        cases,
        different_answers,
    })
}

/// Starts an engine with room for the most streams, which drafts by n-grams where nothing else is chosen. With it the name of what
/// drafts. Fails where there is no such model or it does not load.
pub fn start_engine(config: &Config) -> Result<(Handle, String), Error> {
    let mut settings = model::with_local_draft(config.engine.clone())?;
    settings.max_num_seqs = config.speculation_bench.streams.iter().copied().max().unwrap_or(1);
    if settings.speculation.source == DraftSource::Auto && settings.speculation.draft_model.is_none() {
        settings.speculation.source = DraftSource::Ngram;
    }
    let drafts = name_of(&settings);
    let source = model::source(config.model.as_deref(), &[])?;
    Ok((omnibus_engine::start(vec![source], settings).map_err(Error::failed)?, drafts))
}

/// Where the draft tokens of these settings come from.
fn name_of(settings: &Settings) -> String {
    match (&settings.speculation.source, &settings.speculation.draft_model) {
        (DraftSource::Off, _) => "none".to_owned(),
        (DraftSource::Mtp, _) => "its MTP head".to_owned(),
        (DraftSource::Ngram, _) | (_, None) => "n-grams".to_owned(),
        (_, Some(draft)) => draft.display().to_string(),
    }
}

/// The prompts of the file, or some whose answers repeat them.
pub fn prompts(bench: &SpeculationBenchSettings) -> Result<Vec<Input>, Error> {
    if let Some(path) = &bench.prompts {
        return prompt_file::read(path, "--prompts");
    }
    let line =
        |at: usize| format!("Line {at} leaves platform {} at {}:{:02}.", at % 7, 6 + at % 12, at * 17 % 60);
    let prompt = |number: usize| {
        let text: Vec<String> = (0..12).map(|at| line(12 * number + at)).collect();
        let text = text.join("\n");
        Input::Text(format!("The timetable:\n{text}\n\nThe timetable again:\n{}", &text[..60]))
    };
    Ok((0..12).map(prompt).collect())
}

/// Measures the requests, at most so many at once.
async fn measure(handle: &Handle, requests: Vec<Request>, streams: usize) -> Result<Round, Error> {
    let before = DraftStats::of(&handle.stats());
    let round = round::run(handle, requests, streams).await?;
    let stats = DraftStats::of(&handle.stats()).since(&before);
    let (seconds, tokens) = (round.seconds, round.tokens());
    let usages = round.answers.iter().map(|answer| answer.usage).collect();
    let texts = round.answers.into_iter().map(|answer| answer.text).collect();
    Ok(Round { seconds, tokens, texts, usages, stats })
}

impl StreamsCase {
    fn of(prediction: Prediction<'_>, plain: &Round, drafted: &Round) -> Self {
        Self {
            streams: prediction.streams,
            plain_tokens_per_s: plain.tokens as f64 / plain.seconds,
            tokens_per_s: drafted.tokens as f64 / drafted.seconds,
            tokens_per_step: drafted.stats.tokens_per_step(),
            predicted_ratio: prediction.ratio(&drafted.usages, &drafted.stats),
            acceptance: drafted.stats.acceptance(),
        }
    }

    fn row(&self) -> String {
        let acceptance: Vec<String> =
            self.acceptance.iter().map(|share| format!("{:.0}", 100.0 * share)).collect();
        format!(
            "{:>7} {:>12.1} {:>12.1} {:>7.2}x {:>10} {:>12.2}  {}",
            self.streams,
            self.plain_tokens_per_s,
            self.tokens_per_s,
            self.tokens_per_s / self.plain_tokens_per_s,
            self.predicted_ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}x")),
            self.tokens_per_step,
            acceptance.join(" "),
        )
    }
}

impl SpeculationBench {
    /// A table for the terminal.
    pub fn table(&self) -> String {
        let mut lines = vec![
            format!("{}, draft tokens: {}, {} prompts", self.model, self.drafts, self.prompts),
            format!(
                "{:>7} {:>12} {:>12} {:>8} {:>10} {:>12}  % accepted by position",
                "streams", "off, tok/s", "on, tok/s", "ratio", "simulated", "tokens/step"
            ),
        ];
        lines.extend(self.cases.iter().map(StreamsCase::row));
        lines.push(match self.different_answers {
            0 => "answers are equal with and without".to_owned(),
            count => format!("{count} answers differ"),
        });
        lines.join("\n")
    }
}
