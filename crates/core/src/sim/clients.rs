//! Simulated clients: they send requests and check every event.

use std::collections::BTreeMap;

use super::script::Script;
use super::{Quantiles, Report};
use crate::event::{Event, Failure, FinishReason};
use crate::outcome::Stop;
use crate::request::{Class, Goal, SequenceId, Tick};
use crate::settings::LatencyTargets;

/// All clients with an accepted request.
#[derive(Debug, Default)]
pub(super) struct Clients {
    by_sequence: BTreeMap<SequenceId, Client>,
    /// Clients without a terminal event so far.
    live: std::collections::BTreeSet<SequenceId>,
    /// The latest arrival.
    latest: Tick,
}

/// A sequence's place in line, where the order is by class, time and priority.
pub(super) type Place = (Class, i64, SequenceId);

/// One client.
#[derive(Debug)]
struct Client {
    script: usize,
    /// When it sent the request, by the scheduler's clock.
    submitted: Tick,
    place: Place,
    /// The position of the next token.
    position: usize,
    token_times: Vec<Tick>,
    end: Option<(Tick, Event)>,
}

/// Faults that were injected into a sequence, to check its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Excuses {
    /// Its row failed.
    pub(super) row: bool,
    /// Its steps failed while it was alone, twice in a row.
    pub(super) steps: bool,
}

impl Clients {
    /// A request was accepted.
    pub(super) fn join(&mut self, id: SequenceId, submitted: Tick, (index, script): (usize, &Script)) {
        let (position, priority) = (script.arrival.prompt, script.arrival.priority);
        self.latest = self.latest.max(submitted);
        let came = i64::try_from(self.latest).unwrap_or(i64::MAX);
        // Ten seconds for each step of priority.
        let place = (script.arrival.class, came.saturating_sub(i64::from(priority) * 10_000_000), id);
        let client = Client { script: index, submitted, place, position, token_times: Vec::new(), end: None };
        assert!(self.by_sequence.insert(id, client).is_none(), "{id:?} was given twice");
        self.live.insert(id);
    }

    /// The index of the sequence's script.
    pub(super) fn script(&self, id: SequenceId) -> usize {
        self.by_sequence[&id].script
    }

    /// True if it has no terminal event so far.
    pub(super) fn is_live(&self, id: SequenceId) -> bool {
        self.live.contains(&id)
    }

    /// Its place in line.
    pub(super) fn place(&self, id: SequenceId) -> Place {
        self.by_sequence[&id].place
    }

    /// Its deadline, by the scheduler's clock.
    pub(super) fn deadline(&self, id: SequenceId, scripts: &[Script]) -> Option<Tick> {
        let client = &self.by_sequence[&id];
        scripts[client.script].deadline(client.submitted)
    }

    /// Clients without a terminal event so far, oldest first.
    pub(super) fn live(&self) -> impl Iterator<Item = SequenceId> {
        self.live.iter().copied()
    }

    /// Checks an event: tokens in order, each once; then one terminal event with the right reason; then none.
    /// `given`: the time that the scheduler was given.
    pub(super) fn check(
        &mut self,
        event: Event,
        (now, given): (Tick, Tick),
        scripts: &[Script],
        excuses: Excuses,
    ) {
        let id = event.sequence();
        let Some(client) = self.by_sequence.get_mut(&id) else { panic!("{id:?} was never accepted") };
        assert!(client.end.is_none(), "{id:?} has an event after its end");
        let script = &scripts[client.script];
        if let Event::Token { token, .. } = event {
            let expected = script.tokens[client.position];
            assert_eq!(token, expected, "{id:?} skipped or repeated a token");
            client.position += 1;
            client.token_times.push(now);
            return;
        }
        client.end = Some((now, event));
        self.live.remove(&id);
        client.check_end(event, given, script, excuses);
    }

