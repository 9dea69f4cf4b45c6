//! Faults inside the engine: the faulty request fails with an event, all others give their usual output, and all
//! resources are released.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::alone;
use crate::common::{complete, engine, wait_for};
use omnibus_engine::{Event, EventStream, Failure, Handle, Input, Request, Sampling, Schedule, Settings};

/// A token in the faulty request's prompt.
const MARK: u32 = 300;

/// Requests of every kind: greedy, seeded, with penalties over the answer so far.
fn requests() -> Vec<Request> {
    let request = |i: usize| {
        let prompt = format!("{} and the bus number {i}", "a stop, ".repeat(i * 6));
        let mut request = complete(&format!("r{i}"), &prompt, 20 + i);
        match i % 3 {
            1 => {
                request.sampling = Sampling { temperature: 1.1, seed: Some(i as u64), ..Sampling::default() }
            }
            2 => request.sampling.frequency_penalty = 0.8,
            _ => {}
        }
        request
    };
    (0..6).map(request).collect()
}

fn marked() -> Request {
    let mut request = Request::new("marked", Input::Tokens(vec![5, MARK, 6]));
    request.sampling = Sampling::greedy();
    request.max_new_tokens = Some(12);
    request.stop.ignore_eos = true;
    request
}

fn settings(faults: &str) -> Settings {
    Settings { max_num_batched_tokens: Some(64), faults: faults.parse().unwrap(), ..Settings::default() }
}

fn texts(engine: &Handle) -> Vec<String> {
    let streams: Vec<EventStream> =
        requests().into_iter().map(|request| engine.submit(request).unwrap()).collect();
    streams.into_iter().map(|stream| wait_for(stream).text).collect()
}

fn failure(stream: EventStream) -> Failure {
    output_until_failure(stream).1
}

fn output_until_failure(mut stream: EventStream) -> (String, Failure) {
    let mut output_tokens = String::new();
    while let Some(event) = stream.blocking_next() {
        match event {
            Event::Failed(failure) => return (output_tokens, failure),
            Event::Finished { .. } => panic!("it does not fail"),
            Event::Delta { delta, .. } => output_tokens.push_str(delta.text()),
            Event::Started { .. }
            | Event::Prompt(_)
            | Event::Alignment(_)
            | Event::Hidden(_)
            | Event::TokenLogits(_)
            | Event::Progress { .. } => {}
        }
    }
    panic!("a stream ends with an event")
}

/// All resources are released; the statistics include the last request's end when its last event comes.
fn check_empty(engine: &Handle) {
    let stats = engine.stats();
    assert_eq!(
        (stats.scheduler.queued, stats.scheduler.running, stats.scheduler.blocks().used),
        (0, 0, 0),
        "{stats:?}"
    );
    assert!(engine.requests().is_empty());
    assert!(engine.health().alive);
}

#[test]
fn a_failed_step_changes_no_output() {
    let _alone = alone();
    let expected = texts(&engine(settings("")));
    for fault in ["launch", "launch-panic", "draw", "read", "turn"] {
        // In steps of prefill, of prefill and decode, and of decode.
        let faults: Vec<String> = [0, 5, 14, 24].iter().map(|step| format!("{fault}@step={step}")).collect();
        let engine = engine(settings(&faults.join(",")));
        assert_eq!(texts(&engine), expected, "{fault}");
        assert_eq!(engine.stats().failed_steps_total, 4, "{fault}");
        check_empty(&engine);
        let memory = engine.stats().active_memory_bytes;
        assert_eq!(texts(&engine), expected, "{fault}, afterwards");
        let later = engine.stats().active_memory_bytes;
        assert!(later <= memory + (1 << 20), "{fault}: {memory} bytes before, {later} after");
    }
}

