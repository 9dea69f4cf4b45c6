//! Two runners on one stream of inputs, and a loop with a proposer.

#[path = "../../../../model/tests/models/golden/generate.rs"]
mod generate;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use omnibus_core::Token;
use omnibus_model::{Source, SpanRuns};

use super::*;
use crate::media::JobMedia;
use crate::message::JobId;
use crate::worker::kv_store::KvStore;
use crate::worker::media_encoding::MediaEncoding;
use crate::{AsyncScheduling, LaunchStats, Sampling, Settings};

/// What the loop calls, serialized, with the bits that came of it.
enum Call {
    Forward { input: Vec<u8>, logits: Vec<u32> },
    Sample { changes: Vec<u8> },
    Read { tokens: Vec<Option<u32>> },
}

/// A runner that records its calls.
struct Recorder {
    inner: Box<dyn Runner>,
    calls: Rc<RefCell<Vec<Call>>>,
}

fn bits(forward: &ForwardOutput) -> Vec<u32> {
    let logits = forward.logits.as_ref().map(|logits| logits.to_vec::<f32>().unwrap());
    logits.unwrap_or_default().into_iter().map(f32::to_bits).collect()
}

fn bytes(value: &impl serde::Serialize) -> Vec<u8> {
    postcard::to_extend(value, Vec::new()).unwrap()
}

fn tokens(result: &StepResult) -> Vec<Option<u32>> {
    result.sampled.iter().map(|row| row.as_ref().map(|row| row.token)).collect()
}

impl Runner for Recorder {
    fn kv(&self) -> &dyn KvStore {
        self.inner.kv()
    }

    fn kv_mut(&mut self) -> &mut dyn KvStore {
        self.inner.kv_mut()
    }

    fn take_dispatching(&mut self) -> Duration {
        self.inner.take_dispatching()
    }

    fn launches(&self) -> LaunchStats {
        self.inner.launches()
    }

    fn depth(&mut self) -> usize {
        self.inner.depth()
    }

    fn forward(&mut self, input: &StepInput, before: Option<&StepOutput>) -> mlx::Result<ForwardOutput> {
        let forward = self.inner.forward(input, before)?;
        let (input, logits) = (bytes(input), bits(&forward));
        self.calls.borrow_mut().push(Call::Forward { input, logits });
        Ok(forward)
    }

    fn dispatch(&mut self, forward: &ForwardOutput) -> mlx::Result<()> {
        self.inner.dispatch(forward)
    }

    fn sample(&mut self, forward: ForwardOutput, changes: &SamplingChanges) -> mlx::Result<StepOutput> {
        self.calls.borrow_mut().push(Call::Sample { changes: bytes(changes) });
        self.inner.sample(forward, changes)
    }

    fn read(&mut self, output: &StepOutput) -> mlx::Result<StepResult> {
        let result = self.inner.read(output)?;
        self.calls.borrow_mut().push(Call::Read { tokens: tokens(&result) });
        Ok(result)
    }

    fn reset(&mut self) -> mlx::Result<()> {
        self.inner.reset()
    }

    fn set_blocks(&mut self, blocks: &[usize]) {
        self.inner.set_blocks(blocks);
    }

    fn bidirectional_spans(&self, prompt: &[Token], media: &[JobMedia]) -> Vec<SpanRuns> {
        self.inner.bidirectional_spans(prompt, media)
    }

    fn has_axis_positions(&self) -> bool {
        self.inner.has_axis_positions()
    }

    fn media(&self) -> &dyn MediaEncoding {
        self.inner.media()
    }

    fn media_mut(&mut self) -> &mut dyn MediaEncoding {
        self.inner.media_mut()
    }

    fn load_adapter(&mut self, directory: &Path) -> Result<u128, String> {
        self.inner.load_adapter(directory)
    }

    fn unload_adapter(&mut self, adapter: u128) -> Result<(), String> {
        self.inner.unload_adapter(adapter)
    }

    fn has_adapter(&self, adapter: u128) -> bool {
        self.inner.has_adapter(adapter)
    }
}

fn embedded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/models/omnibus-mini")
}

