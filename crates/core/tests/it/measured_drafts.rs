//! What draft tokens gain in a world whose proposers are as they were measured.

use omnibus_core::sim::{
    Arrival, Audits, Faults, Machine, MeasuredDrafts, Overlap, Report, Scenario, Tier, run,
};
use omnibus_core::{CacheGroup, CostModel, DraftWork, PrefixCache, Schedule, Settings, SwapSettings, Tuning};
use omnibus_kv::CacheKind;

/// Decode steps take 10 ms and so much for each row, and a pass of the draft model 1 ms.
fn cost(row_us: f64) -> CostModel {
    let mut cost = CostModel::default();
    for (step, token_us) in [(&mut cost.decode, row_us), (&mut cost.prefill, 10.0)] {
        (step.base_us, step.token_us, step.samples) = (10_000.0, token_us, 99);
    }
    (cost.drafts.round_us, cost.drafts.samples) = (1_000.0, 99);
    cost
}

fn report(row_us: f64, drafts: Option<MeasuredDrafts>) -> Report {
    let settings = Settings {
        block_size: 16,
        groups: vec![CacheGroup::of_kind(CacheKind::Full, 4096)],
        max_sequences: 4,
        max_step_tokens: 512,
        max_queue: 64,
        max_offline_queue: 64,
        max_context: 16_384,
        max_span_tokens: 16_384,
        schedule: Schedule::Fcfs,
        tuning: Tuning::default(),
        prefix_cache: PrefixCache::On,
        cache_events: omnibus_core::CacheEvents::Ignored,
        session_ttl: 1_000,
        swap: SwapSettings::default(),
    };
    let arrival = Arrival { prompt: 20, max_new_tokens: 500, answer: 500, ..Arrival::default() };
    run(&Scenario {
        settings,
        arrivals: (0..8).map(|conversation| Arrival { conversation, ..arrival.clone() }).collect(),
        machine: Machine::Learned(Box::new(cost(row_us))),
        drafts,
        faults: Faults::default(),
        overlap: Overlap::Off,
        tier: Tier::default(),
        audits: Audits::AtTheEnd,
        seed: 1,
    })
}

fn drafts(work: DraftWork) -> Option<MeasuredDrafts> {
    Some(MeasuredDrafts { offered: vec![1.0], accepted: vec![0.8], most: 3, work })
}

fn gain(row_us: f64, work: DraftWork) -> f64 {
    report(row_us, None).end as f64 / report(row_us, drafts(work)).end as f64
}

#[test]
fn the_gain_is_that_of_the_formula() {
    let tokens = 1.0 + 0.8 + 0.64 + 0.512;
    // Rows are free: a step gives so many tokens in the time of one.
    let copied = gain(0.0, DraftWork::None);
    assert!((copied / tokens - 1.0).abs() < 0.05, "{copied}");
    // Three passes of the draft model before each step.
    let drafted = gain(0.0, DraftWork::Model);
    assert!((drafted / (tokens / 1.3) - 1.0).abs() < 0.05, "{drafted}");
}

#[test]
fn drafts_that_do_not_pay_are_not_verified() {
    let gain = gain(10_000.0, DraftWork::Model);
    assert!((0.97..1.03).contains(&gain), "{gain}");
}
