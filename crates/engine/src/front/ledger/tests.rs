//! Lives and deaths played against the ledger.

use super::*;
use crate::Sampling;
use crate::message::Scored;

fn job(id: u64) -> Job {
    Job {
        id: JobId(id),
        prompt: vec![1, 2],
        generated: Vec::new(),
        max_new_tokens: 9,
        sampling: Sampling::greedy(),
        stop_tokens: Vec::new(),
        logprobs: None,
        prompt_logprobs: Some(0),
        priority: 0,
        timeout_s: Some(10.0),
        cache_salt: 0,
        tenant: 0,
        session: None,
        boundaries: Vec::new(),
        history: 0..0,
    }
}

fn started(id: u64) -> Note {
    Note { job: JobId(id), news: News::Started { cached_tokens: 0, history_changed_at: None } }
}

fn token(id: u64, token: u32) -> Note {
    Note { job: JobId(id), news: News::Token(Scored { token, logprob: None, top: Vec::new() }) }
}

fn busy(id: u64) -> Note {
    Note { job: JobId(id), news: News::Failed(Failure::Busy { retry_after_s: 1 }) }
}

fn finished(id: u64) -> Note {
    Note { job: JobId(id), news: News::Finished(FinishReason::Length) }
}

fn ledger(jobs: std::ops::Range<u64>) -> Ledger {
    let mut ledger = Ledger::default();
    jobs.for_each(|id| ledger.enter(job(id), Instant::now()));
    ledger
}

fn ids(jobs: &[Job]) -> Vec<u64> {
    jobs.iter().map(|job| job.id.0).collect()
}

fn hand_out(ledger: &mut Ledger) -> Vec<u64> {
    ids(&ledger.hand_out(Instant::now()))
}

/// Plays lives in which everybody who is handed out starts and gets tokens in turn, until nobody is left or a poison
/// kills: the job of that number dies with its `fatal`th token of a life. Gives who failed, and the deaths.
fn play(jobs: u64, poison: u64, fatal: usize) -> (Vec<u64>, usize) {
    let mut ledger = ledger(0..jobs);
    let (mut failed, mut deaths) = (Vec::new(), 0);
    'lives: loop {
        let (mut out, mut told) = (Vec::<u64>::new(), BTreeMap::<u64, usize>::new());
        loop {
            let handed = hand_out(&mut ledger);
            ledger.hear(handed.iter().copied().map(started).collect());
            out.extend(handed);
            if out.is_empty() {
                return (failed, deaths);
            }
            for id in out.clone() {
                let told = told.entry(id).or_default();
                *told += 1;
                if id == poison && *told == fatal {
                    deaths += 1;
                    assert!(deaths < 100, "it is found");
                    for note in ledger.died() {
                        assert!(matches!(note.news, News::Failed(Failure::Engine { .. })), "{note:?}");
                        failed.push(note.job.0);
                    }
                    continue 'lives;
                }
                let all = ledger.entries.get(&JobId(id)).map_or(0, |entry| entry.job.generated.len() + 1);
                ledger.hear(vec![token(id, 1)]);
                if all == 200 {
                    ledger.hear(vec![finished(id)]);
                    out.retain(|other| *other != id);
                }
            }
        }
    }
}

#[test]
fn a_poison_alone_is_refused_when_it_has_killed_twice() {
    assert_eq!(play(1, 0, 1), (vec![0], 2));
}

#[test]
fn a_poison_in_company_is_found_and_nobody_else_is_refused() {
    for jobs in [2, 5, 16] {
        for poison in [0, jobs / 2, jobs - 1] {
            for fatal in [1, 2, 3, 7] {
                let (failed, deaths) = play(jobs, poison, fatal);
                assert_eq!(failed, [poison], "{jobs} jobs, {poison} kills at {fatal}");
                assert!(deaths <= 12, "{jobs} jobs, {poison} kills at {fatal}: {deaths} deaths");
            }
        }
    }
}

#[test]
fn who_gets_on_between_two_deaths_is_not_to_blame() {
    let mut ledger = ledger(0..1);
    for life in 0..9 {
        assert_eq!(hand_out(&mut ledger), [0], "life {life}");
        ledger.hear(vec![started(0)]);
        (0..300).for_each(|_| drop(ledger.hear(vec![token(0, 1)])));
        assert_eq!(ledger.died(), []);
    }
}

