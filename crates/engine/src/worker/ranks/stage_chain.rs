//! The first stage's side of a pipeline: starts the others, agrees with them on blocks, and sends them calls.
//!
//! Calls pass down the stages one after the other, so that each gets them in the loop's order. A stage writes what the next one gets
//! to its socket to this process, where a thread copies it to the next one's. What the last stage writes comes back here.
//!
//! Invariant: each socket has one writer here, and no thread waits for one that waits for it: what comes back is always read.

use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use omnibus_model::{KernelChoice, Model, Source};

use super::launch::{GroupStart, RankLaunch, end_group};
use super::load_wait::LoadWait;
use super::messages::{FromFollower, FromLastStage, ToFollower};
use super::place::Place;
use super::stage_groups::{StageGroups, least_of};
use crate::cluster::Cluster;
use crate::error::StartError;
use crate::frames;
use crate::settings::Settings;
use crate::worker::capacity::Capacity;
use crate::worker::device_call::DeviceCall;
use crate::worker::rows::PassRows;

/// The stages behind the first one, which load.
pub(in crate::worker) struct LoadingStages {
    sockets: Vec<UnixStream>,
    place: Place,
    load: LoadWait,
    watchdog: Duration,
    watched: Arc<AtomicBool>,
}

/// The stages behind the first one, and the layer groups that the first one has.
pub(in crate::worker) struct LaterStages {
    pub(super) chain: StageChain,
    pub(super) groups: StageGroups,
}

/// The stages behind the first one.
pub(in crate::worker) struct StageChain {
    /// To the second stage.
    next: UnixStream,
    sockets: Vec<UnixStream>,
    /// From the last one.
    passes: Receiver<FromLastStage>,
    /// Steps whose passes have not come back, oldest first.
    sent: VecDeque<u64>,
    watchdog: Duration,
    /// Whether the end of a stage ends this process.
    watched: Arc<AtomicBool>,
}

impl LoadingStages {
    /// Starts the stages behind the first one, which begin to load; `None` without any.
    pub(in crate::worker) fn start(
        source: &Source,
        settings: &Settings,
        (launch, cluster): (Option<&RankLaunch>, Option<&Cluster>),
        place: Place,
    ) -> Result<Option<Self>, StartError> {
        if place.is_last_stage() {
            return Ok(None);
        }
        let launch = launch.ok_or_else(|| {
            StartError::new(format!(
                "--pipeline-parallel-size {} needs engine processes; leave out --in-process",
                settings.pipeline_parallel_size
            ))
        })?;
        let fingerprint = source.fingerprint().map_err(StartError::new)?;
        let watched = Arc::new(AtomicBool::new(false));
        let start = GroupStart { launch, cluster, fingerprint, settings, watched: &watched };
        let sockets = place.later_stages().map(|place| start.follower(place)).collect::<Result<_, _>>()?;
        let (watchdog, load) = (launch.watchdog(), LoadWait::start(launch.watchdog()));
        Ok(Some(Self { sockets, place, load, watchdog, watched }))
    }

    /// Waits until all stages have loaded, and agrees with them on the blocks that all have. `capacity`: of the first stage, which
    /// becomes the network's.
    fn agree(
        mut self,
        model: &Model,
        capacity: &mut Capacity,
    ) -> Result<(StageChain, StageGroups), StartError> {
        let groups = StageGroups::of(model, capacity.storage)?;
        let mut stages = vec![groups.capacity(capacity)];
        for (place, socket) in self.place.later_stages().zip(&mut self.sockets) {
            stages.push(match self.load.reply(place, socket)? {
                FromFollower::LoadedStage(fits) => fits,
                FromFollower::Loaded | FromFollower::Memory(_) | FromFollower::Refused(_) => {
                    return Err(StartError::new(format!("rank {} loaded no stage", place.number())));
                }
            });
        }
        (capacity.blocks, capacity.max_context) = least_of(&stages).map_err(StartError::new)?;
        // Smaller ones are for GPUs.
        capacity.smaller.clear();
        let allocate =
            [ToFollower::Allocate { blocks: capacity.blocks.clone(), kernels: KernelChoice::default() }];
        for socket in &mut self.sockets {
            frames::write(socket, &allocate).map_err(StartError::new)?;
        }
        let chain = self.connect().map_err(StartError::new)?;
        Ok((chain, groups))
    }

    /// Connects each stage to the next one, and the last one to this process.
    fn connect(self) -> io::Result<StageChain> {
        let Self { sockets, place, watchdog, watched, .. } = self;
        let missing = || io::Error::other("a second stage");
        let next = sockets.first().ok_or_else(missing)?.try_clone()?;
        let (passed, passes) = channel();
        for ((index, socket), place) in sockets.iter().enumerate().zip(place.later_stages()) {
            let from = socket.try_clone()?;
            // A stage without work is silent.
            from.set_read_timeout(None)?;
            let to = sockets.get(index + 1).map(UnixStream::try_clone).transpose()?;
            let to = to.map_or_else(|| Next::First(passed.clone()), Next::Stage);
            let (number, watched) = (place.number(), Arc::clone(&watched));
            let relay = move || {
                let ended =
                    relay(from, to).map_or_else(|error| error.to_string(), |()| "it has ended".to_owned());
                if watched.load(Ordering::Relaxed) {
                    end_group(&format!("rank {number}: {ended}"));
                }
            };
            std::thread::Builder::new().name(format!("omnibus-stage-{number}")).spawn(relay)?;
        }
        watched.store(true, Ordering::Relaxed);
        Ok(StageChain { next, sockets, passes, sent: VecDeque::new(), watchdog, watched })
    }
}

