//! Bursts of prompts under `fair`: against `fcfs`, on machines whose steps have a flat part, before and after the cost
//! model has learned them.

use omnibus_core::sim::{
    Arrival, Audits, Cost, Faults, Interference, Machine, Overlap, Price, Report, Scenario, Tier, run,
};
use omnibus_core::{CacheGroup, LatencyTargets, PrefixCache, Schedule, Settings, SwapSettings, Tick, Tuning};
use omnibus_kv::CacheKind;

/// A machine, as it is simulated.
struct Profile {
    name: &'static str,
    machine: Machine,
    overlap: Overlap,
    interference: Interference,
}

/// Costs of a step, of its prefill on top, of a prompt's token and of a decoded one, in microseconds.
fn priced(step: u64, prefill_step: u64, prefill: u64, decode: u64) -> Machine {
    Machine::Priced(Cost {
        step_ns: step * 1000,
        prefill_step_ns: prefill_step * 1000,
        prefill: Price { token_ns: prefill * 1000, context_ps: 1_000 },
        decode: Price { token_ns: decode * 1000, context_ps: 10_000 },
    })
}

fn gpu(name: &'static str, machine: Machine) -> Profile {
    let interference = Interference { jitter: 20, ..Interference::default() };
    Profile { name, machine, overlap: Overlap::On, interference }
}

/// As measured on a virtual machine with two cores when both are busy.
fn cpu(name: &'static str, machine: Machine) -> Profile {
    let interference =
        Interference { jitter: 20, hiccup_every: 900_000, hiccup: 8_000, ..Interference::default() };
    Profile { name, machine, overlap: Overlap::Off, interference }
}

fn h200_17k() -> Profile {
    gpu("H200, prompts at 17,000 tokens a second", priced(7_000, 0, 59, 100))
}

fn h200_60k() -> Profile {
    gpu("H200, prompts at 60,000 tokens a second", priced(7_000, 0, 17, 60))
}

/// A 4-bit model of four billion parameters with MLX's own matmuls, which are slowest at few rows.
fn h200_slow_matmuls() -> Profile {
    let curve = [(1, 9.8), (4, 15.0), (16, 34.0), (64, 42.0), (256, 45.0), (512, 60.0), (2048, 177.0)];
    gpu("H200, slow matmuls", Machine::Rows { curve: curve.to_vec() })
}

fn profiles() -> [Profile; 6] {
    [
        h200_17k(),
        h200_60k(),
        h200_slow_matmuls(),
        gpu("H200, a flat part of 40 ms", priced(8_000, 32_000, 70, 1_600)),
        cpu("CPU", priced(9_000, 0, 850, 800)),
        cpu("CPU, a flat part of 24 ms", priced(9_000, 15_000, 300, 800)),
    ]
}

fn arrival(at: Tick, prompt: usize, answer: usize) -> Arrival {
    Arrival { at, prompt, max_new_tokens: answer, answer, ..Arrival::default() }
}

fn play(profile: &Profile, schedule: Schedule, tpot: Option<Tick>, arrivals: Vec<Arrival>) -> Report {
    let settings = Settings {
        block_size: 32,
        groups: vec![CacheGroup::of_kind(CacheKind::Full, 4096)],
        max_sequences: 64,
        max_step_tokens: 512,
        max_queue: 256,
        max_offline_queue: 256,
        max_context: 16_384,
        max_span_tokens: 16_384,
        schedule,
        tuning: Tuning { targets: LatencyTargets { tpot, ttft: None }, ..Tuning::default() },
        prefix_cache: PrefixCache::On,
        cache_events: omnibus_core::CacheEvents::Ignored,
        session_ttl: 1_000,
        swap: SwapSettings::default(),
    };
    run(&Scenario {
        settings,
        arrivals,
        machine: profile.machine.clone(),
        drafts: None,
        faults: Faults { interference: profile.interference.clone(), ..Faults::default() },
        overlap: profile.overlap,
        tier: Tier::default(),
        audits: Audits::AtTheEnd,
        seed: 7,
    })
}

