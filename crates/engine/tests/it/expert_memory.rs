//! Experts that stay in the model's files: equal output, counters, and files that change while they are served.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::OpenOptions;
use std::path::Path;

use crate::common::fixture::{directory, engine, request, try_engine};
use crate::common::{output_tokens, run, wait_for};
use omnibus_engine::{DeviceChoice, Event, ExpertStats, Handle, PrefixCache, Settings};

/// On a CPU, without shortcuts past the experts.
fn settings(expert_memory: Option<u64>) -> Settings {
    let prefix_cache = PrefixCache::Off;
    Settings { device: DeviceChoice::Cpu, expert_memory, prefix_cache, ..Settings::default() }
}

/// The failure that a request ends with.
fn failure(engine: &Handle, prompt: usize) -> String {
    let mut stream = engine.submit(request(0, prompt, 4)).unwrap();
    while let Some(event) = stream.blocking_next() {
        match event {
            Event::Failed(failure) => return failure.to_string(),
            Event::Finished { .. } => panic!("it finished"),
            _ => {}
        }
    }
    panic!("a stream ends with an event")
}

/// One expert's matrix; the model has two layers of three matrices for eight experts.
const MATRIX_BYTES: u64 = 8192;

/// The counters after a batch whose output is that of resident experts.
#[track_caller]
fn check(directory: &Path, limit: u64) -> ExpertStats {
    let resident = engine(directory, settings(None));
    let small = Settings { max_num_batched_tokens: Some(16), ..settings(Some(limit)) };
    let stored = engine(directory, small);
    let streams: Vec<_> = (0..4).map(|i| stored.submit(request(i, 20 + 7 * i, 12)).unwrap()).collect();
    let outputs: Vec<_> = streams.into_iter().map(|stream| output_tokens(&wait_for(stream))).collect();
    for (i, output) in outputs.into_iter().enumerate() {
        assert_eq!(output, output_tokens(&run(&resident, request(i, 20 + 7 * i, 12))), "{i}");
    }
    assert_eq!(resident.stats().experts, ExpertStats::default());
    let experts = stored.stats().experts;
    assert!(experts.resident_bytes <= limit, "{experts:?}");
    assert_eq!((experts.limit_bytes, stored.details().unwrap().memory.expert_bytes), (limit, limit));
    let read = experts.misses_total * MATRIX_BYTES
        ..=(experts.misses_total + experts.prefetches_total) * MATRIX_BYTES;
    assert!(read.contains(&experts.read_bytes_total), "{experts:?}");
    experts
}

#[test]
fn a_batch_gives_the_output_of_resident_experts() {
    let directory = directory("qwen3_moe", "expert-memory");
    // A quarter: the layers evict each other's.
    assert!(check(&directory, 12 * MATRIX_BYTES).misses_total > 48);
    let experts = check(&directory, 40 * MATRIX_BYTES);
    assert!(experts.misses_total > 0 && experts.hits_total > 0, "{experts:?}");
}

#[test]
fn a_file_that_is_cut_fails_requests_and_not_the_server() {
    let directory = directory("qwen3_moe", "expert-memory-cut");
    let stored = engine(&directory, settings(Some(1 << 20)));
    let file = OpenOptions::new().write(true).open(directory.join("model.safetensors")).unwrap();
    file.set_len(100).unwrap();
    for prompt in [5, 40] {
        let message = failure(&stored, prompt);
        assert!(message.contains("model.safetensors was changed while it is served"), "{message}");
    }
    assert!(stored.stats().failed_steps_total >= 2);
}

#[test]
fn what_is_too_small_for_an_expert_is_refused_at_start() {
    let directory = directory("qwen3_moe", "expert-memory-small");
    let Err(error) = try_engine(&directory, settings(Some(100))) else { panic!("it is refused") };
    let error = error.to_string();
    assert!(error.contains("--expert-memory is 100 bytes, and one expert of"), "{error}");
}
