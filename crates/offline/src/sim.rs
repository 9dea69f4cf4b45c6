//! Simulation: the scheduler with an engine's settings, on a machine that is only a cost model.

pub use omnibus_core::CostModel;
pub use omnibus_core::DraftWork;
pub use omnibus_core::sim::{Arrival, Machine, MeasuredDrafts, Quantiles, Report, Workload};
use omnibus_core::sim::{Audits, Faults, Overlap, Scenario, Tier, run};
use omnibus_core::{CacheGroup, Settings as CoreSettings, SwapSettings};
use omnibus_engine::{AsyncScheduling, Settings};
use omnibus_kv::CacheKind;

/// Tokens that keys and values have room for, in all sequences together.
const MEMORY_TOKENS: usize = 1 << 18;

/// Simulates these requests, ordered by time, and reports the result. Without `drafts` there are no draft tokens.
pub fn simulate(
    settings: &Settings,
    machine: &Machine,
    arrivals: &[Arrival],
    drafts: Option<MeasuredDrafts>,
) -> Report {
    let blocks = (MEMORY_TOKENS / settings.block_size).max(1);
    let overlap = match settings.async_scheduling {
        AsyncScheduling::On => Overlap::On,
        // The simulated machine launches as a CPU does.
        AsyncScheduling::Auto | AsyncScheduling::Off => Overlap::Off,
    };
    let settings = CoreSettings {
        block_size: settings.block_size,
        groups: vec![CacheGroup::of_kind(CacheKind::Full, blocks as u32)],
        max_sequences: settings.max_num_seqs,
        max_step_tokens: settings.step_tokens(),
        max_queue: settings.max_queue.max(1),
        max_offline_queue: settings.max_queue.max(1),
        max_context: blocks * settings.block_size,
        max_span_tokens: blocks * settings.block_size,
        schedule: settings.schedule,
        tuning: settings.tuning.clone(),
        prefix_cache: settings.prefix_cache,
        cache_events: omnibus_core::CacheEvents::Ignored,
        session_ttl: (settings.session_ttl_s * 1e6) as omnibus_core::Tick,
        swap: SwapSettings::default(),
    };
    run(&Scenario {
        settings,
        arrivals: arrivals.to_vec(),
        machine: machine.clone(),
        drafts,
        faults: Faults::default(),
        overlap,
        tier: Tier::default(),
        audits: Audits::AtTheEnd,
        seed: 0,
    })
}
