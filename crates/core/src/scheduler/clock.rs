//! When steps begin and end on the device, estimated from the times that the scheduler is given.
//!
//! Invariant: reads no clock. A given time may jump; arrivals keep their order all the same.

use std::collections::VecDeque;

use super::InFlightStep;
use crate::Tick;

/// When steps begin and end on the device.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Clock {
    /// The latest arrival so far.
    arrived: Tick,
    /// When the last step that was committed had ended.
    ended: Tick,
}

/// When a step was launched, and how long it was expected to take.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepTimes {
    launched: Tick,
    expected: Tick,
}

impl Clock {
    /// The time of an arrival: never before earlier arrivals, whatever time is given.
    pub(super) fn arrive(&mut self, now: Tick) -> Tick {
        self.arrived = self.arrived.max(now);
        self.arrived
    }

    /// When a step that is launched now will begin.
    pub(super) fn begins(&self, now: Tick, steps: &VecDeque<InFlightStep>) -> Tick {
        let ended = self.ended.min(now);
        let end = |ended: Tick, times: StepTimes| ended.max(times.launched).saturating_add(times.expected);
        steps.iter().fold(ended, |ended, flight| end(ended, flight.times)).max(now)
    }

    /// A step is launched.
    pub(super) fn launch(&mut self, now: Tick, expected_us: f64) -> StepTimes {
        // A committed step has ended, even if the given time has jumped back since.
        self.ended = self.ended.min(now);
        StepTimes { launched: now, expected: expected_us as Tick }
    }

    /// The oldest step has ended. When that was, as far as is known; the next one begins then.
    pub(super) fn land(&mut self, times: StepTimes, took: Option<Tick>) -> Tick {
        self.ended = self.ended.max(times.launched).saturating_add(took.unwrap_or(times.expected));
        self.ended
    }
}
