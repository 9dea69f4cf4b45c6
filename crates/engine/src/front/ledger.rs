//! What the front remembers of every job in an engine's process, so that another process can go on with it; and who
//! is to blame when one dies.
//!
//! A token depends on its request and its position only, so a job goes on exactly where it was.
//!
//! After one death everybody goes on at once: most deaths come from outside. After another that follows soon, the jobs
//! that were being computed are suspects. They are handed to the next process one after the other, each when the one
//! before has shown that it can be computed; everybody else waits until the last one has. Only who was alone in the
//! process when it died, twice and without getting on in between, is refused. So no innocent is, and each death either
//! clears somebody or comes closer to who it was.
//!
//! Invariant: no processes, no sockets, no clock: time is an argument.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use crate::message::{Job, JobId, News, Note};
use crate::{Failure, FinishReason};

/// Deaths alone after which a job is refused.
const STRIKES_MAX: u32 = 2;
/// The most doublings of a suspect's probation.
const PROBATION_DOUBLINGS_MAX: u32 = 8;

/// Every job that is not over.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: BTreeMap<JobId, Entry>,
    /// Suspects that have not been handed out since the last death, in the order of their trials.
    suspects: VecDeque<JobId>,
    /// Who is being tried.
    tried: Option<JobId>,
    /// Deaths since the last calm.
    unrest: u32,
}

#[derive(Debug)]
struct Entry {
    job: Job,
    arrived: Instant,
    place: Place,
    /// Tokens told by the process that runs.
    told: usize,
    strikes: u32,
    /// An earlier process had taken it.
    returns: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Here.
    Held,
    /// Here, after the process had no room for it; until something has ended there.
    TurnedAway,
    /// In the process, in its queue.
    Given,
    /// In the process, and in a step at least once.
    Started,
    /// Its client has gone; the process has been told.
    Leaving,
}

/// Where a job is that shall end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cancelled {
    /// It was only here and is over.
    Here,
    /// The process must be told.
    Forward,
    /// It was over before.
    Unknown,
}

impl Ledger {
    /// Takes a new job in.
    pub(super) fn enter(&mut self, job: Job, now: Instant) {
        let entry = Entry { job, arrived: now, place: Place::Held, told: 0, strikes: 0, returns: false };
        self.entries.insert(entry.job.id, entry);
    }

    /// Ends a job.
    pub(super) fn cancel(&mut self, id: JobId) -> Cancelled {
        let Some(entry) = self.entries.get_mut(&id) else { return Cancelled::Unknown };
        match entry.place {
            Place::Held | Place::TurnedAway => {
                self.forget(id);
                Cancelled::Here
            }
            Place::Given | Place::Started => {
                entry.place = Place::Leaving;
                Cancelled::Forward
            }
            Place::Leaving => Cancelled::Unknown,
        }
    }

    /// Jobs to hand to the process now. While there are suspects, that is the next of them and nobody else.
    pub(super) fn hand_out(&mut self, now: Instant) -> Vec<Job> {
        if self.tried.is_none() {
            self.tried = self.suspects.pop_front();
            if let Some(id) = self.tried {
                return self.hand(id, now).into_iter().collect();
            }
            let held = self.entries.values().filter(|entry| entry.place == Place::Held);
            let held: Vec<JobId> = held.map(|entry| entry.job.id).collect();
            return held.into_iter().filter_map(|id| self.hand(id, now)).collect();
        }
        Vec::new()
    }

    fn hand(&mut self, id: JobId, now: Instant) -> Option<Job> {
        let entry = self.entries.get_mut(&id)?;
        entry.place = Place::Given;
        let mut job = entry.job.clone();
        let waited_s = now.saturating_duration_since(entry.arrived).as_secs_f64();
        job.timeout_s = job.timeout_s.map(|timeout_s| (timeout_s - waited_s).max(0.0));
        if !job.generated.is_empty() {
            // The scores of a prompt come before the first token.
            job.prompt_logprobs = None;
        }
        Some(job)
    }

    /// True while the process has something to do.
    pub(super) fn is_out(&self) -> bool {
        self.entries.values().any(|entry| !matches!(entry.place, Place::Held | Place::TurnedAway))
    }

    /// True while somebody has to prove that it can be computed.
    pub(super) fn is_trying(&self) -> bool {
        self.tried.is_some() || !self.suspects.is_empty()
    }

    /// Takes in what the process says; gives what the clients should hear of it.
    pub(super) fn hear(&mut self, mut notes: Vec<Note>) -> Vec<Note> {
        notes.retain(|note| self.hear_one(note));
        notes
    }

