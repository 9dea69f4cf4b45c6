//! The first rank's device: sends the calls that compute to the followers, and makes each itself.
//!
//! Invariant: followers get the calls in the loop's order, without what concerns the first rank alone: sampling, and reports.
//! After a failure inside a call the ranks may have computed different things, so it ends them all.

use super::group::RankGroup;
use super::launch::end_group;
use crate::sampler::SamplingChanges;
use crate::worker::device_call::{Device, DeviceCall, DeviceReply, KvCall};
use crate::worker::step_input::StepInput;

/// A device with followers.
pub(in crate::worker) struct RankedDevice<D> {
    inner: D,
    group: RankGroup,
}

/// Ends the group when it is dropped by a panic.
struct EndsGroup;

impl Drop for EndsGroup {
    fn drop(&mut self) {
        end_group("the first rank panicked inside a step");
    }
}

impl<D: Device> RankedDevice<D> {
    pub(in crate::worker) fn new(inner: D, group: RankGroup) -> Self {
        Self { inner, group }
    }

    /// Makes a call on all ranks.
    fn call_all(&mut self, shared: &DeviceCall, call: DeviceCall) -> mlx::Result<DeviceReply> {
        let on_panic = EndsGroup;
        let sent = self.group.send(shared).map_err(|error| mlx::Error::new(error.to_string()));
        let reply = sent.and_then(|()| self.inner.call(call));
        std::mem::forget(on_panic);
        if let Err(error) = &reply {
            end_group(&error.to_string());
        }
        reply
    }
}

/// What a follower does of a call; `None` where only the first rank does something.
fn shared(call: &DeviceCall) -> Option<DeviceCall> {
    match call {
        DeviceCall::Forward { step, after, input } => {
            let input = Box::new(computed(input));
            Some(DeviceCall::Forward { step: *step, after: *after, input })
        }
        DeviceCall::Sample { step, .. } => {
            Some(DeviceCall::Sample { step: *step, changes: Box::new(SamplingChanges::default()) })
        }
        DeviceCall::Dispatch { .. }
        | DeviceCall::Read { .. }
        | DeviceCall::Reset
        | DeviceCall::SetBlocks(_)
        | DeviceCall::Kv(KvCall::Finish) => Some(call.clone()),
        DeviceCall::Draft { .. }
        | DeviceCall::Kv(_)
        | DeviceCall::Complete { .. }
        | DeviceCall::Media(_)
        | DeviceCall::LoadAdapter(_)
        | DeviceCall::UnloadAdapter(_)
        | DeviceCall::Stats => None,
    }
}

/// A step without sampling and reports, but with the rows that are sampled.
pub(super) fn computed(input: &StepInput) -> StepInput {
    StepInput {
        copies: input.copies.clone(),
        tokens: input.tokens.clone(),
        segments: input.segments.clone(),
        logits_at: input.logits_at.clone(),
        samples: input.samples.clone(),
        spans: input.spans.clone(),
        unattended: input.unattended.clone(),
        positions: input.positions.clone(),
        stream: input.stream.clone(),
        ..StepInput::default()
    }
}

impl<D: Device> Device for RankedDevice<D> {
    fn call(&mut self, call: DeviceCall) -> mlx::Result<DeviceReply> {
        match (shared(&call), &call) {
            (Some(shared), _) => self.call_all(&shared, call),
            (None, DeviceCall::LoadAdapter(_)) => Ok(DeviceReply::AdapterLoaded(Err(
                "adapters cannot be loaded with --tensor-parallel-size above 1".to_owned(),
            ))),
            (None, DeviceCall::Kv(_)) => Err(mlx::Error::new("blocks of one rank alone")),
            (None, _) => self.inner.call(call),
        }
    }
}

#[cfg(test)]
mod tests {
    use omnibus_core::SequenceId;

    use super::*;
    use crate::worker::device_call::DraftRead;

    #[test]
    fn followers_get_what_computes_and_no_sampling() {
        let changes = SamplingChanges { removed: vec![SequenceId(7)], ..SamplingChanges::default() };
        let input = StepInput { changes: changes.clone(), logits_at: vec![2], ..StepInput::default() };
        let forward = DeviceCall::Forward { step: 3, after: None, input: Box::new(input) };
        let Some(DeviceCall::Forward { step: 3, input, .. }) = shared(&forward) else {
            panic!("a forward pass")
        };
        assert_eq!(*input, StepInput { logits_at: vec![2], ..StepInput::default() });
        let sample = DeviceCall::Sample { step: 3, changes: Box::new(changes) };
        let Some(DeviceCall::Sample { changes, .. }) = shared(&sample) else { panic!("a sampling") };
        assert_eq!(*changes, SamplingChanges::default());
        assert_eq!(shared(&DeviceCall::Reset), Some(DeviceCall::Reset));
        let draft = DeviceCall::Draft { segments: Vec::new(), read: DraftRead::Now };
        assert_eq!(shared(&draft), None);
    }
}
