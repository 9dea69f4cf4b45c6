//! Classes of service: offline requests use what online ones leave, cost them at most a step's chunk, are preempted
//! first, and advance as soon as there is time.

#![allow(clippy::expect_used)]

use omnibus_core::sim::{Arrival, Overlap, Report, Scenario, Workload, run};
use omnibus_core::{
    CacheGroup, Class, Outcome, Plan, PrefixCache, Rejection, Request, Schedule, Scheduler, SequenceOutput,
    Settings, Stop, SwapSettings, Tick, Tuning,
};
use omnibus_kv::CacheKind;

fn settings() -> Settings {
    Settings {
        block_size: 4,
        groups: vec![CacheGroup::of_kind(CacheKind::Full, 16)],
        max_sequences: 2,
        max_step_tokens: 16,
        max_queue: 4,
        max_offline_queue: 2,
        max_context: 64,
        max_span_tokens: 64,
        schedule: Schedule::Fair,
        tuning: Tuning::default(),
        prefix_cache: PrefixCache::Off,
        cache_events: omnibus_core::CacheEvents::Ignored,
        session_ttl: 1_000,
        swap: SwapSettings::default(),
    }
}

fn request(class: Class, prompt: u32, answer: usize) -> Request {
    Request { class, ..Request::new((0..prompt).collect(), answer) }
}

fn commit(scheduler: &mut Scheduler, plan: &Plan) {
    let samples = plan.scheduled.iter().filter(|part| part.samples > 0);
    let outputs = samples.map(|_| SequenceOutput::token(1, Stop::No)).collect();
    scheduler.commit(Outcome { plan: plan.id, outputs, took: Some(1_000) });
    scheduler.audit();
}

fn step(scheduler: &mut Scheduler, now: Tick) -> Plan {
    let plan = scheduler.plan(now);
    scheduler.apply(&plan);
    if !plan.scheduled.is_empty() {
        commit(scheduler, &plan);
    }
    plan
}

fn planned(plan: &Plan) -> Vec<u64> {
    plan.scheduled.iter().map(|part| part.sequence.0).collect()
}

#[test]
fn an_online_request_takes_the_place_of_an_offline_one() {
    let mut scheduler = Scheduler::new(settings());
    for tenant in [7, 8] {
        let offline = Request { tenant, priority: 5, ..request(Class::Offline, 3, 40) };
        scheduler.submit(0, offline).expect("there is room");
    }
    assert_eq!(planned(&step(&mut scheduler, 0)), [0, 1]);
    // The tenant of the first has a sequence running already, and the request no priority.
    let online = Request { tenant: 7, priority: -5, ..request(Class::Online, 3, 2) };
    scheduler.submit(1_000, online).expect("there is room");
    let plan = step(&mut scheduler, 1_000);
    let preempted: Vec<u64> = plan.preempt.iter().map(|preempted| preempted.sequence.0).collect();
    assert_eq!((preempted, planned(&plan).first().copied()), (vec![1], Some(2)));
    for now in 2..4 {
        step(&mut scheduler, now * 1_000);
    }
    assert_eq!(
        planned(&scheduler.plan(4_000)),
        [0, 1],
        "the online one has ended, and the offline one resumes"
    );
}

#[test]
fn an_online_request_behind_another_has_the_memory_of_offline_ones() {
    let mut scheduler = Scheduler::new(Settings { max_sequences: 4, ..settings() });
    (0..2).for_each(|_| _ = scheduler.submit(0, request(Class::Offline, 12, 50)).expect("there is room"));
    (0..3).for_each(|now| _ = step(&mut scheduler, now * 1_000));
    // Two of them hold half of the memory. The first online one has what it needs, and the second does not fit.
    scheduler.submit(3_000, request(Class::Online, 4, 50)).expect("there is room");
    scheduler.submit(3_000, request(Class::Online, 36, 2)).expect("there is room");
    let (mut preempted, mut admitted) = (Vec::new(), Vec::new());
    for now in 3..6 {
        let plan = step(&mut scheduler, now * 1_000);
        preempted.extend(plan.preempt.iter().map(|of| of.sequence.0));
        admitted.extend(planned(&plan).into_iter().filter(|id| *id > 1 && !admitted.contains(id)).max());
    }
    assert_eq!((preempted, admitted.len()), (vec![1], 2), "both online ones run");
}

