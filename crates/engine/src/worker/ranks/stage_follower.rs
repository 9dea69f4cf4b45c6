//! The first rank of a later stage: continues each pass, and sends it to the next stage.
//!
//! Invariant: it decides nothing. A failure ends its process, and with it all stages.

use std::io;
use std::os::unix::net::UnixStream;

use omnibus_model::{KernelChoice, Source};

use super::group::RankGroup;
use super::launch::RankLaunch;
use super::messages::{FollowerStart, FromFollower, FromLastStage, ToFollower};
use super::place::Place;
use super::ranked_device::RankedDevice;
use super::stage_groups::StageGroups;
use super::start_check::{check_start, lost, refuse};
use crate::error::StartError;
use crate::frames;
use crate::settings::Settings;
use crate::worker::capacity::{Capacity, MediaMemory};
use crate::worker::device_call::{Device, DeviceCall, DeviceReply};
use crate::worker::model_runner::ModelRunner;
use crate::worker::rows::PassRows;
use crate::worker::step_input::StepInput;
use crate::worker::{choose_device, kernels_of, load_model};

/// Bytes of logits or hidden states in one message, unless a row has more.
const PART_BYTES: u64 = 1 << 24;

/// Follows the first stage until it closes the socket. An error is one line.
pub(super) fn follow_stage(
    source: &Source,
    start: FollowerStart,
    mut socket: UnixStream,
    launch: &RankLaunch,
) -> Result<(), String> {
    let place = start.place;
    let lost = |error: io::Error| lost(place, &error);
    let loaded = match LoadedStage::load(source, start, launch) {
        Ok(loaded) => loaded,
        Err(error) => return refuse(&mut socket, &error),
    };
    let fits = loaded.groups.capacity(&loaded.capacity);
    frames::write(&mut socket, &[FromFollower::LoadedStage(fits)]).map_err(lost)?;
    let mut stage = match frames::read(&mut socket).map_err(lost)? {
        Some(ToFollower::Allocate { blocks, .. }) => loaded.allocate(&blocks, socket)?,
        Some(_) => return Err("something came before the blocks".to_owned()),
        None => return Ok(()),
    };
    while let Some(message) = frames::read(&mut stage.socket).map_err(lost)? {
        let ToFollower::Call(call) = message else { return Err("blocks came twice".to_owned()) };
        stage.call(*call).map_err(|error| format!("rank {}: {error}", place.number()))?;
    }
    Ok(())
}

/// A stage with its part of the model.
struct LoadedStage {
    place: Place,
    model: omnibus_model::Model,
    group: Option<RankGroup>,
    groups: StageGroups,
    capacity: Capacity,
    settings: Settings,
}

impl LoadedStage {
    fn load(source: &Source, start: FollowerStart, launch: &RankLaunch) -> Result<Self, StartError> {
        let (place, source) = (start.place, check_start(source, &start)?);
        let settings = start.settings;
        choose_device(settings.device)?;
        let group = RankGroup::start(&source, &settings, (Some(launch), None), place)?;
        let part = place.part(group.as_ref().map(RankGroup::shard))?;
        let model = load_model(&source, kernels_of(&settings), &settings, (part, None))?;
        let settings = settings.on(mlx::device::default().map_err(StartError::new)?);
        let capacity = Capacity::of(&model, None, MediaMemory::default(), &settings)?;
        let groups = StageGroups::of(&model, capacity.storage)?;
        Ok(Self { place, model, group, groups, capacity, settings })
    }

    /// `blocks`: of each group of the network.
    fn allocate(self, blocks: &[usize], socket: UnixStream) -> Result<Stage, String> {
        let Self { place, model, group, groups, capacity, settings } = self;
        let blocks = groups.blocks(blocks)?;
        if let Some(group) = &group {
            group.allocate(&blocks, &KernelChoice::default()).map_err(|error| error.to_string())?;
        }
        let runner =
            ModelRunner::new(model, blocks, &capacity, &settings).map_err(|error| error.to_string())?;
        let device: Box<dyn Device> = match group {
            Some(group) => Box::new(RankedDevice::new(runner, group)),
            None => Box::new(runner),
        };
        Ok(Stage { place, device, groups, socket })
    }
}

/// A stage that computes.
struct Stage {
    place: Place,
    device: Box<dyn Device>,
    groups: StageGroups,
    socket: UnixStream,
}

impl Stage {
    fn call(&mut self, call: DeviceCall) -> mlx::Result<()> {
        let io_failed = |error: io::Error| mlx::Error::new(error.to_string());
        let reply = self.device.call(self.groups.call(call.clone())?)?;
        match (call, reply) {
            (DeviceCall::Forward { step, input, .. }, DeviceReply::Pass(pass)) => {
                self.pass_on(step, *input, *pass).map_err(io_failed)
            }
            (DeviceCall::Forward { .. }, _) => Err(mlx::Error::new("a pass of a stage")),
            _ if self.place.is_last_stage() => Ok(()),
            (call, _) => {
                frames::write(&mut self.socket, &[ToFollower::Call(Box::new(call))]).map_err(io_failed)
            }
        }
    }

    /// Sends what a pass gave to the next stage, or back to the first.
    fn pass_on(&mut self, step: u64, input: StepInput, pass: PassRows) -> io::Result<()> {
        if !self.place.is_last_stage() {
            let input = Box::new(StepInput { stream: pass.stream, ..input });
            let next = DeviceCall::Forward { step, after: None, input };
            return frames::write(&mut self.socket, &[ToFollower::Call(Box::new(next))]);
        }
        let logits =
            pass.logits.into_iter().flat_map(|rows| rows.parts(PART_BYTES)).map(FromLastStage::Logits);
        let hidden =
            pass.hidden.into_iter().flat_map(|rows| rows.parts(PART_BYTES)).map(FromLastStage::Hidden);
        let messages: Vec<FromLastStage> = logits.chain(hidden).chain([FromLastStage::End(step)]).collect();
        frames::write(&mut self.socket, &messages)
    }
}
