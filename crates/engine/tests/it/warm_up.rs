//! Warm-up steps leave no trace.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::fixture::{directory, engine, request};
use crate::common::{output_tokens, run};
use omnibus_engine::{Settings, WarmUp};

/// Full attention, sliding windows, experts, states, and mixtures of them.
const FIXTURES: [&str; 6] = ["llama", "llama.sliding", "gemma3_text", "qwen3_moe", "mamba2", "qwen3_next"];

fn check(fixture: &str, test: &str, settings: &Settings) {
    let directory = directory(fixture, test);
    let with = |warm_up| engine(&directory, Settings { warm_up, ..settings.clone() });
    let (warm, cold) = (with(WarmUp::On), with(WarmUp::Off));
    let stats = warm.stats();
    assert_eq!(
        (stats.steps_total, stats.scheduler.blocks().cached, stats.scheduler.computed_tokens_total),
        (0, 0, 0),
        "{fixture}"
    );
    assert_eq!((stats.cost_model.prefill.samples, stats.cost_model.decode.samples), (0, 0), "{fixture}");
    let answer = |engine| output_tokens(&run(engine, request(1, 40, 12)));
    assert_eq!(answer(&warm), answer(&cold), "{fixture}");
}

#[test]
fn a_warmed_up_engine_gives_the_same_output() {
    for fixture in FIXTURES {
        check(fixture, "warm", &Settings::default());
    }
}

#[test]
fn so_does_one_with_little_memory() {
    let small =
        Settings { max_num_batched_tokens: Some(24), max_num_seqs: 5, block_size: 4, ..Settings::default() };
    for fixture in FIXTURES {
        let settings = Settings { kv_cache_memory: Some(300 << 10), ..small.clone() };
        check(fixture, "warm-small", &settings);
    }
}