#[test]
fn each_class_has_a_queue_limit_of_its_own() {
    let mut scheduler = Scheduler::new(settings());
    let mut submit = |class| scheduler.submit(0, request(class, 3, 1));
    assert!((0..2).all(|_| submit(Class::Offline).is_ok()));
    assert_eq!(submit(Class::Offline), Err(Rejection::QueueFull { queued: 2, limit: 2 }));
    assert!((0..4).all(|_| submit(Class::Online).is_ok()), "offline requests take no places of online ones");
    assert_eq!(submit(Class::Online), Err(Rejection::QueueFull { queued: 4, limit: 4 }));
    assert_eq!(scheduler.queued(Class::Offline), 2);
}

#[test]
fn offline_requests_do_not_count_in_the_expected_wait() {
    let mut scheduler = Scheduler::new(settings());
    for _ in 0..2 {
        scheduler.submit(0, request(Class::Offline, 30, 30)).expect("there is room");
    }
    assert_eq!(scheduler.retry_after(), 0);
}

/// Online requests of many lengths, one after another, and offline work from the start.
fn one_by_one(offline: usize) -> Scenario {
    let mut scenario = Scenario::typical(3, 0, 1);
    scenario.overlap = Overlap::Off;
    scenario.settings.schedule = Schedule::Fair;
    scenario.settings.max_offline_queue = 4096;
    let online = (0..12_u64).map(|index| {
        let (prompt, answer) = (40 + 180 * index as usize, 20 + 16 * index as usize);
        Arrival { at: 12_345_678 * index, prompt, answer, max_new_tokens: answer, ..Arrival::default() }
    });
    let work = Workload::Sharegpt.arrivals(5, offline, 1.0);
    let work = work.into_iter().map(|of| Arrival { at: 0, class: Class::Offline, tenant: 1, ..of });
    scenario.arrivals = online.chain(work).collect();
    scenario.arrivals.sort_by_key(|arrival| arrival.at);
    scenario
}

/// How long a step takes that is filled by a prompt.
fn chunk(scenario: &Scenario) -> Tick {
    let prompt = scenario.settings.max_step_tokens;
    let alone = Arrival { prompt, max_new_tokens: 1, answer: 1, ..Arrival::default() };
    run(&Scenario { arrivals: vec![alone], ..scenario.clone() }).ttft_max
}

#[test]
fn offline_work_fills_idle_steps_and_costs_an_online_request_no_more_than_a_chunk() {
    let (shared, alone) = (one_by_one(700), one_by_one(0));
    let chunk = chunk(&shared);
    let (with, without) = (run(&shared), run(&alone));
    assert_eq!((with.completed, with.offline_completed, without.completed), (712, 700, 12));
    let starts = |report: &Report| [report.ttft.p50, report.ttft.p95, report.ttft.p99, report.ttft_max];
    for (with, without) in starts(&with).into_iter().zip(starts(&without)) {
        assert!(with <= without + chunk, "{with} us to the first token, {without} without offline work");
    }
    let rests = |report: &Report| [report.tpot.p50, report.tpot.p95, report.tpot.p99];
    for (with, without) in rests(&with).into_iter().zip(rests(&without)) {
        assert!(10 * with <= 12 * without, "{with} us a token, {without} without offline work");
    }
    // Online requests keep the machine busy for a tenth of the time.
    let offline = run(&Scenario { arrivals: only(&shared, Class::Offline), ..shared });
    assert!(with.end < offline.end * 6 / 5, "{} us, {} without online requests", with.end, offline.end);
}

fn only(scenario: &Scenario, class: Class) -> Vec<Arrival> {
    scenario.arrivals.iter().filter(|arrival| arrival.class == class).cloned().collect()
}

/// Streams without a gap, which use half of what the machine can do: offline work is done all the same.
#[test]
fn offline_work_is_done_beside_online_streams_that_never_end() {
    let mut scenario = one_by_one(0);
    let stream = |index: u64| Arrival {
        at: 40_000 * index,
        prompt: 64,
        max_new_tokens: 4_000,
        answer: 4_000,
        tenant: 2,
        ..Arrival::default()
    };
    let offline = |index: u64| Arrival {
        at: 1_000_000 + index,
        prompt: 300,
        max_new_tokens: 50,
        answer: 50,
        class: Class::Offline,
        ..Arrival::default()
    };
    scenario.arrivals = (0..4).map(stream).chain((0..30).map(offline)).collect();
    let report = run(&scenario);
    let alone = run(&Scenario { arrivals: only(&scenario, Class::Online), ..scenario.clone() });
    assert_eq!((report.completed, report.offline_completed), (34, 30));
    assert!(report.offline_end < alone.end, "{report:#?}");
    assert!(10 * report.tpot.p99 <= 12 * alone.tpot.p99, "{report:#?} {alone:#?}");
    // Gaps with an offline prompt in them are few.
    assert!(10 * report.itl.p95 <= 12 * alone.itl.p95, "{report:#?} {alone:#?}");
}
