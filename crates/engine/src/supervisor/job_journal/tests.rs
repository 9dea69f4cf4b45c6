//! Processes that run and crash, played against the journal.

use std::collections::BTreeMap;

use omnibus_core::Request;

use super::*;
use crate::message::TokenLogprobs;
use crate::request::Sampling;
use crate::speculation::Speculation;
use crate::supervisor::journaled_job::Place;

fn job(id: u64) -> Job {
    Job {
        id: JobId(id),
        request: Request { session: Some(4), ..Request::new(vec![1, 2], 9) },
        prompt: 2,
        sampling: Sampling::greedy(),
        stop_tokens: Vec::new(),
        min_tokens: 0,
        xtc_kept: Vec::new(),
        dry_breakers: Vec::new(),
        logprobs: None,
        logprob_token_ids: Vec::new(),
        prompt_logprobs: Some(0),
        logprob_start: 0,
        alignment: None,
        hidden: None,
        token_logits: Vec::new(),
        unattended: 0,
        grammar: None,
        speculation: Speculation::Allowed,
        progress: crate::request::ProgressReports::Off,
        prediction: Vec::new(),
        media: Vec::new(),
        timeout_s: Some(10.0),
    }
}

fn journaled(id: u64, now: Instant) -> JournaledJob {
    JournaledJob::new(job(id), now, Place::new(&Default::default()))
}

fn started(id: u64) -> JobReport {
    JobReport {
        job: JobId(id),
        update: JobUpdate::Started { cached_tokens: 0, history_changed_at: None, media: Default::default() },
    }
}

fn token(id: u64, token: u32) -> JobReport {
    JobReport {
        job: JobId(id),
        update: JobUpdate::Token(TokenLogprobs { token, logprob: None, top: Vec::new() }),
    }
}

fn busy(id: u64) -> JobReport {
    JobReport { job: JobId(id), update: JobUpdate::Failed(Failure::Busy { retry_after_s: 1 }) }
}

fn finished(id: u64) -> JobReport {
    JobReport { job: JobId(id), update: JobUpdate::Finished(FinishReason::Length) }
}

fn journal(jobs: std::ops::Range<u64>) -> JobJournal {
    let mut journal = JobJournal::default();
    jobs.for_each(|id| journal.insert(journaled(id, Instant::now())));
    journal
}

fn ids(jobs: &[Job]) -> Vec<u64> {
    jobs.iter().map(|job| job.id.0).collect()
}

fn dispatch(journal: &mut JobJournal) -> Vec<u64> {
    ids(&journal.dispatch(Instant::now()))
}

/// Runs processes in which every dispatched job starts and gets tokens in turn, until no job is left or the faulty one
/// crashes the process, with its `fatal`th token there. Returns the failed jobs and the number of crashes.
fn play(jobs: u64, faulty: u64, fatal: usize) -> (Vec<u64>, usize) {
    let mut journal = journal(0..jobs);
    let (mut failed, mut crashes) = (Vec::new(), 0);
    'processes: loop {
        let (mut running, mut tokens) = (Vec::<u64>::new(), BTreeMap::<u64, usize>::new());
        loop {
            let dispatched = dispatch(&mut journal);
            journal.record(dispatched.iter().copied().map(started).collect());
            running.extend(dispatched);
            if running.is_empty() {
                return (failed, crashes);
            }
            for id in running.clone() {
                let tokens = tokens.entry(id).or_default();
                *tokens += 1;
                if id == faulty && *tokens == fatal {
                    crashes += 1;
                    assert!(crashes < 100, "it is found");
                    for report in journal.crashed() {
                        assert!(
                            matches!(report.update, JobUpdate::Failed(Failure::Engine { .. })),
                            "{report:?}"
                        );
                        failed.push(report.job.0);
                    }
                    continue 'processes;
                }
                let entry = journal.jobs.get(&JobId(id));
                let all = entry.map_or(0, |entry| entry.job.request.prompt.len() - 1);
                journal.record(vec![token(id, 1)]);
                if all == 200 {
                    journal.record(vec![finished(id)]);
                    running.retain(|other| *other != id);
                }
            }
        }
    }
}

#[test]
fn a_job_that_crashes_twice_alone_is_refused() {
    assert_eq!(play(1, 0, 1), (vec![0], 2));
}

#[test]
fn a_faulty_job_among_others_is_found_and_no_other_is_refused() {
    for jobs in [2, 5, 16] {
        for faulty in [0, jobs / 2, jobs - 1] {
            for fatal in [1, 2, 3, 7] {
                let (failed, crashes) = play(jobs, faulty, fatal);
                assert_eq!(failed, [faulty], "{jobs} jobs, {faulty} crashes at {fatal}");
                assert!(crashes <= 12, "{jobs} jobs, {faulty} crashes at {fatal}: {crashes} crashes");
            }
        }
    }
}

#[test]
fn a_job_that_makes_progress_between_two_crashes_is_not_refused() {
    let mut journal = journal(0..1);
    for process in 0..9 {
        assert_eq!(dispatch(&mut journal), [0], "process {process}");
        journal.record(vec![started(0)]);
        (0..300).for_each(|_| drop(journal.record(vec![token(0, 1)])));
        assert_eq!(journal.crashed(), []);
    }
}

