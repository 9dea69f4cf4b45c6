//! Whether answers keep their pace while prompts are read, and whether prompts are read all the same.

#![allow(clippy::unwrap_used)]

use omnibus_core::sim::{
    Arrival, Audits, Cost, Faults, Interference, Machine, Overlap, Price, Report, Scenario, Tier, run,
};
use omnibus_core::{
    CacheGroup, HoldReason, LatencyTargets, Outcome, PrefixCache, Request, Schedule, Scheduler, SequenceId,
    SequenceOutput, Settings, StepTime, Stop, SwapSettings, Tick, Tuning,
};
use omnibus_kv::CacheKind;

const BUDGET: usize = 512;

fn arrival(at: Tick, prompt: usize, answer: usize) -> Arrival {
    Arrival { at, prompt, max_new_tokens: answer, answer, ..Arrival::default() }
}

fn scenario(schedule: Schedule, targets: LatencyTargets, arrivals: Vec<Arrival>) -> Scenario {
    let settings = Settings {
        block_size: 16,
        groups: vec![CacheGroup::of_kind(CacheKind::Full, 4096)],
        max_sequences: 16,
        max_step_tokens: BUDGET,
        max_queue: 64,
        max_offline_queue: 64,
        max_context: 16_384,
        max_span_tokens: 16_384,
        schedule,
        tuning: Tuning { targets, ..Tuning::default() },
        prefix_cache: PrefixCache::On,
        cache_events: omnibus_core::CacheEvents::Ignored,
        session_ttl: 1_000,
        swap: SwapSettings::default(),
    };
    let (machine, faults, overlap) = (Machine::default(), Faults::default(), Overlap::On);
    Scenario {
        settings,
        arrivals,
        machine,
        drafts: None,
        faults,
        overlap,
        tier: Tier::default(),
        audits: Audits::EveryStep,
        seed: 1,
    }
}

/// Eight streams, and when they flow a prompt of four steps' tokens.
fn interrupted(schedule: Schedule, targets: LatencyTargets) -> Report {
    run(&scenario(schedule, targets, interruption()))
}

fn interruption() -> Vec<Arrival> {
    let mut arrivals: Vec<_> = (0..8).map(|_| arrival(0, 20, 400)).collect();
    arrivals.push(arrival(2_000_000, 4 * BUDGET, 20));
    arrivals
}

/// Microseconds between tokens of eight streams without other load.
fn unloaded() -> Tick {
    let arrivals = (0..8).map(|_| arrival(0, 20, 400)).collect();
    run(&scenario(Schedule::Fcfs, LatencyTargets::default(), arrivals)).itl.p99
}

#[test]
fn a_step_time_divides_prompts_whatever_the_policy() {
    let most = 2 * unloaded();
    for schedule in [Schedule::Fcfs, Schedule::Split] {
        let mut bounded = scenario(schedule, LatencyTargets::default(), interruption());
        // Before anything is measured: the fewest tokens.
        bounded.settings.tuning.step_time = Some(StepTime { most, token_ns: 1_000_000 });
        let (bounded, free) = (run(&bounded), interrupted(schedule, LatencyTargets::default()));
        assert_eq!((bounded.completed, free.completed), (9, 9), "{schedule:?}");
        assert!(bounded.itl_max <= 2 * most, "{schedule:?}: {} against {most}", bounded.itl_max);
        assert!(free.itl_max > 4 * most, "{schedule:?}: {} against {most}", free.itl_max);
    }
}

#[test]
fn decodes_meet_their_target_during_a_long_prefill() {
    let tpot = 2 * unloaded();
    let fair = interrupted(Schedule::Fair, LatencyTargets { tpot: Some(tpot), ttft: None });
    assert!(fair.itl.p99 <= tpot, "{fair:#?} against {tpot}");
    let fcfs = interrupted(Schedule::Fcfs, LatencyTargets::default());
    assert!(fcfs.itl_max > 4 * tpot, "the prompt would be in the way: {fcfs:#?}");
    assert_eq!(fair.completed, 9);
}

#[test]
fn prefill_progresses_even_if_decodes_have_no_slack() {
    let tpot = unloaded() / 2;
    let fair = interrupted(Schedule::Fair, LatencyTargets { tpot: Some(tpot), ttft: None });
    assert_eq!(fair.completed, 9);
    // A chunk in each step, and a step is not much longer than one without, once the machine is known.
    assert!(fair.itl.p99 < unloaded() * 3 / 2 && fair.itl_max < unloaded() * 2, "{fair:#?}");
    assert!(fair.ttft_max < unloaded() * 2 * (4 * BUDGET as Tick / 16), "{fair:#?}");
}

/// A machine on which eight streams alone leave less than half of twice their gap to prompts.
fn small_machine() -> Machine {
    let prefill = Price { token_ns: 850_000, context_ps: 280_000 };
    let decode = Price { token_ns: 800_000, context_ps: 1_700_000 };
    Machine::Priced(Cost { step_ns: 9_000_000, prefill_step_ns: 0, prefill, decode })
}