/// A golden fixture as a model directory, which the test removes.
fn fixture(name: &str) -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures").join(name);
    let to = std::env::temp_dir().join(format!("omnibus-drafts-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&to).unwrap();
    let recipe = serde_json::from_slice(&std::fs::read(from.join("tensors.json")).unwrap()).unwrap();
    let weights = generate::weights(&recipe).unwrap();
    let named = weights.iter().map(|(name, array)| (name.as_str(), array));
    mlx::io::save_safetensors(to.join("model.safetensors"), named, []).unwrap();
    std::fs::copy(from.join("config.json"), to.join("config.json")).unwrap();
    to
}

fn load(model: &Path) -> Loaded {
    let settings = Settings {
        kv_cache_memory: Some(8 << 20),
        max_num_batched_tokens: Some(24),
        async_scheduling: AsyncScheduling::On,
        ..Settings::default()
    };
    crate::worker::load(
        &Source::Directory(model.to_owned()),
        &crate::worker::Own { settings, ..crate::worker::Own::default() },
    )
    .unwrap()
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
        logprobs: Some(2),
        prompt_logprobs: None,
        alignment: None,
        grammar: None,
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

/// Runs all jobs.
fn run(loaded: Loaded, proposer: Option<Box<dyn Proposer>>) -> (Outputs, core::Stats) {
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
    engine.proposer = proposer;
    jobs().into_iter().for_each(|job| engine.submit(job));
    while !engine.jobs.is_empty() {
        assert!(engine.iterate().is_continue());
    }
    let stats = engine.scheduler.stats();
    drop(engine);
    (Arc::try_unwrap(outputs).unwrap().into_inner().unwrap(), stats)
}

/// Runs all jobs and returns the calls that they made.
fn record() -> Vec<Call> {
    let calls = Rc::new(RefCell::new(Vec::new()));
    let mut loaded = load(&embedded());
    loaded.runner = Box::new(Recorder { inner: loaded.runner, calls: Rc::clone(&calls) });
    run(loaded, None);
    Rc::try_unwrap(calls).ok().unwrap().into_inner()
}

/// Proposes what followed the same tokens before, with an error in every third proposal.
struct Replay {
    known: Vec<Vec<u32>>,
    proposals: usize,
}

impl Proposer for Replay {
    fn draft_tokens(&self) -> usize {
        3
    }

    fn propose(&mut self, tokens: &[u32], count: usize) -> Vec<u32> {
        self.proposals += 1;
        let known = self.known.iter().find(|known| known.starts_with(tokens));
        let rest = known.and_then(|known| known.get(tokens.len()..)).unwrap_or_default();
        let mut drafts: Vec<u32> = rest.iter().copied().chain(std::iter::repeat(7)).take(count).collect();
        if self.proposals.is_multiple_of(3)
            && let Some(last) = drafts.last_mut()
        {
            *last ^= 1;
        }
        drafts
    }
}

/// Runs all jobs without a proposer and with one that is often right and often wrong.
fn check_drafts(model: &Path) {
    let (expected, stats) = run(load(model), None);
    assert_eq!(stats.draft_tokens_total, 0);
    let prompts = jobs().into_iter().map(|job| (job.id, job.request.prompt));
    let known = prompts.map(|(id, prompt)| {
        let answer = expected[&id].iter().map(|(token, _)| *token);
        prompt.into_iter().chain(answer).collect()
    });
    let (outputs, stats) = run(load(model), Some(Box::new(Replay { known: known.collect(), proposals: 0 })));
    assert!(outputs == expected, "{}: {outputs:?} {expected:?}", model.display());
    let (drafts, accepted) = (stats.draft_tokens_total, stats.accepted_draft_tokens_total);
    assert!(drafts > 30 && accepted > 20 && accepted < drafts, "{accepted} of {drafts} accepted");
}

#[test]
fn a_proposer_changes_no_bit_of_the_output() {
    check_drafts(&embedded());
}

#[test]
fn a_proposer_changes_no_bit_of_a_recurrent_models_output() {
    for name in ["mamba2", "qwen3_next"] {
        let model = fixture(name);
        check_drafts(&model);
        std::fs::remove_dir_all(model).unwrap();
    }
}

#[test]
fn a_second_runner_computes_the_same_bits_from_the_recorded_inputs() {
    let calls = record();
    let mut runner = load(&embedded()).runner;
    let mut in_flight: VecDeque<Computation> = VecDeque::new();
    let (mut steps, mut deferred, mut sampled) = (0, 0, 0);
    for call in calls {
        match call {
            Call::Forward { input, logits } => {
                let input: StepInput = postcard::from_bytes(&input).unwrap();
                let before = in_flight.back().and_then(|step| match step {
                    Computation::Sampled(output) => Some(output),
                    Computation::Forward(_) => None,
                });
                let forward = runner.forward(&input, before).unwrap();
                assert!(bits(&forward) == logits, "the logits of step {steps}");
                in_flight.push_back(Computation::Forward(forward));
                steps += 1;
            }
            Call::Sample { changes } => {
                let changes: SamplingChanges = postcard::from_bytes(&changes).unwrap();
                deferred += usize::from(!changes.appended.is_empty());
                let Some(Computation::Forward(forward)) = in_flight.pop_back() else {
                    panic!("the last forward pass is sampled")
                };
                in_flight.push_back(Computation::Sampled(runner.sample(forward, &changes).unwrap()));
            }
            Call::Read { tokens: expected } => {
                let Some(Computation::Sampled(output)) = in_flight.pop_front() else {
                    panic!("the oldest step is sampled")
                };
                let result = runner.read(&output).unwrap();
                assert_eq!(tokens(&result), expected, "after {steps} steps");
                sampled += expected.len();
            }
        }
    }
    assert_eq!(sampled, 5 * 30);
    assert!(steps > 30 && deferred > 20, "{steps} steps, {deferred} of them deferred");
}