#[test]
fn a_row_that_fails_fails_only_its_own_request() {
    let _alone = alone();
    let expected = texts(&engine(settings("")));
    let whole = wait_for(engine(settings("")).submit(marked()).unwrap()).text;
    for fault in ["nan", "sampler"] {
        // With its first token, and in the middle of its answer.
        for answered in [0, 5] {
            let engine = engine(settings(&format!("{fault}@token={MARK}/{answered}")));
            let faulty = engine.submit(marked()).unwrap();
            assert_eq!(texts(&engine), expected, "{fault} after {answered}");
            let (text, failure) = output_until_failure(faulty);
            assert!(matches!(failure, Failure::Engine { .. }), "{fault} after {answered}");
            assert!(whole.starts_with(&text) && (answered == 0) == text.is_empty(), "{text} of {whole}");
            check_empty(&engine);
            assert_eq!(engine.stats().failed_steps_total, 0, "{fault}: a row is not a step");
        }
    }
}

#[test]
fn a_request_that_fails_every_step_is_found_and_failed() {
    let _alone = alone();
    let expected = texts(&engine(settings("")));
    for fault in ["launch", "launch-panic", "draw", "read"] {
        for answered in [0, 5] {
            let engine = engine(settings(&format!("{fault}@token={MARK}/{answered}")));
            let faulty = engine.submit(marked()).unwrap();
            assert_eq!(texts(&engine), expected, "{fault} after {answered}");
            assert!(matches!(failure(faulty), Failure::Engine { .. }), "{fault} after {answered}");
            check_empty(&engine);
        }
    }
}

/// When memory runs out, every step as large fails, too: smaller ones follow, and no request fails.
#[test]
fn steps_too_large_for_the_memory_are_made_smaller() {
    let _alone = alone();
    let expected = texts(&engine(settings("")));
    for fault in ["launch", "draw", "read"] {
        // Prompts of several chunks; the second leaves no room for two prompts at once.
        for most in [48, 33] {
            let faults = settings(&format!("{fault}@over={most}"));
            // Steps are as large as allowed, independent of the machine's speed.
            let engine = engine(Settings { schedule: Schedule::Fcfs, ..faults });
            assert_eq!(texts(&engine), expected, "{fault} over {most}");
            let stats = engine.stats();
            let failed = stats.failed_steps_total;
            assert!((1..=stats.steps_total / 4).contains(&failed), "{fault} over {most}: {failed} failed");
            check_empty(&engine);
        }
    }
}

#[test]
fn a_loop_that_panics_repeatedly_ends_and_is_reported() {
    let _alone = alone();
    let engine = engine(settings(&format!("turn@token={MARK}")));
    let failed = failure(engine.submit(marked()).unwrap());
    assert!(matches!(failed, Failure::Unavailable { .. }), "{failed:?}");
    assert!(!engine.health().alive);
}

#[test]
fn a_client_that_does_not_read_delays_no_other() {
    let _alone = alone();
    let expected = texts(&engine(settings("")));
    let engine = engine(settings(""));
    let unread: Vec<EventStream> = (0..4)
        .map(|i| engine.submit(complete(&format!("unread{i}"), "A slow reader", 60)).unwrap())
        .collect();
    assert_eq!(texts(&engine), expected);
    assert!(unread.into_iter().map(|stream| wait_for(stream).text).all(|text| !text.is_empty()));
    check_empty(&engine);
}

#[test]
fn the_kv_cache_shrinks_until_steps_fit_memory() {
    let _alone = alone();
    let sized = |faults: &str| Settings { kv_cache_memory: Some(16 << 20), ..settings(faults) };
    let (expected, blocks) = {
        let engine = engine(sized(""));
        (texts(&engine), engine.stats().scheduler.blocks().total)
    };
    let most = blocks * 6 / 10;
    let engine = engine(sized(&format!("memory@blocks={most}")));
    assert_eq!(texts(&engine), expected);
    let shrunk = engine.stats().scheduler.blocks().total;
    assert!((most / 2..=most).contains(&shrunk), "{shrunk} of {blocks} blocks");
    assert_eq!(texts(&engine), expected, "later requests are served");
    check_empty(&engine);
}
