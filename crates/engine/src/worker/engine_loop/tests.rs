//! Loops over small models: with a proposer, and with a device whose calls are recorded.

mod built;
#[path = "../../../../model/tests/models/golden/generate.rs"]
mod generate;
mod recorded;
mod watched;

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use omnibus_model::Source;

use omnibus_core::{DraftKind, DraftPolicy, Tuning};

use super::*;
use crate::message::JobId;
use crate::request::Sampling;
use crate::settings::{AsyncScheduling, Settings};
use crate::speculation::Speculation;
use crate::worker::device_call::DraftRead;
use crate::worker::proposer::{Computed, DraftContext, DraftTokens, Promised, Proposal, Proposer};

fn embedded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/models/omnibus-mini")
}

/// A golden fixture as a model directory, which the test removes. `name`: from the folder of the model's tests.
fn fixture(name: &str) -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests").join(name);
    let folder = format!("omnibus-loop-{}-{}", std::process::id(), name.replace('/', "-"));
    let to = std::env::temp_dir().join(folder);
    std::fs::create_dir_all(&to).unwrap();
    let recipe = serde_json::from_slice(&std::fs::read(from.join("tensors.json")).unwrap()).unwrap();
    let weights = generate::weights(&recipe).unwrap();
    let named = weights.iter().map(|(name, array)| (name.as_str(), array));
    mlx::io::save_safetensors(to.join("model.safetensors"), named, []).unwrap();
    std::fs::copy(from.join("config.json"), to.join("config.json")).unwrap();
    to
}

fn settings() -> Settings {
    Settings {
        kv_cache_memory: Some(8 << 20),
        max_num_batched_tokens: Some(24),
        async_scheduling: AsyncScheduling::On,
        tuning: Tuning { drafts: DraftPolicy::All, ..Tuning::default() },
        ..Settings::default()
    }
}

fn load(model: &Path, settings: Settings) -> Loaded {
    let own = crate::worker::Own { settings, ..crate::worker::Own::default() };
    crate::worker::load(&Source::Directory(model.to_owned()), &own).unwrap()
}

fn job(id: u64, sampling: Sampling) -> Job {
    let prompt: Vec<u32> = (0..30 + 7 * id as u32).map(|at| 40 + at * at % 50).collect();
    Job {
        id: JobId(id),
        prompt: prompt.len(),
        request: core::Request::new(prompt, 30),
        sampling: Sampling { seed: Some(id), ..sampling },
        stop_tokens: Vec::new(),
        min_tokens: 0,
        xtc_kept: Vec::new(),
        dry_breakers: Vec::new(),
        logprobs: Some(2),
        logprob_token_ids: Vec::new(),
        prompt_logprobs: None,
        logprob_start: 0,
        alignment: None,
        hidden: None,
        token_logits: Vec::new(),
        unattended: 0,
        grammar: None,
        speculation: Speculation::Allowed,
        progress: crate::request::ProgressReports::Off,
        prediction: Vec::new(),
        media: Vec::new(),
        timeout_s: None,
    }
}

/// One request of each kind.
fn jobs() -> Vec<Job> {
    let penalties = Sampling {
        presence_penalty: 0.4,
        frequency_penalty: 0.3,
        repetition_penalty: 1.2,
        logit_bias: [(50, 2.0), (60, -3.0)].into(),
        ..Sampling::default()
    };
    let filters = Sampling { temperature: 1.3, top_k: 30, top_p: 0.9, min_p: 0.01, ..Sampling::default() };
    let kinds = [Sampling::greedy(), penalties.clone(), filters, Sampling::default(), penalties];
    kinds.into_iter().zip(0..).map(|(sampling, id)| job(id, sampling)).collect()
}

/// Each job's tokens and log-probabilities, in bits.
type Outputs = BTreeMap<JobId, Vec<(u32, Option<u32>)>>;