    /// False when it concerns nobody else.
    fn hear_one(&mut self, note: &Note) -> bool {
        let (id, probation) = (note.job, self.probation());
        let Some(entry) = self.entries.get_mut(&id) else { return false };
        match &note.news {
            News::Started { .. } => {
                if entry.place == Place::Given {
                    entry.place = Place::Started;
                }
            }
            News::Prompt { .. } => {}
            News::Token(scored) => {
                entry.job.generated.push(scored.token);
                entry.told += 1;
                if entry.told >= probation {
                    self.clear(id);
                }
            }
            News::Failed(Failure::Busy { .. }) if entry.returns && entry.place == Place::Given => {
                // It was taken once, and that holds.
                entry.place = Place::TurnedAway;
                if self.tried == Some(id) {
                    self.tried = None;
                }
                if !self.is_out() {
                    self.let_in();
                }
                return false;
            }
            News::Finished(_) | News::Failed(_) => {
                self.forget(id);
                self.let_in();
            }
        }
        true
    }

    /// Tokens that a suspect has to get from a process.
    fn probation(&self) -> usize {
        1 << self.unrest.saturating_sub(1).min(PROBATION_DOUBLINGS_MAX)
    }

    /// It can be computed: there, or so far.
    fn clear(&mut self, id: JobId) {
        self.tried = self.tried.filter(|tried| *tried != id);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.strikes = 0;
        }
    }

    fn forget(&mut self, id: JobId) {
        self.entries.remove(&id);
        self.suspects.retain(|suspect| *suspect != id);
        self.tried = self.tried.filter(|tried| *tried != id);
    }

    fn let_in(&mut self) {
        for entry in self.entries.values_mut().filter(|entry| entry.place == Place::TurnedAway) {
            entry.place = Place::Held;
        }
    }

    /// Takes everything back from a process that has died. Gives what the clients should hear of it: mostly nothing.
    pub(super) fn died(&mut self) -> Vec<Note> {
        self.unrest = self.unrest.saturating_add(1);
        let mut notes = Vec::new();
        let at = |place| {
            let there = self.entries.values().filter(move |entry| entry.place == place);
            there.map(|entry| entry.job.id).collect::<Vec<JobId>>()
        };
        let (started, given) = (at(Place::Started), at(Place::Given));
        for id in at(Place::Leaving) {
            self.forget(id);
            notes.push(Note { job: id, news: News::Finished(FinishReason::Cancelled) });
        }
        // Who dies before anything is started dies of what it was given.
        let blamed = if started.is_empty() { given } else { started };
        if let ([alone], true) = (blamed.as_slice(), notes.is_empty()) {
            notes.extend(self.strike(*alone));
        }
        let untried = self.tried.take().into_iter().chain(std::mem::take(&mut self.suspects));
        let suspects = untried.chain(blamed).filter(|_| self.unrest > 1);
        for id in suspects {
            if self.entries.contains_key(&id) && !self.suspects.contains(&id) {
                self.suspects.push_back(id);
            }
        }
        for entry in self.entries.values_mut() {
            entry.returns |= entry.place != Place::Held;
            (entry.place, entry.told) = (Place::Held, 0);
        }
        notes
    }

    /// Takes back what was handed to a process that never came to compute it: nobody is to blame.
    pub(super) fn take_back(&mut self) {
        if let Some(tried) = self.tried.take() {
            self.suspects.push_front(tried);
        }
        for entry in self.entries.values_mut() {
            (entry.place, entry.told) = (Place::Held, 0);
        }
    }

    /// Ends every job: there will be no process soon.
    pub(super) fn give_up(&mut self, failure: &Failure) -> Vec<Note> {
        self.tried = None;
        self.suspects.clear();
        let jobs = std::mem::take(&mut self.entries).into_keys();
        jobs.map(|job| Note { job, news: News::Failed(failure.clone()) }).collect()
    }

    fn strike(&mut self, id: JobId) -> Option<Note> {
        let entry = self.entries.get_mut(&id)?;
        entry.strikes += 1;
        if entry.strikes < STRIKES_MAX {
            return None;
        }
        self.forget(id);
        let message = "this request ended the engine twice, with nothing else running".to_owned();
        Some(Note { job: id, news: News::Failed(Failure::Engine { message }) })
    }

    /// Nobody has died for a while.
    pub(super) fn calm(&mut self) {
        self.unrest = 0;
    }
}

#[cfg(test)]
mod tests;
