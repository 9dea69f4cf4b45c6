//! The device of a pipeline's first stage: begins each step here, has the later stages continue it, and samples what comes back.
//!
//! Invariant: as with ranks, a failure inside a call ends all stages, which may have computed different things.

use super::launch::end_group;
use super::ranked_device::computed;
use super::stage_chain::{LaterStages, StageChain};
use super::stage_groups::StageGroups;
use crate::worker::device_call::{Device, DeviceCall, DeviceReply, KvCall};
use crate::worker::step_input::StepInput;

/// A device with later stages.
pub(in crate::worker) struct StagedDevice<D> {
    inner: D,
    chain: StageChain,
    groups: StageGroups,
}

/// Ends the group when it is dropped by a panic.
struct EndsGroup;

impl Drop for EndsGroup {
    fn drop(&mut self) {
        end_group("the first stage panicked inside a step");
    }
}

impl<D: Device> StagedDevice<D> {
    pub(in crate::worker) fn new(inner: D, LaterStages { chain, groups }: LaterStages) -> Self {
        Self { inner, chain, groups }
    }

    fn call_all(&mut self, call: DeviceCall) -> mlx::Result<DeviceReply> {
        let io_failed = |error: std::io::Error| mlx::Error::new(format!("the stages: {error}"));
        match call {
            DeviceCall::Forward { step, after, input } => {
                let later = StepInput { hidden: input.hidden.clone(), ..computed(&input) };
                let own = self.groups.call(DeviceCall::Forward { step, after, input })?;
                let DeviceReply::Pass(pass) = self.inner.call(own)? else {
                    return Err(mlx::Error::new("a pass of the first stage"));
                };
                let input = Box::new(StepInput { stream: pass.stream, ..later });
                self.chain.send(DeviceCall::Forward { step, after: None, input }).map_err(io_failed)?;
                Ok(DeviceReply::Done)
            }
            // The later stages begin without being called.
            DeviceCall::Dispatch { .. } => Ok(DeviceReply::Done),
            DeviceCall::Sample { step, changes } => {
                let pass = Box::new(self.chain.pass(step).map_err(io_failed)?);
                self.inner.call(DeviceCall::Complete { step, pass })?;
                self.inner.call(DeviceCall::Sample { step, changes })
            }
            DeviceCall::Reset | DeviceCall::SetBlocks(_) => {
                self.chain.drop_passes().map_err(io_failed)?;
                self.chain.send(call.clone()).map_err(io_failed)?;
                self.inner.call(self.groups.call(call)?)
            }
            other => self.inner.call(other),
        }
    }
}

impl<D: Device> Device for StagedDevice<D> {
    fn call(&mut self, call: DeviceCall) -> mlx::Result<DeviceReply> {
        match &call {
            DeviceCall::LoadAdapter(_) => {
                return Ok(DeviceReply::AdapterLoaded(Err(
                    "adapters cannot be loaded with --pipeline-parallel-size above 1".to_owned(),
                )));
            }
            DeviceCall::Kv(kv) if *kv != KvCall::Finish => {
                return Err(mlx::Error::new("blocks of one stage alone"));
            }
            _ => {}
        }
        let on_panic = EndsGroup;
        let reply = self.call_all(call);
        std::mem::forget(on_panic);
        if let Err(error) = &reply {
            end_group(&error.to_string());
        }
        reply
    }
}