/// Runs the jobs.
fn run(loaded: Loaded, jobs: Vec<Job>, proposer: Option<Box<dyn Proposer>>) -> (Outputs, core::Stats) {
    let outputs = Arc::new(Mutex::new(Outputs::new()));
    let (_commands, inbox) = channel();
    let sink = Arc::clone(&outputs);
    let collect = move |report: crate::message::Report| {
        for JobReport { job, update } in report.jobs {
            match update {
                JobUpdate::Token(TokenLogprobs { token, logprob, .. }) => {
                    sink.lock().unwrap().entry(job).or_default().push((token, logprob.map(f32::to_bits)));
                }
                JobUpdate::Failed(failure) => panic!("{failure}"),
                _ => {}
            }
        }
        Ok(())
    };
    let mut engine = EngineLoop::new(loaded, inbox, Box::new(collect));
    engine.drafts = proposer.map(|proposer| Drafts::new(vec![proposer], 3));
    jobs.into_iter().for_each(|job| engine.submit(job));
    while !engine.jobs.is_empty() {
        assert!(engine.iterate().is_continue());
    }
    let stats = engine.scheduler.stats();
    drop(engine);
    (Arc::try_unwrap(outputs).unwrap().into_inner().unwrap(), stats)
}

/// Proposes what followed the same tokens before, with an error in every third proposal.
struct Replay {
    known: Vec<Vec<u32>>,
    proposals: usize,
}

impl Proposer for Replay {
    fn propose(&mut self, context: &DraftContext<'_>) -> Proposal {
        self.proposals += 1;
        let tokens = context.tokens;
        let known = self.known.iter().find(|known| known.starts_with(tokens));
        let rest = known.and_then(|known| known.get(tokens.len()..)).unwrap_or_default();
        let mut drafts: Vec<u32> =
            rest.iter().copied().chain(std::iter::repeat(7)).take(context.most).collect();
        if self.proposals.is_multiple_of(3)
            && let Some(last) = drafts.last_mut()
        {
            *last ^= 1;
        }
        Proposal { tokens: DraftTokens::Known(drafts), kind: DraftKind(0) }
    }

    fn remove(&mut self, _: SequenceId) {}

    fn clear(&mut self) {}
}

/// Runs all jobs without a proposer and with one that is often right and often wrong.
fn check_drafts(model: &Path) {
    let (expected, stats) = run(load(model, settings()), jobs(), None);
    assert_eq!(stats.draft_tokens_total, 0);
    let prompts = jobs().into_iter().map(|job| (job.id, job.request.prompt));
    let known = prompts.map(|(id, prompt)| {
        let answer = expected[&id].iter().map(|(token, _)| *token);
        prompt.into_iter().chain(answer).collect()
    });
    let replay = Replay { known: known.collect(), proposals: 0 };
    let (outputs, stats) = run(load(model, settings()), jobs(), Some(Box::new(replay)));
    assert!(outputs == expected, "{}: {outputs:?} {expected:?}", model.display());
    let (drafts, accepted) = (stats.draft_tokens_total, stats.accepted_draft_tokens_total);
    assert!(drafts > 30 && accepted > 20 && accepted < drafts, "{accepted} of {drafts} accepted");
}

/// Promises tokens that it cannot compute.
struct Broken {
    computes: Result<(), &'static str>,
}

impl Proposer for Broken {
    fn propose(&mut self, context: &DraftContext<'_>) -> Proposal {
        Proposal { tokens: DraftTokens::Promised(context.most), kind: DraftKind(7) }
    }

    fn compute(&mut self, _: &[Promised<'_>], _: DraftRead, _: &mut DeviceClient) -> mlx::Result<Computed> {
        self.computes.map(|()| Computed::default()).map_err(mlx::Error::new)
    }

    fn remove(&mut self, _: SequenceId) {}

    fn clear(&mut self) {}
}

#[test]
fn a_proposer_that_fails_or_breaks_its_promise_changes_no_bit_of_the_output() {
    let (expected, _) = run(load(&embedded(), settings()), jobs(), None);
    for computes in [Err("an injected failure of the draft model"), Ok(())] {
        let broken = Box::new(Broken { computes });
        let (outputs, stats) = run(load(&embedded(), settings()), jobs(), Some(broken));
        assert!(outputs == expected, "{computes:?}: {outputs:?} {expected:?}");
        let drafted = stats.drafts_total > 100;
        assert_eq!(drafted, computes.is_ok(), "{computes:?}: {stats:?}");
    }
}

#[test]
fn a_proposer_changes_no_bit_of_the_output() {
    check_drafts(&embedded());
}

#[test]
fn a_proposer_changes_no_bit_of_a_recurrent_models_output() {
    for name in ["mamba2", "qwen3_next"] {
        let model = fixture(&format!("fixtures/{name}"));
        check_drafts(&model);
        std::fs::remove_dir_all(model).unwrap();
    }
}
