//! The memory plan matches the memory used. In a test process of its own, because MLX counts per process.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::Path;
use std::sync::Mutex;

use common::draft_model::FirstLayers;
use common::{complete, wait_for};
use omnibus_core::DraftPolicy;
use omnibus_engine::{DraftSource, Input, MemoryPlan, Settings, SpeculationSettings};

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

/// Settings with these drafts, all of which are verified.
fn drafting(source: DraftSource, draft_model: Option<&Path>) -> Settings {
    let draft_model = draft_model.map(Path::to_owned);
    let mut settings = Settings {
        max_num_batched_tokens: Some(256),
        max_num_seqs: 8,
        kv_cache_memory: Some(24 << 20),
        speculation: SpeculationSettings {
            source,
            num_draft_tokens: 3,
            draft_model,
            ..SpeculationSettings::default()
        },
        ..Settings::default()
    };
    settings.tuning.drafts = DraftPolicy::All;
    settings
}

/// The plan of an engine with drafts, and the peak of prompts and answers.
fn plan_and_peak(settings: Settings) -> (MemoryPlan, f64) {
    let engine = common::engine(settings);
    let plan = engine.details().unwrap().memory;
    mlx::memory::clear_cache();
    mlx::memory::reset_peak_memory();
    let streams: Vec<_> = (0..3)
        .map(|seed: u32| {
            let mut request = complete(&seed.to_string(), "", 40);
            request.input = Input::Tokens((0..900).map(|at| 5 + (at * 7 + seed * 13) % 1000).collect());
            engine.submit(request).unwrap()
        })
        .collect();
    streams.into_iter().for_each(|stream| _ = wait_for(stream));
    (plan, mlx::memory::peak_memory() as f64)
}

#[test]
fn what_drafts_is_in_the_plan() {
    let _alone = ALONE.lock().unwrap();
    let (without, _) = plan_and_peak(drafting(DraftSource::Off, None));
    assert_eq!((without.draft_weights_bytes, without.draft_kv_bytes), (0, 0), "{without}");
    let draft = FirstLayers::new("planned", 5);
    let of_file = std::fs::metadata(draft.path().join("model.safetensors")).unwrap().len() as f64;
    for (source, directory) in [(DraftSource::Model, Some(draft.path())), (DraftSource::Mtp, None)] {
        let (plan, peak) = plan_and_peak(drafting(source, directory));
        let more = plan.weights_bytes - without.weights_bytes;
        assert!(more.abs_diff(plan.draft_weights_bytes) < 1 << 20, "{source:?}: {more} more, {plan}");
        if directory.is_some() {
            let ratio = plan.draft_weights_bytes as f64 / of_file;
            assert!((0.95..1.1).contains(&ratio), "{source:?}: {plan}, and a file of {of_file}");
        }
        // Its blocks are of the same memory, so that there are fewer.
        assert!(plan.draft_kv_bytes > 0 && plan.kv_tokens < without.kv_tokens, "{source:?}: {plan}");
        assert!(plan.kv_bytes <= 24 << 20, "{source:?}: {plan}");
        let ratio = plan.expected_peak_bytes() as f64 / peak;
        assert!((0.9..1.15).contains(&ratio), "{source:?}: {plan}, but the peak was {peak}");
    }
}

#[test]
fn a_draft_model_that_does_not_fit_is_refused_before_anything_is_loaded() {
    let _alone = ALONE.lock().unwrap();
    let draft = FirstLayers::new("too-large", 8);
    let own = std::fs::metadata(draft.path().join("model.safetensors")).unwrap().len();
    let loaded = mlx::memory::active_memory() as u64;
    let limited = Settings {
        // The model alone fits.
        memory_limit: Some(loaded + own + own / 2),
        ..drafting(DraftSource::Model, Some(draft.path()))
    };
    mlx::memory::reset_peak_memory();
    let refused = common::try_engine(limited).unwrap_err().to_string();
    assert!(refused.contains("to draft (--draft)") && refused.contains("--memory-limit"), "{refused}");
    assert!((mlx::memory::peak_memory() as u64) < loaded + own / 2, "the model was loaded");
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
