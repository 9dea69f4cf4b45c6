//! Models with recurrent states: each request's output is independent of the batch.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::fixture::{directory, engine, request};
use crate::common::{output_tokens, run, wait_for};
use omnibus_engine::{Handle, Request, Settings};

/// Streams of at most `tokens` tokens.
fn check(fixture: &str, test: &str, tokens: usize, together: Settings) -> Handle {
    let directory = directory(fixture, test);
    let roomy = engine(&directory, Settings::default());
    let requests: Vec<Request> = (0..12).map(|i| request(i, 1 + i * 5, tokens - 2 * i)).collect();
    let alone: Vec<_> = requests.iter().map(|request| output_tokens(&run(&roomy, request.clone()))).collect();
    let crowded = engine(&directory, together);
    let streams: Vec<_> = requests.into_iter().map(|request| crowded.submit(request).unwrap()).collect();
    for (i, (stream, alone)) in streams.into_iter().zip(alone).enumerate() {
        let output = output_tokens(&wait_for(stream));
        assert_eq!(output.len(), tokens - 2 * i);
        assert_eq!(output, alone, "{fixture}, stream {i}");
    }
    crowded
}

#[test]
fn unequal_streams_give_the_same_output_in_a_batch_and_alone() {
    for fixture in ["mamba2", "qwen3_next"] {
        // Chunked prompts beside decodes, and fewer slots than streams.
        let settings = Settings { max_num_batched_tokens: Some(24), max_num_seqs: 5, ..Settings::default() };
        check(fixture, "unequal", 40, settings);
    }
}

#[test]
fn preempted_streams_give_the_same_output_as_alone() {
    // Slots for all, blocks for half of them.
    let settings =
        Settings { kv_cache_memory: Some(300 << 10), block_size: 4, max_num_seqs: 8, ..Settings::default() };
    let engine = check("qwen3_next", "preempted", 120, settings);
    assert!(engine.stats().scheduler.preemptions_total > 0, "{:?}", engine.stats());
}

#[test]
fn a_shared_prompt_resumes_at_a_state_checkpoint() {
    for fixture in ["mamba2", "qwen3_next"] {
        let engine =
            engine(&directory(fixture, "shared"), Settings { block_size: 16, ..Settings::default() });
        let first = run(&engine, request(1, 70, 12));
        let second = run(&engine, request(1, 70, 12));
        let longer = run(&engine, request(1, 90, 12));
        assert_eq!((first.usage.cached_tokens, second.usage.cached_tokens), (0, 64), "{fixture}");
        assert_eq!(longer.usage.cached_tokens, 64, "{fixture}");
        assert_eq!(output_tokens(&first), output_tokens(&second), "{fixture}");
        assert!(engine.stats().scheduler.checkpoints_total > 0, "{fixture}");
    }
}
