//! Less memory than all streams need: preempted sequences' blocks are swapped out and back, and no output changes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;

use crate::alone;
use crate::common;
use crate::common::{complete, fixture, output_tokens, wait_for};
use omnibus_engine::{DiskSettings, Handle, PreemptionPolicy, Request, Settings, Stats};

type Outputs = Vec<Vec<(u32, Option<f32>)>>;

fn together(engine: &Handle, requests: &[Request]) -> Outputs {
    let streams: Vec<_> = requests.iter().map(|request| engine.submit(request.clone()).unwrap()).collect();
    streams.into_iter().map(|stream| output_tokens(&wait_for(stream))).collect()
}

/// In an engine with little memory the streams give the expected output, twice, and release all blocks.
fn check(expected: &Outputs, tight: &Handle, requests: &[Request]) -> Stats {
    assert_eq!(together(tight, requests), *expected);
    let first = tight.stats();
    assert_eq!(together(tight, requests), *expected, "again");
    let stats = tight.stats();
    assert_eq!(
        (stats.scheduler.queued, stats.scheduler.running, stats.scheduler.blocks().used),
        (0, 0, 0),
        "{stats:?}"
    );
    assert!(stats.active_memory_bytes <= first.active_memory_bytes + (1 << 20), "{first:?} {stats:?}");
    assert!(stats.swap.used_bytes <= stats.swap.limit_bytes, "{stats:?}");
    stats
}

/// Blocks for one and a half of these sequences.
fn tight(preemption: PreemptionPolicy, swap_space: u64) -> Settings {
    Settings {
        kv_cache_memory: Some(1 << 20),
        block_size: 8,
        preemption,
        swap_space: Some(swap_space),
        ..Settings::default()
    }
}

/// The requests, and their output with enough memory.
fn expected() -> (Vec<Request>, Outputs) {
    let requests = requests(&common::engine(tight(PreemptionPolicy::Recompute, 0)));
    let output_tokens = together(&common::engine(Settings::default()), &requests);
    (requests, output_tokens)
}

fn requests(engine: &Handle) -> Vec<Request> {
    let tokens = engine.details().unwrap().max_model_len * 2 / 3;
    let request = |i: usize| {
        let mut request = complete(&format!("r{i}"), &format!("number {i}: "), tokens);
        request.logprobs = Some(0);
        request
    };
    (0..6).map(request).collect()
}

#[test]
fn swapped_streams_give_the_same_output() {
    let _alone = alone();
    let (requests, expected) = expected();
    for (preemption, swaps) in
        [(PreemptionPolicy::Swap, true), (PreemptionPolicy::Recompute, false), (PreemptionPolicy::Auto, true)]
    {
        let engine = common::engine(tight(preemption, 64 << 20));
        let stats = check(&expected, &engine, &requests);
        assert!(stats.scheduler.preemptions_total > 0, "{preemption:?}: {stats:?}");
        // Which is faster depends on the machine; swapping is tried at least once.
        assert_eq!(stats.scheduler.swap_preemptions_total > 0, swaps, "{preemption:?}: {stats:?}");
        if preemption == PreemptionPolicy::Swap {
            assert_eq!(
                stats.scheduler.swap_preemptions_total, stats.scheduler.preemptions_total,
                "{stats:?}"
            );
            assert!(stats.swap.in_blocks_total > 0, "{stats:?}");
            assert!(
                stats.cost_model.transfers.offload.samples > 0
                    && stats.cost_model.transfers.onload.samples > 0
            );
        }
    }
}

#[test]
fn a_small_swap_space_holds_its_limit() {
    let _alone = alone();
    let (requests, expected) = expected();
    let engine = common::engine(tight(PreemptionPolicy::Swap, 140 << 10));
    let stats = check(&expected, &engine, &requests);
    assert!(stats.swap.out_blocks_total > 0 && stats.swap.limit_bytes == 140 << 10, "{stats:?}");
    let most = stats.scheduler.swap_preemptions_total * stats.swap.limit_bytes;
    assert!(stats.swap.out_bytes_total <= most, "nothing is copied that there is no room for: {stats:?}");
}

#[test]
fn the_disk_backs_a_small_swap_space() {
    let _alone = alone();
    let directory = std::env::temp_dir().join(format!("omnibus-swap-{}", std::process::id()));
    let _not_there = std::fs::remove_dir_all(&directory);
    let (requests, expected) = expected();
    let disk = DiskSettings { directory: directory.clone(), ..DiskSettings::default() };
    let engine = common::engine(Settings { disk: Some(disk), ..tight(PreemptionPolicy::Swap, 100 << 10) });
    let stats = check(&expected, &engine, &requests);
    assert!(stats.scheduler.swap_preemptions_total > 0 && stats.disk.read_blocks_total > 0, "{stats:?}");
    drop(engine);
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn swapped_streams_with_states_give_the_same_output() {
    let _alone = alone();
    let directory: PathBuf = fixture::directory("qwen3_next", "swapped");
    let roomy = fixture::engine(&directory, Settings::default());
    // Slots for twice as many as run, blocks for half of those.
    let engine = fixture::engine(
        &directory,
        Settings {
            kv_cache_memory: Some(300 << 10),
            block_size: 4,
            max_num_seqs: 4,
            preemption: PreemptionPolicy::Swap,
            swap_space: Some(16 << 20),
            ..Settings::default()
        },
    );
    let requests: Vec<Request> = (0..8).map(|i| fixture::request(i, 40 + i * 3, 170 - 2 * i)).collect();
    let stats = check(&together(&roomy, &requests), &engine, &requests);
    assert!(stats.scheduler.preemptions_total > 0, "{stats:?}");
    assert!(stats.swap.in_blocks_total > 0, "{stats:?}");
}

#[test]
fn a_failed_step_while_sequences_are_swapped_out_changes_no_output() {
    let _alone = alone();
    let (requests, expected) = expected();
    for fault in ["launch", "read", "turn"] {
        let faults = [20, 60, 100, 150].map(|step| format!("{fault}@step={step}")).join(",");
        let faults = faults.parse().unwrap();
        let engine = common::engine(Settings { faults, ..tight(PreemptionPolicy::Swap, 64 << 20) });
        assert_eq!(together(&engine, &requests), expected, "{fault}");
        let stats = engine.stats();
        assert!(stats.failed_steps_total >= 3, "{fault}: {stats:?}");
        assert_eq!(
            (stats.scheduler.queued, stats.scheduler.running, stats.scheduler.blocks().used),
            (0, 0, 0),
            "{stats:?}"
        );
    }
}
