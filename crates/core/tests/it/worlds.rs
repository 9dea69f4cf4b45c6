//! Thousands of small, crowded and unlucky worlds. `SEED=17 cargo test -p omnibus-core worlds` replays one, and
//! `WORLDS=1000000` plays more of them.

use std::panic::catch_unwind;
use std::thread;

use omnibus_core::PrefixCache;
use omnibus_core::sim::{Report, Scenario, run};
use omnibus_testing::environment::variable;

const WORLDS: u64 = 12_000;

#[test]
fn every_world_holds_its_invariants() {
    if let Some(seed) = variable("SEED") {
        let scenario = Scenario::adversarial(seed.parse().expect("SEED is a number"));
        println!("{scenario:#?}\n{:#?}", run(&scenario));
        return;
    }
    let worlds = variable("WORLDS").map_or(WORLDS, |count| count.parse().expect("WORLDS is a number"));
    let threads = thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let reports: Vec<Report> = thread::scope(|scope| {
        let shares = (0..threads).map(|share| {
            let seeds = (share..worlds).step_by(threads as usize);
            scope.spawn(move || seeds.map(play).collect::<Vec<_>>())
        });
        let shares: Vec<_> = shares.collect();
        shares.into_iter().flat_map(|share| share.join().unwrap_or_else(|seed| panic!("{seed:?}"))).collect()
    });
    println!("{} worlds: {:?}", reports.len(), events(&reports));
}

/// Members of a static batch were cancelled while steps were in flight for them, and the first of the next batch was said
/// to starve. `sim::starvation` has what happened as a test of its own, which does not depend on the random stream.
#[test]
fn seed_226874_holds_its_invariants() {
    run(&Scenario::adversarial(226_874));
}

/// After a failed step two sequences decoded in steps of one sequence under `split`. The first verified draft tokens in
/// each, the second was taken for one that is stuck, and the older one in the queue had no turn.
#[test]
fn seed_89932_holds_its_invariants() {
    run(&Scenario::adversarial(89_932));
}

/// A sequence ended while it was in a further step, which kept blocks behind its window until that step was done; the
/// oldest one waited for them.
#[test]
fn seed_340090_holds_its_invariants() {
    run(&Scenario::adversarial(340_090));
}

/// After a step that failed, two sequences more ran than there were places for, and the first in line preempted them in two
/// plans.
#[test]
fn seed_244951_holds_its_invariants() {
    run(&Scenario::adversarial(244_951));
}

/// A plan ended sequences whose deadline had passed while a step was in flight, and the next one preempted.
#[test]
fn seed_701506_holds_its_invariants() {
    run(&Scenario::adversarial(701_506));
}

/// The oldest sequence waited for a block of one group, and a younger one took the last block of another.
#[test]
fn seed_513717_holds_its_invariants() {
    run(&Scenario::adversarial(513_717));
}

/// The first in line waited to be admitted and for a block of one group, and a younger one took the last block of
/// another.
#[test]
fn seed_635676_holds_its_invariants() {
    run(&Scenario::adversarial(635_676));
}

/// A plan preempted, blocks were swapped out, and meanwhile the deadline of a sequence passed: two plans in a row
/// scheduled nothing. The audit was wrong to refuse the second.
#[test]
fn seed_187493_holds_its_invariants() {
    run(&Scenario::adversarial(187_493));
}

/// The first in line waited for memory of a step in flight, and another online sequence preempted an offline one meanwhile.
#[test]
fn seed_63069_holds_its_invariants() {
    run(&Scenario::adversarial(63_069));
}

/// Under `split`, each pool preempted a sequence for its own first one before a step was launched.
#[test]
fn seed_609700_holds_its_invariants() {
    run(&Scenario::adversarial(609_700));
}

fn play(seed: u64) -> Report {
    catch_unwind(|| run(&Scenario::adversarial(seed))).unwrap_or_else(|_| panic!("replay with SEED={seed}"))
}

/// What happened. Panics if something did not: a world in which nothing happens proves nothing.
fn events(reports: &[Report]) -> [(&'static str, u64); 24] {
    let sum = |count: fn(&Report) -> u64| reports.iter().map(count).sum::<u64>();
    let counts = [
        ("steps", sum(|report| report.steps)),
        ("completed", sum(|report| report.completed as u64)),
        ("computed only", sum(|report| 2 * report.computed as u64)),
        ("offline", sum(|report| 2 * report.offline_completed as u64)),
        ("broken off", sum(|report| report.broken_off as u64)),
        ("refused", sum(|report| report.refused as u64)),
        ("preemptions", sum(|report| report.stats.preemptions_total)),
        ("preemptions by swap", sum(|report| report.stats.swap_preemptions_total)),
        ("blocks swapped out", sum(|report| report.swapped_out)),
        ("blocks swapped in", sum(|report| 5 * report.swapped_in)),
        ("failed steps", sum(|report| report.stats.failed_steps_total)),
        ("restored blocks", sum(|report| report.restored)),
        ("states kept", sum(|report| report.stats.checkpoints_total)),
        ("beginnings copied", sum(|report| report.stats.partial_copies_total)),
        ("evicted", sum(|report| 20 * report.stats.prefix_misses.evicted)),
        ("changed histories", sum(|report| 20 * report.stats.prefix_misses.history_changed)),
        ("tokens of sessions", sum(|report| report.session_tokens)),
        ("draft tokens accepted", sum(|report| report.stats.accepted_draft_tokens_total)),
        ("draft tokens rejected", sum(rejected)),
        ("spans", sum(|report| report.spans)),
        ("steps that a span exceeds", sum(|report| report.exceeded_steps)),
        ("cached up to inside a span", sum(|report| 20 * report.stats.prefix_misses.span)),
        ("forced tokens", sum(|report| report.stats.forced_tokens_total)),
        ("cached tokens", sum(|report| report.stats.cached_tokens_total)),
    ];
    assert!(counts.iter().all(|(_, count)| *count > reports.len() as u64 / 10), "{counts:?}");
    counts
}

fn rejected(report: &Report) -> u64 {
    report.stats.draft_tokens_total - report.stats.accepted_draft_tokens_total
}

#[test]
fn shared_prefixes_save_work() {
    let with = Scenario::typical(1, 150, 120_000);
    let mut without = with.clone();
    without.settings.prefix_cache = PrefixCache::Off;
    let (with, without) = (run(&with), run(&without));
    assert_eq!((with.completed, without.completed), (150, 150));
    assert_eq!(without.stats.cached_tokens_total, 0);
    assert!(with.stats.cached_tokens_total > 20_000, "{with:#?}");
    assert!(with.ttft.p95 < without.ttft.p95, "{with:#?} {without:#?}");
}