/// Agrees with the later stages, if there are any, on the blocks of the network, which `capacity` gets. Returns those of this process's
/// own layer groups as well.
pub(in crate::worker) fn agree(
    stages: Option<LoadingStages>,
    model: &Model,
    capacity: &mut Capacity,
) -> Result<(Option<LaterStages>, Vec<usize>), StartError> {
    let Some(stages) = stages else { return Ok((None, capacity.blocks.clone())) };
    let (chain, groups) = stages.agree(model, capacity)?;
    let own = groups.blocks(&capacity.blocks).map_err(StartError::new)?;
    Ok((Some(LaterStages { chain, groups }), own))
}

/// Where a stage's messages go.
enum Next {
    Stage(UnixStream),
    First(Sender<FromLastStage>),
}

/// Passes messages on until the stage has ended.
fn relay(mut from: UnixStream, to: Next) -> io::Result<()> {
    match to {
        Next::Stage(mut next) => while frames::relay(&mut from, &mut next)? {},
        Next::First(passed) => {
            while let Some(message) = frames::read(&mut from)? {
                if passed.send(message).is_err() {
                    break;
                }
            }
        }
    }
    Ok(())
}

impl StageChain {
    /// Sends a call to all later stages.
    pub(super) fn send(&mut self, call: DeviceCall) -> io::Result<()> {
        if let DeviceCall::Forward { step, .. } = &call {
            self.sent.push_back(*step);
        }
        frames::write(&mut self.next, &[ToFollower::Call(Box::new(call))])
    }

    /// Waits for what the last stage gives of a step, the oldest one.
    pub(super) fn pass(&mut self, step: u64) -> io::Result<PassRows> {
        let mut pass = PassRows::default();
        loop {
            let message = self.passes.recv_timeout(self.watchdog);
            match message.map_err(|_| io::Error::other("the later stages do not answer"))? {
                FromLastStage::Logits(rows) => pass.logits.push(rows),
                FromLastStage::Hidden(rows) => pass.hidden.push(rows),
                FromLastStage::End(of) => {
                    let oldest = self.sent.pop_front();
                    if (of, oldest) == (step, Some(step)) {
                        return Ok(pass);
                    }
                    return Err(io::Error::other(format!("the last stage computed step {of}, not {step}")));
                }
            }
        }
    }

    /// Drops what has not come back yet.
    pub(super) fn drop_passes(&mut self) -> io::Result<()> {
        while let Some(step) = self.sent.front().copied() {
            self.pass(step)?;
        }
        Ok(())
    }
}

impl Drop for StageChain {
    /// The stages end with their sockets.
    fn drop(&mut self) {
        self.watched.store(false, Ordering::Relaxed);
        for socket in &self.sockets {
            let _already_closed = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::step_input::StepInput;

    fn chain(watchdog: Duration) -> (StageChain, Sender<FromLastStage>, UnixStream) {
        let ((next, second), (passed, passes)) = (UnixStream::pair().unwrap(), channel());
        let (sockets, sent, watched) = (Vec::new(), VecDeque::new(), Arc::default());
        (StageChain { next, sockets, passes, sent, watchdog, watched }, passed, second)
    }

    fn forward(step: u64) -> DeviceCall {
        DeviceCall::Forward { step, after: None, input: Box::new(StepInput::default()) }
    }

    #[test]
    fn passes_come_back_in_the_order_of_the_calls() {
        let (mut chain, passed, mut second) = chain(Duration::from_secs(60));
        chain.send(forward(3)).unwrap();
        chain.send(DeviceCall::Reset).unwrap();
        chain.send(forward(4)).unwrap();
        for call in [forward(3), DeviceCall::Reset, forward(4)] {
            let found = frames::read(&mut second).unwrap();
            assert_eq!(found, Some(ToFollower::Call(Box::new(call))));
        }
        for step in [3, 4] {
            passed.send(FromLastStage::End(step)).unwrap();
        }
        assert_eq!(chain.pass(3).unwrap(), PassRows::default());
        // What has not come back is waited for before anything else.
        chain.drop_passes().unwrap();
        assert!(chain.sent.is_empty());
    }

    #[test]
    fn a_last_stage_that_is_silent_or_computes_another_step_is_an_error() {
        let (mut silent, _passed, _second) = chain(Duration::from_millis(20));
        silent.send(forward(1)).unwrap();
        assert!(silent.pass(1).unwrap_err().to_string().contains("do not answer"));
        let (mut other, passed, _second) = chain(Duration::from_secs(60));
        other.send(forward(1)).unwrap();
        passed.send(FromLastStage::End(2)).unwrap();
        assert!(other.pass(1).unwrap_err().to_string().contains("computed step 2, not 1"));
    }

    #[test]
    fn a_stages_messages_reach_the_next_one_as_they_are() {
        let ((mut stage, from), (to, mut next)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        let message = ToFollower::Call(Box::new(forward(9)));
        frames::write(&mut stage, std::slice::from_ref(&message)).unwrap();
        drop(stage);
        relay(from, Next::Stage(to)).unwrap();
        assert_eq!(frames::read(&mut next).unwrap(), Some(message));
        assert_eq!(frames::read::<ToFollower>(&mut next).unwrap(), None);
    }
}
