//! What is recorded of steps, and when.

use std::hint::black_box;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use super::*;
use crate::message::Report;
use crate::step_record::StepRecord;

/// A loop, its reports, and the sender of its commands, without which it ends.
fn engine() -> (EngineLoop, Receiver<Report>, Sender<Command>) {
    let ((commands, inbox), (reports, received)) = (channel(), channel());
    let send = move |report| reports.send(report).map_err(|_| crate::error::Disconnected);
    let engine = EngineLoop::new(load(&embedded(), settings()), inbox, Box::new(send));
    (engine, received, commands)
}

/// Runs the jobs to their end.
fn finish(engine: &mut EngineLoop) {
    jobs().into_iter().for_each(|job| engine.submit(job));
    while !engine.jobs.is_empty() {
        assert!(engine.iterate().is_continue());
    }
}

fn records(received: &Receiver<Report>) -> Vec<StepRecord> {
    let stats = received.try_iter().filter_map(|report| report.stats);
    stats.flat_map(|stats| stats.watched).collect()
}

#[test]
fn the_recorded_steps_have_all_tokens_of_their_jobs() {
    let (mut engine, received, _commands) = engine();
    jobs().into_iter().for_each(|job| engine.submit(job));
    while !engine.jobs.is_empty() {
        // As a client asks again: on a busy machine the jobs take longer than one request is good for.
        engine.watch_steps();
        assert!(engine.iterate().is_continue());
    }
    let (stats, records) = (engine.scheduler.stats(), records(&received));
    let sum = |of: fn(&StepRecord) -> usize| records.iter().map(of).sum::<usize>() as u64;
    assert!(sum(|step| step.prefill) > 0 && sum(|step| step.decodes) > 0, "{records:?}");
    assert_eq!(sum(|step| step.prefill + step.decodes + step.drafts), stats.computed_tokens_total);
    assert!(records.iter().all(|step| step.budget == 24 && step.seconds > 0.0), "{records:?}");
    assert!(records.iter().all(|step| step.prefill + step.decodes + step.drafts <= step.budget));
}

#[test]
fn nothing_is_recorded_that_was_not_requested() {
    let (mut engine, received, _commands) = engine();
    finish(&mut engine);
    let reports: Vec<Report> = received.try_iter().collect();
    let watched = reports.iter().filter_map(|report| report.stats.as_ref()).map(|stats| stats.watched.len());
    assert_eq!(watched.sum::<usize>(), 0);
    let is_blocks = |report: &JobReport| matches!(report.update, JobUpdate::Blocks(_));
    assert!(!reports.iter().any(|report| report.jobs.iter().any(is_blocks)));
}

#[test]
fn jobs_that_hold_blocks_report_them() {
    let (mut engine, received, _commands) = engine();
    jobs().into_iter().for_each(|job| engine.submit(job));
    while engine.scheduler.stats().running == 0 {
        assert!(engine.iterate().is_continue());
    }
    engine.watch_steps();
    assert!(engine.publish().is_continue());
    let updates = received.try_iter().flat_map(|report| report.jobs).map(|report| report.update);
    let held = updates.filter_map(|update| match update {
        JobUpdate::Blocks(held) => Some(held.blocks),
        _ => None,
    });
    let used: usize = engine.scheduler.stats().groups.iter().map(|group| group.used).sum();
    let held: usize = held.sum();
    assert!(used > 0 && held >= used, "{held} held of {used}: shared ones count for each");
}

/// Jobs of the measurement.
const STREAMS: u64 = 64;
/// Steps of the measurement.
const STEPS: u32 = 100_000;

/// `cargo test -p omnibus-engine --lib what_a_watch_costs -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn what_a_watch_costs() {
    let ((_commands, inbox), (reports, _received)) = (channel::<Command>(), channel());
    let send = move |report| reports.send(report).map_err(|_| crate::error::Disconnected);
    let settings = Settings { kv_cache_memory: Some(512 << 20), ..Settings::default() };
    let mut engine = EngineLoop::new(load(&embedded(), settings), inbox, Box::new(send));
    for id in 0..STREAMS {
        let request = core::Request::new((40..60).collect(), 1000);
        engine.submit(Job { request, prompt: 20, ..job(id, Sampling::greedy()) });
    }
    while engine.scheduler.stats().running < STREAMS as usize {
        assert!(engine.iterate().is_continue());
    }
    let plan = engine.scheduler.plan(0);
    let each = |begun: Instant| begun.elapsed().as_nanos() / u128::from(STEPS);
    let begun = Instant::now();
    (0..STEPS).for_each(|_| assert!(black_box(engine.recorded(&plan)).is_none()));
    println!("no client: {} ns a step", each(begun));
    engine.watch_steps();
    let begun = Instant::now();
    for step in 0..STEPS {
        let record = engine.recorded(&plan);
        record.into_iter().for_each(|record| engine.add_record(record, 1.0));
        // Statistics are reported after several steps.
        if step % 8 == 0 {
            black_box(engine.recorder.take());
        }
    }
    println!("a client: {} ns a step of {} sequences", each(begun), plan.scheduled.len());
    let begun = Instant::now();
    engine.report_blocks();
    println!(
        "a client: {} us each half second for the blocks of {STREAMS} jobs",
        begun.elapsed().as_micros()
    );
}