#[test]
fn a_job_resumes_after_its_reported_tokens_with_its_remaining_time() {
    let (mut journal, now) = (JobJournal::default(), Instant::now());
    journal.insert(journaled(0, now));
    assert_eq!(journal.dispatch(now), [job(0)]);
    journal.record(vec![started(0), token(0, 7), token(0, 8)]);
    journal.crashed();
    let later = now + std::time::Duration::from_secs(4);
    let request = Request { session: Some(4), ..Request::new(vec![1, 2, 7, 8], 7) };
    let again = Job { request, timeout_s: Some(6.0), prompt_logprobs: None, ..job(0) };
    assert_eq!(journal.dispatch(later), [again]);
}

#[test]
fn queued_jobs_wait_until_the_suspects_are_cleared() {
    let mut journal = journal(0..4);
    assert_eq!(dispatch(&mut journal), [0, 1, 2, 3]);
    journal.record(vec![started(1), started(2)]);
    assert_eq!(journal.crashed(), []);
    assert_eq!(dispatch(&mut journal), [0, 1, 2, 3], "once may be an accident");
    journal.record(vec![started(1), started(2)]);
    assert_eq!(journal.crashed(), []);
    journal.insert(journaled(4, Instant::now()));
    assert_eq!(dispatch(&mut journal), [1]);
    assert_eq!(dispatch(&mut journal), [0u64; 0], "one at a time");
    journal.record(vec![started(1), token(1, 5)]);
    assert_eq!(dispatch(&mut journal), [0u64; 0], "two tokens after two crashes");
    journal.record(vec![token(1, 5)]);
    assert_eq!(dispatch(&mut journal), [2]);
    journal.record(vec![finished(2)]);
    assert_eq!(dispatch(&mut journal), [0, 3, 4]);
}

#[test]
fn an_accepted_job_is_not_refused_by_a_full_queue_later() {
    let mut journal = journal(0..2);
    dispatch(&mut journal);
    assert_eq!(journal.record(vec![busy(1)]), [busy(1)], "a new one may be");
    journal.record(vec![started(0)]);
    journal.insert(journaled(2, Instant::now()));
    dispatch(&mut journal);
    journal.crashed();
    assert_eq!(dispatch(&mut journal), [0, 2]);
    journal.record(vec![started(0), token(0, 1)]);
    assert_eq!(journal.record(vec![busy(2)]), []);
    assert_eq!(dispatch(&mut journal), [0u64; 0]);
    journal.record(vec![finished(0)]);
    assert_eq!(dispatch(&mut journal), [2]);
}

#[test]
fn a_cancelled_job_ends_in_any_state() {
    let mut journal = journal(0..3);
    assert_eq!(journal.cancel(JobId(0)), Cancelled::Here);
    assert_eq!(journal.cancel(JobId(0)), Cancelled::Unknown);
    assert_eq!(dispatch(&mut journal), [1, 2]);
    assert_eq!(journal.cancel(JobId(1)), Cancelled::Forward);
    assert_eq!(journal.cancel(JobId(2)), Cancelled::Forward);
    assert_eq!(journal.record(vec![finished(2)]), [finished(2)]);
    assert!(journal.has_dispatched());
    let reports = journal.crashed();
    assert_eq!(reports, [JobReport { job: JobId(1), update: JobUpdate::Finished(FinishReason::Cancelled) }]);
    assert!(!journal.has_dispatched() && !journal.has_suspects());
}

#[test]
fn a_process_that_never_computed_makes_no_suspects() {
    let mut journal = journal(0..1);
    for _ in 0..9 {
        assert_eq!(dispatch(&mut journal), [0]);
        journal.take_back();
    }
}

#[test]
fn all_jobs_fail_when_the_model_cannot_be_loaded() {
    let mut journal = journal(0..3);
    dispatch(&mut journal);
    for _ in 0..2 {
        journal.record(vec![started(1), token(1, 7)]);
        journal.crashed();
        dispatch(&mut journal);
    }
    assert!(journal.has_suspects());
    journal.take_back();
    let failure = Failure::Unavailable { message: "gone".to_owned(), retry_after_s: Some(3) };
    let reports = journal.fail_all(&failure);
    assert_eq!(reports.iter().map(|report| report.job.0).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(reports.iter().all(|report| report.update == JobUpdate::Failed(failure.clone())));
    assert!(!journal.has_suspects() && dispatch(&mut journal).is_empty());
    journal.insert(journaled(9, Instant::now()));
    assert_eq!(dispatch(&mut journal), [9]);
}

#[test]
fn jobs_of_a_crashed_process_move_once_and_suspects_stay() {
    let mut journal = journal(0..3);
    dispatch(&mut journal);
    journal.record(vec![started(0), token(0, 7)]);
    assert!(journal.take_movable().is_empty(), "they run");
    assert_eq!(journal.crashed(), []);
    let moved = journal.take_movable();
    assert!(moved.iter().all(|entry| entry.moved) && !journal.has_dispatched());
    assert_eq!(moved[0].job.request.prompt, [1, 2, 7], "it resumes after its tokens");
    // The process that gets them crashes twice: at first all resume there, then the one in its step is tried alone.
    for entry in moved {
        journal.insert(entry);
    }
    journal.reset_crashes();
    assert_eq!(dispatch(&mut journal), [0, 1, 2]);
    journal.record(vec![started(0), started(1)]);
    journal.crashed();
    assert!(journal.take_movable().is_empty(), "none moves twice");
    journal.insert(journaled(3, Instant::now()));
    assert_eq!(dispatch(&mut journal), [0, 1, 2, 3]);
    journal.record(vec![started(0), started(3)]);
    journal.crashed();
    assert!(journal.take_movable().is_empty(), "a suspect stays");
}
