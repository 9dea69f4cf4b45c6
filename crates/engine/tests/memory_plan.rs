//! The memory plan matches the memory used. In a test process of its own, because MLX counts per process.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::sync::Mutex;

use common::{complete, wait_for};
use omnibus_engine::{Input, Settings};

/// One engine at a time: MLX counts the memory of all.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn the_plan_matches_the_peak() {
    let _alone = ALONE.lock().unwrap();
    for rows in [128, 512] {
        let kv_cache_memory = Some(24 << 20);
        let settings = Settings {
            max_num_batched_tokens: Some(rows),
            max_num_seqs: 8,
            kv_cache_memory,
            ..Settings::default()
        };
        let engine = common::engine(settings);
        let plan = engine.details().unwrap().memory;
        mlx::memory::clear_cache();
        mlx::memory::reset_peak_memory();
        let prompt = |seed: u32| (0..900).map(|at| 5 + (at * 7 + seed * 13) % 1000).collect();
        let ask = |seed: u32| {
            let mut request = complete(&seed.to_string(), "", 4);
            request.input = Input::Tokens(prompt(seed));
            engine.submit(request).unwrap()
        };
        (0..3).map(ask).collect::<Vec<_>>().into_iter().for_each(|stream| {
            wait_for(stream);
        });
        let peak = mlx::memory::peak_memory() as f64;
        let ratio = plan.expected_peak_bytes() as f64 / peak;
        assert!((0.9..1.1).contains(&ratio), "{rows} rows: {plan}, but the peak was {peak}");
    }
}

#[test]
fn models_that_do_not_fit_are_refused() {
    let _alone = ALONE.lock().unwrap();
    let refused = |bytes: u64| {
        let settings = Settings { kv_cache_memory: Some(bytes), ..Settings::default() };
        common::try_engine(settings).err().map(|error| error.to_string())
    };
    let error = refused(1 << 50).expect("a petabyte is not there");
    assert!(error.contains("--kv-cache-memory") && error.contains("does not fit"), "{error}");
    assert_eq!(refused(32 << 20), None);
}

#[test]
fn a_plan_under_a_memory_limit_holds() {
    let _alone = ALONE.lock().unwrap();
    let limit = 192 << 20;
    let settings = |memory_limit| Settings {
        max_num_batched_tokens: Some(128),
        max_num_seqs: 64,
        memory_limit: Some(memory_limit),
        ..Settings::default()
    };
    let refused = common::try_engine(settings(1 << 10)).expect_err("the weights alone take more");
    assert!(refused.to_string().contains("--memory-limit"), "{refused}");
    let engine = common::engine(settings(limit));
    let plan = engine.details().unwrap().memory;
    assert_eq!(plan.limit.as_ref().map(|limit| limit.source.as_str()), Some("--memory-limit"));
    assert!(plan.expected_peak_bytes() + plan.headroom_bytes <= limit, "{plan}");
    mlx::memory::clear_cache();
    mlx::memory::reset_peak_memory();
    let streams: Vec<_> = (0..64)
        .map(|seed: u32| {
            let mut request = complete(&seed.to_string(), "", 4);
            request.input = Input::Tokens((0..60).map(|at| 5 + (at * 7 + seed * 13) % 1000).collect());
            engine.submit(request).unwrap()
        })
        .collect();
    streams.into_iter().for_each(|stream| {
        wait_for(stream);
    });
    let peak = mlx::memory::peak_memory() as u64;
    assert!(peak <= limit, "{plan}, but the peak was {peak}");
}

#[test]
fn a_sequence_of_two_blocks_fits() {
    let _alone = ALONE.lock().unwrap();
    let settings = Settings {
        max_num_seqs: 1,
        max_model_len: Some(64),
        block_size: 32,
        kv_cache_memory: Some(4 << 20),
        ..Settings::default()
    };
    assert_eq!(common::engine(settings).details().unwrap().max_model_len, 64);
}

#[test]
fn recovery_never_holds_two_kv_caches() {
    let _alone = ALONE.lock().unwrap();
    let settings = Settings {
        max_num_batched_tokens: Some(128),
        kv_cache_memory: Some(64 << 20),
        faults: "read@step=2".parse().unwrap(),
        ..Settings::default()
    };
    let engine = common::engine(settings);
    let plan = engine.details().unwrap().memory;
    mlx::memory::clear_cache();
    mlx::memory::reset_peak_memory();
    wait_for(engine.submit(complete("a", "the next stop", 8)).unwrap());
    assert_eq!(engine.stats().failed_steps_total, 1);
    let peak = mlx::memory::peak_memory() as u64;
    assert!(peak < plan.expected_peak_bytes() + plan.kv_bytes / 2, "{plan}, but the peak was {peak}");
}