/// When the burst comes, long after all else.
const BURST_AT: Tick = 120_000_000;

/// Traffic that a server has learned from: two requests at a time, and now and then eight.
fn history() -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    for round in 0..20 {
        let at = 5_000_000 * round as Tick;
        arrivals.push(arrival(at, 40 + 30 * round, 60));
        arrivals.push(arrival(at + 300_000, 20 + 60 * (round % 5), 40));
        if round % 5 == 4 {
            arrivals.extend((0..8).map(|_| arrival(at + 1_000_000, 128, 24)));
        }
    }
    arrivals
}

/// How long 16 prompts of 128 tokens with 48 new tokens each take.
fn burst(profile: &Profile, schedule: Schedule, history: &[Arrival]) -> Tick {
    let burst = (0..16).map(|_| arrival(BURST_AT, 128, 48));
    let arrivals = history.iter().cloned().chain(burst).collect();
    play(profile, schedule, None, arrivals).end - BURST_AT
}

#[test]
fn a_burst_takes_about_as_long_as_under_fcfs() {
    for profile in profiles() {
        for (server, history) in [("fresh", Vec::new()), ("learned", history())] {
            let [fair, fcfs] = [Schedule::Fair, Schedule::Fcfs].map(|which| burst(&profile, which, &history));
            let name = profile.name;
            println!("{name}, {server}: {:.2} times as long", fair as f64 / fcfs as f64);
            assert!(100 * fair <= 115 * fcfs, "{name}, {server}: {fair} µs, and {fcfs} µs under fcfs");
        }
    }
}

/// Eight streams, and 16 prompts of 368 tokens that arrive while they decode.
fn beside_streams(profile: &Profile, schedule: Schedule, tpot: Option<Tick>) -> Report {
    let stream = |_| Arrival { leaves_after: Some(40_000_000), ..arrival(0, 20, 3000) };
    let prompts = (0..16).map(|_| arrival(4_000_000, 368, 4));
    play(profile, schedule, tpot, (0..8).map(stream).chain(prompts).collect())
}

#[test]
fn prompts_beside_streams_are_not_starved_without_an_objective() {
    for profile in profiles() {
        let [fair, fcfs] =
            [Schedule::Fair, Schedule::Fcfs].map(|which| beside_streams(&profile, which, None).ttft_max);
        let name = profile.name;
        println!("{name}: last first token after {:.2} times the time", fair as f64 / fcfs as f64);
        assert!(10 * fair <= 15 * fcfs, "{name}: last first token after {fair} µs, and {fcfs} µs under fcfs");
    }
}

#[test]
fn prompts_beside_streams_are_computed_within_the_objective() {
    for profile in [h200_17k(), h200_60k()] {
        // Four times the gap of eight streams without other load.
        let tpot = Some(30_000);
        let fair = beside_streams(&profile, Schedule::Fair, tpot);
        let fcfs = beside_streams(&profile, Schedule::Fcfs, tpot);
        assert_eq!(fair.itl_late, 0, "{}: {fair:#?}", profile.name);
        assert!(10 * fair.ttft_max <= 15 * fcfs.ttft_max, "{}: {fair:#?} against {fcfs:#?}", profile.name);
    }
}

/// A step with prefill takes longer than the objective whatever it computes. So it computes more than a few tokens.
#[test]
fn an_objective_below_the_flat_part_of_a_step_does_not_starve_prompts() {
    let profile = gpu("H200, a flat part of 40 ms", priced(8_000, 32_000, 70, 1_600));
    let fair = beside_streams(&profile, Schedule::Fair, Some(20_000));
    let fcfs = beside_streams(&profile, Schedule::Fcfs, Some(20_000));
    assert!(fair.ttft_max <= 2 * fcfs.ttft_max, "{fair:#?} against {fcfs:#?}");
}