    /// Fills in the report.
    pub(super) fn report(&self, scripts: &[Script], targets: &LatencyTargets, report: &mut Report) {
        let (mut ttft, mut tpot, mut itl, mut e2e) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for client in self.by_sequence.values() {
            report.tokens += client.token_times.len() as u64;
            let arrival = &scripts[client.script].arrival;
            if arrival.class == Class::Offline {
                client.report_offline(report);
                continue;
            }
            let at = arrival.at;
            ttft.extend(client.token_times.first().map(|first| first - at));
            itl.extend(client.token_times.windows(2).map(|pair| pair[1] - pair[0]));
            tpot.extend(client.mean_gap());
            let Some((end, event)) = client.end else { panic!("a client has no terminal event") };
            match event {
                Event::Finished { reason: FinishReason::Stop | FinishReason::Length, .. } => {
                    e2e.push(end - at);
                    report.good += usize::from(client.is_in_time(at, targets));
                }
                Event::Finished { reason: FinishReason::Computed, .. } => report.computed += 1,
                _ => report.broken_off += 1,
            }
        }
        report.taken = self.by_sequence.len();
        report.completed = e2e.len() + report.offline_completed;
        report.ttft_max = ttft.iter().copied().max().unwrap_or(0);
        report.itl_late = targets.tpot.map_or(0, |tpot| itl.iter().filter(|gap| **gap > tpot).count());
        report.itl_max = itl.iter().copied().max().unwrap_or(0);
        [report.ttft, report.tpot, report.itl, report.e2e] = [ttft, tpot, itl, e2e].map(Quantiles::of);
    }
}

impl Client {
    /// Counts how an offline one ended.
    fn report_offline(&self, report: &mut Report) {
        match self.end {
            Some((end, Event::Finished { reason: FinishReason::Stop | FinishReason::Length, .. })) => {
                report.offline_completed += 1;
                report.offline_end = report.offline_end.max(end);
            }
            Some((_, Event::Finished { reason: FinishReason::Computed, .. })) => report.computed += 1,
            _ => report.broken_off += 1,
        }
    }

    fn mean_gap(&self) -> Option<Tick> {
        let (first, last) = (self.token_times.first()?, self.token_times.last()?);
        (last - first).checked_div(self.token_times.len() as Tick - 1)
    }

    fn is_in_time(&self, submitted: Tick, targets: &LatencyTargets) -> bool {
        let first = self
            .token_times
            .first()
            .is_some_and(|first| first - submitted <= targets.ttft.unwrap_or(2_000_000));
        first && self.mean_gap().unwrap_or(0) <= targets.tpot.unwrap_or(100_000)
    }

    /// Panics if the terminal event is wrong.
    fn check_end(&self, event: Event, given: Tick, script: &Script, excuses: Excuses) {
        let arrival = &script.arrival;
        match event {
            Event::Token { .. } => {}
            Event::Finished { reason: FinishReason::Stop, .. } => {
                assert_eq!(script.stop(self.position - 1), Stop::Yes, "stopped too late or too early");
            }
            Event::Finished { reason: FinishReason::Length, .. } => {
                assert_eq!(self.position, script.tokens.len(), "cut off too early");
                assert_ne!(script.goal(), Goal::Compute, "it has no limit of tokens");
            }
            Event::Finished { reason: FinishReason::Computed, .. } => {
                assert_eq!(script.goal(), Goal::Compute, "ends without what it was for");
                assert_eq!(self.position, script.tokens.len(), "something was sampled");
            }
            Event::Finished { reason: FinishReason::Deadline, .. } => {
                let deadline = script.deadline(self.submitted);
                assert!(deadline.is_some_and(|deadline| deadline <= given), "expired too early");
            }
            Event::Finished { reason: FinishReason::Cancelled, .. }
            | Event::Failed { failure: Failure::Engine, .. } => {
                panic!("only `cancel` and `fail` return these")
            }
            Event::Failed { failure: Failure::Sampling, .. } => {
                assert!(excuses.row, "failed for another sequence's row");
            }
            Event::Failed { failure: Failure::Step, .. } => {
                assert!(arrival.is_poison || excuses.steps, "failed for another sequence's step");
            }
        }
    }

    /// Ends by the client's or the engine's request.
    fn leave(&mut self, event: Event, now: Tick) {
        assert!(self.end.is_none(), "ended twice");
        self.end = Some((now, event));
    }
}

impl Clients {
    /// Takes the result of `cancel` or `fail`: an event for a live sequence, none for others.
    pub(super) fn leave(&mut self, id: SequenceId, event: Option<Event>, now: Tick) {
        assert_eq!(event.is_some(), self.live.remove(&id), "{id:?} ends once");
        if let (Some(client), Some(event)) = (self.by_sequence.get_mut(&id), event) {
            assert_eq!(event.sequence(), id, "another sequence was ended");
            client.leave(event, now);
        }
    }
}
