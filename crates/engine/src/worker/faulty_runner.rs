//! A runner that fails as a [`FaultPlan`] says, around the real one. For tests.
//!
//! Invariant: it changes nothing but what the plan names; the loop, the runner and the sampler know nothing of faults.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::Duration;

use mlx::Array;
use omnibus_core::{SequenceId, Token};
use omnibus_model::SpanRuns;

use super::kv_store::KvStore;
use super::media_encoding::MediaEncoding;
use super::model_runner::ModelRunner;
use super::runner::{ForwardOutput, Runner, StepOutput, StepResult};
use super::step_input::StepInput;
use crate::LaunchStats;
use crate::fault::{FaultContext, FaultPlan, FaultTarget, Kind, RowFault, injected_panic};
use crate::media::JobMedia;
use crate::sampler::SamplingChanges;

/// A runner that fails as planned.
pub(super) struct FaultyRunner {
    inner: ModelRunner,
    plan: FaultPlan,
    /// Steps launched.
    launches: u64,
    sequences: BTreeMap<SequenceId, Tokens>,
    /// Faults of the steps in flight, oldest first.
    in_flight: VecDeque<StepFaults>,
    /// Panic at the next call outside of a step.
    panic_next: bool,
}

struct Tokens {
    prompt: Vec<u32>,
    answered: usize,
}

#[derive(Default)]
struct StepFaults {
    step: Option<Kind>,
    /// Sampled rows.
    rows: Vec<Option<RowFault>>,
}

impl FaultyRunner {
    pub(super) fn new(inner: ModelRunner, plan: FaultPlan) -> Self {
        let (sequences, in_flight) = Default::default();
        Self { inner, plan, launches: 0, sequences, in_flight, panic_next: false }
    }

    fn apply(&mut self, changes: &SamplingChanges) {
        for sequence in &changes.removed {
            self.sequences.remove(sequence);
        }
        for new in &changes.added {
            let prompt = new.tokens.iter().take(new.prompt).copied().collect();
            let answered = new.tokens.len().saturating_sub(new.prompt);
            self.sequences.insert(new.sequence, Tokens { prompt, answered });
        }
        for (sequence, tokens) in &changes.appended {
            if let Some(known) = self.sequences.get_mut(sequence) {
                known.answered += tokens.len();
            }
        }
    }

    fn target(&self, sequence: SequenceId) -> Option<FaultTarget<'_>> {
        let known = self.sequences.get(&sequence)?;
        Some(FaultTarget { prompt: &known.prompt, answered: known.answered })
    }

    fn faults_of(&self, input: &StepInput) -> StepFaults {
        let context = FaultContext {
            step: self.launches,
            tokens: input.tokens.len(),
            blocks: self.inner.least_blocks(),
        };
        let row = |sequence| self.target(sequence).and_then(|target| self.plan.of_row(context, target));
        let targets = input.segments.iter().filter_map(|segment| self.target(segment.sequence));
        StepFaults {
            step: self.plan.of_step(context, targets),
            rows: input.samples.iter().map(|sample| row(sample.sequence)).collect(),
        }
    }

    /// Makes rows not a number.
    fn poison(&self, forward: &mut ForwardOutput) -> mlx::Result<()> {
        let Some(faults) = self.in_flight.back() else { return Ok(()) };
        let Some(logits) = &forward.logits else { return Ok(()) };
        let [rows, _] = logits.dims()?;
        let mut added = vec![0.0f32; rows as usize];
        for (sample, fault) in forward.samples.iter().zip(&faults.rows) {
            if let (Some(RowFault::NotANumber), Some(value)) = (fault, added.get_mut(sample.logits)) {
                *value = f32::NAN;
            }
        }
        if added.iter().any(|value| value.is_nan()) {
            forward.logits = Some(logits + Array::from_slice(&added, &[rows, 1])?);
        }
        Ok(())
    }
}

impl Runner for FaultyRunner {
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
        if std::mem::take(&mut self.panic_next) {
            injected_panic();
        }
        self.inner.depth()
    }

    fn forward(&mut self, input: &StepInput, before: Option<&StepOutput>) -> mlx::Result<ForwardOutput> {
        self.apply(&input.changes);
        let faults = self.faults_of(input);
        self.launches += 1;
        match faults.step {
            Some(Kind::Launch) => return Err(mlx::Error::new("an injected launch failure")),
            Some(Kind::Memory) => return Err(mlx::Error::new("an injected failure: out of memory")),
            Some(Kind::LaunchPanic) => injected_panic(),
            Some(Kind::Loop) => self.panic_next = true,
            Some(Kind::Abort) => std::process::abort(),
            Some(Kind::Hang) => loop {
                std::thread::park();
            },
            Some(
                Kind::Draw
                | Kind::Read
                | Kind::NotANumber
                | Kind::Sampler
                | Kind::DiskFull
                | Kind::DiskReader,
            )
            | None => {}
        }
        self.in_flight.push_back(faults);
        self.inner.forward(input, before)
    }

    fn dispatch(&mut self, forward: &ForwardOutput) -> mlx::Result<()> {
        self.inner.dispatch(forward)
    }

    fn sample(&mut self, mut forward: ForwardOutput, changes: &SamplingChanges) -> mlx::Result<StepOutput> {
        self.apply(changes);
        if self.in_flight.back().is_some_and(|faults| faults.step == Some(Kind::Draw)) {
            return Err(mlx::Error::new("an injected sampling failure"));
        }
        self.poison(&mut forward)?;
        self.inner.sample(forward, changes)
    }

    fn read(&mut self, output: &StepOutput) -> mlx::Result<StepResult> {
        let faults = self.in_flight.pop_front().unwrap_or_default();
        if faults.step == Some(Kind::Read) {
            return Err(mlx::Error::new("an injected evaluation failure"));
        }
        let mut result = self.inner.read(output)?;
        for (sampled, fault) in result.sampled.iter_mut().zip(&faults.rows) {
            if *fault == Some(RowFault::Sampler) {
                *sampled = None;
            }
        }
        Ok(result)
    }

    fn reset(&mut self) -> mlx::Result<()> {
        self.sequences.clear();
        self.in_flight.clear();
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