#[test]
fn a_job_goes_on_after_what_was_told_with_the_time_it_has_left() {
    let (mut ledger, now) = (Ledger::default(), Instant::now());
    ledger.enter(job(0), now);
    assert_eq!(ledger.hand_out(now), [job(0)]);
    ledger.hear(vec![started(0), token(0, 7), token(0, 8)]);
    ledger.died();
    let later = now + std::time::Duration::from_secs(4);
    let again = Job { generated: vec![7, 8], timeout_s: Some(6.0), prompt_logprobs: None, ..job(0) };
    assert_eq!(ledger.hand_out(later), [again]);
}

#[test]
fn those_who_only_waited_wait_until_the_suspects_are_cleared() {
    let mut ledger = ledger(0..4);
    assert_eq!(hand_out(&mut ledger), [0, 1, 2, 3]);
    ledger.hear(vec![started(1), started(2)]);
    assert_eq!(ledger.died(), []);
    assert_eq!(hand_out(&mut ledger), [0, 1, 2, 3], "once may be an accident");
    ledger.hear(vec![started(1), started(2)]);
    assert_eq!(ledger.died(), []);
    ledger.enter(job(4), Instant::now());
    assert_eq!(hand_out(&mut ledger), [1]);
    assert_eq!(hand_out(&mut ledger), [0u64; 0], "one at a time");
    ledger.hear(vec![started(1), token(1, 5)]);
    assert_eq!(hand_out(&mut ledger), [0u64; 0], "two tokens after two deaths");
    ledger.hear(vec![token(1, 5)]);
    assert_eq!(hand_out(&mut ledger), [2]);
    ledger.hear(vec![finished(2)]);
    assert_eq!(hand_out(&mut ledger), [0, 3, 4]);
}

#[test]
fn who_was_taken_once_is_not_sent_away_by_a_full_queue() {
    let mut ledger = ledger(0..2);
    hand_out(&mut ledger);
    assert_eq!(ledger.hear(vec![busy(1)]), [busy(1)], "a new one may be");
    ledger.hear(vec![started(0)]);
    ledger.enter(job(2), Instant::now());
    hand_out(&mut ledger);
    ledger.died();
    assert_eq!(hand_out(&mut ledger), [0, 2]);
    ledger.hear(vec![started(0), token(0, 1)]);
    assert_eq!(ledger.hear(vec![busy(2)]), []);
    assert_eq!(hand_out(&mut ledger), [0u64; 0]);
    ledger.hear(vec![finished(0)]);
    assert_eq!(hand_out(&mut ledger), [2]);
}

#[test]
fn a_cancelled_job_ends_wherever_it_is() {
    let mut ledger = ledger(0..3);
    assert_eq!(ledger.cancel(JobId(0)), Cancelled::Here);
    assert_eq!(ledger.cancel(JobId(0)), Cancelled::Unknown);
    assert_eq!(hand_out(&mut ledger), [1, 2]);
    assert_eq!(ledger.cancel(JobId(1)), Cancelled::Forward);
    assert_eq!(ledger.cancel(JobId(2)), Cancelled::Forward);
    assert_eq!(ledger.hear(vec![finished(2)]), [finished(2)]);
    assert!(ledger.is_out());
    let told = ledger.died();
    assert_eq!(told, [Note { job: JobId(1), news: News::Finished(FinishReason::Cancelled) }]);
    assert!(!ledger.is_out() && !ledger.is_trying());
}

#[test]
fn a_process_that_never_computed_blames_nobody() {
    let mut ledger = ledger(0..1);
    for _ in 0..9 {
        assert_eq!(hand_out(&mut ledger), [0]);
        ledger.take_back();
    }
}

#[test]
fn everybody_is_told_when_there_is_no_hope() {
    let mut ledger = ledger(0..3);
    hand_out(&mut ledger);
    for _ in 0..2 {
        ledger.hear(vec![started(1), token(1, 7)]);
        ledger.died();
        hand_out(&mut ledger);
    }
    assert!(ledger.is_trying());
    ledger.take_back();
    let failure = Failure::Unavailable { message: "gone".to_owned(), retry_after_s: Some(3) };
    let told = ledger.give_up(&failure);
    assert_eq!(told.iter().map(|note| note.job.0).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(told.iter().all(|note| note.news == News::Failed(failure.clone())));
    assert!(!ledger.is_trying() && hand_out(&mut ledger).is_empty());
    ledger.enter(job(9), Instant::now());
    assert_eq!(hand_out(&mut ledger), [9]);
}
