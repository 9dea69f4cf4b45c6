//! A device that fails as a [`FaultPlan`] says, around the real one. For tests.
//!
//! Invariant: it changes nothing but what the plan names; the loop, the device and the sampler know nothing of faults.

use std::collections::{BTreeMap, VecDeque};

use omnibus_core::SequenceId;

use super::device_call::{Device, DeviceCall, DeviceReply};
use super::step_input::StepInput;
use crate::fault::{FaultContext, FaultPlan, FaultTarget, Kind, RowFault, injected_panic};
use crate::logits_processor::SequenceTokens;
use crate::sampler::{NewSequence, SamplingChanges};

/// The logits processor of rows that are made not a number.
pub(super) const NOT_A_NUMBER: &str = "fault: not a number";

/// Makes logits not a number.
pub(super) fn not_a_number(_: SequenceTokens<'_>, logits: &mut [f32]) {
    logits.fill(f32::NAN);
}

/// A device that fails as planned.
pub(super) struct FaultyDevice<D> {
    inner: D,
    plan: FaultPlan,
    /// Blocks of the smallest layer group.
    blocks: usize,
    /// Steps launched.
    launches: u64,
    sequences: BTreeMap<SequenceId, NewSequence>,
    /// Faults of the steps in flight, oldest first.
    in_flight: VecDeque<StepFaults>,
    /// Panic at the next call outside of a step.
    panic_next: bool,
}

#[derive(Default)]
struct StepFaults {
    step: Option<Kind>,
    /// Sampled rows, with their sequences.
    rows: Vec<(SequenceId, Option<RowFault>)>,
}

impl<D: Device> FaultyDevice<D> {
    pub(super) fn new(inner: D, plan: FaultPlan, blocks: usize) -> Self {
        let (sequences, in_flight) = Default::default();
        Self { inner, plan, blocks, launches: 0, sequences, in_flight, panic_next: false }
    }

    fn apply(&mut self, changes: &SamplingChanges) {
        for sequence in &changes.removed {
            self.sequences.remove(sequence);
        }
        self.sequences.extend(changes.added.iter().map(|new| (new.sequence, new.clone())));
        for (sequence, tokens) in &changes.appended {
            if let Some(known) = self.sequences.get_mut(sequence) {
                known.tokens.extend_from_slice(tokens);
            }
        }
    }

    fn target(&self, sequence: SequenceId) -> Option<FaultTarget<'_>> {
        let known = self.sequences.get(&sequence)?;
        let (prompt, answer) = known.tokens.split_at(known.prompt.min(known.tokens.len()));
        Some(FaultTarget { prompt, answered: answer.len() })
    }

    fn faults_of(&self, input: &StepInput) -> StepFaults {
        let context = FaultContext { step: self.launches, tokens: input.tokens.len(), blocks: self.blocks };
        let row = |sequence| self.target(sequence).and_then(|target| self.plan.of_row(context, target));
        let targets = input.segments.iter().filter_map(|segment| self.target(segment.sequence));
        StepFaults {
            step: self.plan.of_step(context, targets),
            rows: input.samples.iter().map(|sample| (sample.sequence, row(sample.sequence))).collect(),
        }
    }

    fn begin(&mut self, input: &StepInput) -> mlx::Result<()> {
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
                | Kind::DiskReader
                | Kind::LoadStop,
            )
            | None => {}
        }
        self.in_flight.push_back(faults);
        Ok(())
    }

    /// Makes rows not a number: their sequences are replaced by ones with a processor that does it.
    fn poison(&self, changes: &mut SamplingChanges) -> mlx::Result<()> {
        let Some(faults) = self.in_flight.back() else { return Ok(()) };
        if faults.step == Some(Kind::Draw) {
            return Err(mlx::Error::new("an injected sampling failure"));
        }
        for (sequence, fault) in &faults.rows {
            if let (Some(RowFault::NotANumber), Some(known)) = (fault, self.sequences.get(sequence)) {
                let mut poisoned = known.clone();
                poisoned.sampling.processors.push(NOT_A_NUMBER.to_owned());
                changes.removed.push(*sequence);
                changes.appended.retain(|(of, _)| of != sequence);
                changes.added.push(poisoned);
            }
        }
        Ok(())
    }

    /// Reads a step, and fails its rows.
    fn read(&mut self, call: DeviceCall) -> mlx::Result<DeviceReply> {
        let faults = self.in_flight.pop_front().unwrap_or_default();
        if faults.step == Some(Kind::Read) {
            return Err(mlx::Error::new("an injected evaluation failure"));
        }
        let mut reply = self.inner.call(call)?;
        if let DeviceReply::Step(result) = &mut reply {
            for (sampled, (_, fault)) in result.sampled.iter_mut().zip(&faults.rows) {
                if *fault == Some(RowFault::Sampler) {
                    *sampled = None;
                }
            }
        }
        Ok(reply)
    }
}

impl<D: Device> Device for FaultyDevice<D> {
    fn call(&mut self, mut call: DeviceCall) -> mlx::Result<DeviceReply> {
        match &mut call {
            DeviceCall::Forward { input, .. } => self.begin(input)?,
            DeviceCall::Sample { changes, .. } => {
                self.apply(changes);
                self.poison(changes)?;
            }
            DeviceCall::Read { .. } => return self.read(call),
            DeviceCall::Reset => {
                self.sequences.clear();
                self.in_flight.clear();
            }
            DeviceCall::Stats if std::mem::take(&mut self.panic_next) => injected_panic(),
            DeviceCall::SetBlocks(blocks) => self.blocks = blocks.iter().copied().min().unwrap_or(0),
            DeviceCall::Dispatch { .. }
            | DeviceCall::Complete { .. }
            | DeviceCall::Draft { .. }
            | DeviceCall::Kv(_)
            | DeviceCall::Media(_)
            | DeviceCall::LoadAdapter(_)
            | DeviceCall::UnloadAdapter(_)
            | DeviceCall::Stats => {}
        }
        self.inner.call(call)
    }
}