/// Gaps longer than 40 ms, and gaps at least, while eight streams meet a prompt; of some worlds with such interference.
fn late_beside(interference: impl Fn(u64) -> Interference) -> (usize, usize) {
    let worlds = (0..10).map(|seed| {
        let stream = |_| Arrival { leaves_after: Some(14_000_000), ..arrival(2_000_000, 40, 3000) };
        // A server that has seen a prompt.
        let mut arrivals = vec![arrival(0, 256, 4)];
        arrivals.extend((0..8).map(stream));
        arrivals.push(arrival(5_000_000, 4 * BUDGET, 4));
        let targets = LatencyTargets { tpot: Some(40_000), ttft: None };
        let faults = Faults { interference: interference(seed), ..Faults::default() };
        let world = scenario(Schedule::Fair, targets, arrivals);
        let (machine, overlap, audits) = (small_machine(), Overlap::Off, Audits::AtTheEnd);
        let report = run(&Scenario { machine, faults, overlap, audits, seed, ..world });
        (report.itl_late, 8 * (report.ttft_max / 40_000) as usize)
    });
    worlds.fold((0, 0), |sum, world| (sum.0 + world.0, sum.1 + world.1))
}

/// As measured on a virtual machine with two cores when both are busy.
fn hiccups() -> Interference {
    Interference { jitter: 20, hiccup_every: 900_000, hiccup: 8_000, ..Interference::default() }
}

#[test]
fn decodes_meet_their_target_under_background_load() {
    let (late, gaps) = late_beside(|_| hiccups());
    assert!(100 * late <= gaps, "{late} of {gaps} are late for hiccups");
    // Everything is slower for ten seconds, sooner or later.
    let slow = |seed| Interference {
        slow_every: 12_000_000 + seed * 700_000,
        slow_for: 10_000_000,
        slow: 220,
        ..hiccups()
    };
    let (late, gaps) = late_beside(slow);
    assert!(50 * late <= gaps, "{late} of {gaps} are late when the machine slows down");
}

/// Units of a part of encoding.
const UNITS: u64 = 64;

/// Encodes a picture of `parts` parts, of which each takes `part_us` of those that are left, beside eight streams whose steps take `step_us`. The longest time
/// between two steps' ends, and how many steps it took.
fn encoded(
    schedule: Schedule,
    (parts, part_us): (usize, impl Fn(usize) -> Tick),
    step_us: Tick,
    tpot: Tick,
) -> (Tick, usize) {
    let targets = LatencyTargets { tpot: Some(tpot), ttft: None };
    let settings = scenario(schedule, targets, Vec::new()).settings;
    let mut scheduler = Scheduler::new(settings);
    let mut now = 0;
    let step = |scheduler: &mut Scheduler, now: &mut Tick| -> Vec<SequenceId> {
        let plan = scheduler.plan(*now);
        scheduler.apply(&plan);
        *now += step_us;
        let samples = plan.scheduled.iter().filter(|scheduled| scheduled.samples > 0);
        let outputs = samples.map(|_| SequenceOutput::token(1, Stop::No)).collect();
        scheduler.commit(Outcome { plan: plan.id, outputs, took: Some(step_us) });
        scheduler.audit();
        plan.scheduled.iter().map(|scheduled| scheduled.sequence).collect()
    };
    for stream in 0..8 {
        scheduler.submit(now, Request::new(vec![stream; 4], 4_000)).unwrap();
    }
    for _ in 0..20 {
        step(&mut scheduler, &mut now);
    }
    let seer = scheduler.submit(now, Request::new(vec![9; 4], 4)).unwrap();
    scheduler.hold(seer, HoldReason::Encoding);
    let (mut left, mut longest, mut steps) = (parts, 0, 0);
    while left > 0 {
        assert_eq!(scheduler.next_encoding(), Some(seer));
        let before = now;
        let count = scheduler.parts_beside_steps(now, left, UNITS);
        let took = (left - count..left).map(&part_us).sum();
        now += took;
        if count > 0 {
            scheduler.learn_encoding(UNITS * count as u64, took);
        }
        left -= count;
        let scheduled = step(&mut scheduler, &mut now);
        assert!(scheduled.len() == 8 && !scheduled.contains(&seer), "{scheduled:?}");
        (longest, steps) = (longest.max(now - before), steps + 1);
    }
    scheduler.release_hold(seer, HoldReason::Encoding);
    assert_eq!(scheduler.next_encoding(), None);
    assert!((0..4).any(|_| step(&mut scheduler, &mut now).contains(&seer)), "it is admitted");
    (longest, steps)
}

#[test]
fn encoding_takes_the_time_that_streams_do_not_need() {
    for schedule in [Schedule::Fair, Schedule::Fcfs] {
        let (longest, steps) = encoded(schedule, (100, |_| 4_000), 10_000, 50_000);
        assert!(longest <= 50_000, "{schedule:?}: {longest}");
        assert!(steps <= 20, "{schedule:?}: five parts and more a step, not {steps} steps");
    }
}

#[test]
fn parts_of_unequal_cost_keep_streams_in_time() {
    // Attention and MLP in turns.
    let part_us = |left: usize| if left.is_multiple_of(2) { 2_000 } else { 5_000 };
    let (longest, steps) = encoded(Schedule::Fair, (100, part_us), 10_000, 50_000);
    assert!(longest <= 50_000, "{longest}");
    assert!(steps <= 25, "{steps} steps");
}

#[test]
fn encoding_ends_beside_streams_that_need_all_the_time() {
    let (longest, steps) = encoded(Schedule::Fair, (10, |_| 4_000), 49_000, 50_000);
    assert!(steps <= 90, "one part in eight steps, not {steps} steps");
    assert!(longest <= 49_000 + 4_000, "one part at a time: {longest}");
}
