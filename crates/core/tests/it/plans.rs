//! What the scheduler decides, step by step, in situations worth knowing by name.

#![allow(clippy::expect_used)]

use std::collections::VecDeque;

use expect_test::{Expect, expect};
use omnibus_core::{
    CacheGroup, Event, Outcome, Plan, PrefixCache, Rejection, Request, Schedule, Scheduler, SequenceId,
    SequenceOutput, Settings, Stop, SwapSettings, TokenSource, Tuning,
};
use omnibus_kv::CacheKind;

const FULL: CacheKind = CacheKind::Full;

/// Room for everything, in blocks of four.
fn settings(groups: &[(CacheKind, u32)]) -> Settings {
    Settings {
        block_size: 4,
        groups: groups.iter().map(|&(kind, blocks)| CacheGroup::of_kind(kind, blocks)).collect(),
        max_sequences: 8,
        max_step_tokens: 16,
        max_queue: 8,
        max_offline_queue: 8,
        max_context: 64,
        max_span_tokens: 64,
        schedule: Schedule::Fcfs,
        tuning: Tuning::default(),
        prefix_cache: PrefixCache::On,
        cache_events: omnibus_core::CacheEvents::Ignored,
        session_ttl: 1_000,
        swap: SwapSettings::default(),
    }
}

/// A scheduler, its plans in flight, and what was printed so far.
struct Stage {
    scheduler: Scheduler,
    flights: VecDeque<Plan>,
    printed: String,
}

impl Stage {
    fn new(settings: Settings) -> Self {
        Self { scheduler: Scheduler::new(settings), flights: VecDeque::new(), printed: String::new() }
    }

    /// A prompt of its own: no two numbers begin alike.
    fn ask(&mut self, number: u32, prompt: usize, max_new_tokens: usize) -> SequenceId {
        let prompt = (0..prompt as u32).map(|at| number * 100 + at).collect();
        self.scheduler.submit(0, Request::new(prompt, max_new_tokens)).expect("it fits")
    }

    fn begin(&mut self) {
        let plan = self.scheduler.plan(0);
        let begun = self.scheduler.apply(&plan);
        self.printed += &format!("begin {}\n", print_plan(&plan));
        self.print_events(&begun.events);
        if !plan.scheduled.is_empty() {
            self.flights.push_back(plan);
        }
        self.scheduler.audit();
    }

    fn commit(&mut self) {
        self.commit_with(|_| SequenceOutput::token(1, Stop::No));
    }

    fn commit_with(&mut self, row: impl Fn(SequenceId) -> SequenceOutput) {
        let plan = self.flights.pop_front().expect("a step is in flight");
        let outputs = plan
            .scheduled
            .iter()
            .filter(|scheduled| scheduled.samples > 0)
            .map(|scheduled| row(scheduled.sequence))
            .collect();
        let events = self.scheduler.commit(Outcome { plan: plan.id, outputs, took: None });
        self.print_events(&events);
        self.scheduler.audit();
    }

    fn fail(&mut self) {
        self.flights.clear();
        let events = self.scheduler.fail_steps();
        self.printed += &format!("fail, then at most {:?}\n", self.scheduler.limits());
        self.print_events(&events);
        self.scheduler.audit();
    }

    fn run(&mut self) {
        while !self.scheduler.is_idle() {
            self.begin();
            self.commit();
        }
    }

    fn print_events(&mut self, events: &[Event]) {
        for event in events {
            match event {
                Event::Token { .. } => {}
                Event::Finished { sequence, reason } => {
                    self.printed += &format!("  #{} {reason:?}\n", sequence.0);
                }
                Event::Failed { sequence, failure } => {
                    self.printed += &format!("  #{} failed: {failure:?}\n", sequence.0);
                }
            }
        }
    }

    fn table(&mut self, id: SequenceId, group: usize) {
        let table = self.scheduler.block_table(id, group);
        let blocks: Vec<u32> = table.blocks.iter().map(|block| block.0).collect();
        self.printed += &format!("  #{} group {group}: from {} {blocks:?}\n", id.0, table.freed_blocks);
    }

    fn check(self, expect: Expect) {
        expect.assert_eq(&self.printed);
    }
}

fn print_plan(plan: &Plan) -> String {
    let preempt = plan.preempt.iter().map(|preempted| format!("preempt {}", preempted.sequence.0));
    let scheduled = plan.scheduled.iter().map(|scheduled| {
        let flight =
            if matches!(scheduled.input, TokenSource::InFlight { .. }) { " from flight" } else { "" };
        let sample = if scheduled.samples > 0 { " sample" } else { "" };
        let cached =
            if scheduled.cached > 0 { format!(" cached {}", scheduled.cached) } else { String::new() };
        format!("#{} {:?}{cached}{flight}{sample}", scheduled.sequence.0, scheduled.positions)
    });
    preempt.chain(scheduled).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_long_prompt_is_chunked_and_decoding_continues() {
    let mut stage = Stage::new(Settings { max_step_tokens: 5, ..settings(&[(FULL, 8)]) });
    stage.ask(1, 2, 4);
    stage.ask(2, 9, 1);
    stage.run();
    stage.check(expect![[r#"
        begin #0 0..2 sample, #1 0..3
        begin #0 2..3 sample, #1 3..7
        begin #0 3..4 sample, #1 7..9 sample
          #1 Length
        begin #0 4..5 sample
          #0 Length
    "#]]);
}

#[test]
fn the_youngest_is_preempted_and_recomputed() {
    let mut stage = Stage::new(settings(&[(FULL, 4)]));
    stage.ask(1, 7, 4);
    stage.ask(2, 7, 4);
    stage.run();
    stage.check(expect![[r#"
        begin #0 0..7 sample, #1 0..7 sample
        begin #0 7..8 sample, #1 7..8 sample
        begin preempt 1, #0 8..9 sample
        begin #0 9..10 sample
          #0 Length
        begin #1 4..9 cached 4 sample
        begin #1 9..10 sample
          #1 Length
    "#]]);
}

#[test]
fn no_sequence_is_preempted_for_blocks_that_a_step_in_flight_frees() {
    let mut stage = Stage::new(settings(&[(FULL, 4)]));
    stage.ask(1, 7, 4);
    stage.ask(2, 3, 2);
    stage.ask(3, 3, 4);
    stage.begin();
    stage.begin();
    stage.commit();
    stage.begin();
    stage.commit();
    stage.begin();
    stage.check(expect![[r#"
        begin #0 0..7 sample, #1 0..3 sample, #2 0..3 sample
        begin #0 7..8 from flight sample, #1 3..4 from flight sample, #2 3..4 from flight sample
        begin 
          #1 Length
        begin #0 8..9 sample
    "#]]);
}

#[test]
fn a_sequence_is_admitted_beside_others_only_with_blocks_for_its_whole_prompt() {
    let mut stage = Stage::new(Settings { max_step_tokens: 11, ..settings(&[(FULL, 5)]) });
    stage.ask(1, 7, 3);
    stage.ask(2, 14, 1);
    stage.run();
    stage.check(expect![[r#"
        begin #0 0..7 sample
        begin #0 7..8 sample
        begin #0 8..9 sample
          #0 Length
        begin #1 0..11
        begin #1 11..14 sample
          #1 Length
    "#]]);
}

#[test]
fn no_sequence_overtakes_one_that_is_being_preempted() {
    let mut stage = Stage::new(settings(&[(FULL, 4)]));
    let oldest = stage.ask(1, 7, 9);
    stage.ask(2, 7, 9);
    stage.begin();
    stage.ask(3, 1, 1);
    stage.begin();
    stage.commit();
    stage.begin();
    stage.scheduler.cancel(oldest);
    stage.begin();
    stage.commit();
    stage.begin();
    stage.check(expect![[r#"
        begin #0 0..7 sample, #1 0..7 sample
        begin #0 7..8 from flight sample, #1 7..8 from flight sample
        begin preempt 1
        begin 
        begin #1 8..9 cached 8 sample, #2 0..1 sample
    "#]]);
}

#[test]
fn a_step_is_planned_before_the_last_one_is_read() {
    let mut stage = Stage::new(settings(&[(FULL, 8)]));
    stage.ask(1, 3, 3);
    stage.begin();
    stage.begin();
    stage.commit();
    stage.begin();
    stage.commit();
    stage.begin();
    stage.commit();
    stage.check(expect![[r#"
        begin #0 0..3 sample
        begin #0 3..4 from flight sample
        begin #0 4..5 from flight sample
        begin 
          #0 Length
    "#]]);
}

#[test]
fn samples_after_the_end_are_dropped_and_their_blocks_stay_until_then() {
    let mut stage = Stage::new(settings(&[(FULL, 8)]));
    stage.ask(1, 3, 9);
    stage.begin();
    stage.begin();
    stage.commit_with(|_| SequenceOutput::token(2, Stop::Yes));
    assert_eq!(stage.scheduler.stats().groups[0].used, 1, "a step in flight uses it");
    stage.commit();
    assert_eq!(stage.scheduler.stats().groups[0].used, 0);
    assert!(stage.scheduler.is_idle());
    stage.check(expect![[r#"
        begin #0 0..3 sample
        begin #0 3..4 from flight sample
          #0 Stop
    "#]]);
}

#[test]
fn a_sequence_cancelled_in_flight_ends_at_once_and_frees_blocks_later() {
    let mut stage = Stage::new(settings(&[(FULL, 8)]));
    let id = stage.ask(1, 3, 9);
    stage.begin();
    assert!(stage.scheduler.cancel(id).is_some());
    assert!(stage.scheduler.cancel(id).is_none(), "once");
    assert!(stage.scheduler.cancel(SequenceId(77)).is_none(), "never there");
    assert_eq!(stage.scheduler.tokens(id).len(), 3, "the engine may still look");
    stage.commit();
    assert!(stage.scheduler.is_idle());
    stage.check(expect![[r#"
        begin #0 0..3 sample
    "#]]);
}

#[test]
fn equal_prefixes_are_computed_once_and_stored_once() {
    let mut stage = Stage::new(settings(&[(FULL, 8)]));
    let first = stage.ask(1, 9, 3);
    stage.begin();
    stage.commit();
    let second = stage.ask(1, 8, 2);
    let salted = Request { cache_salt: 1, ..Request::new((100..109).collect(), 1) };
    stage.scheduler.submit(0, salted).expect("it fits");
    stage.begin();
    stage.table(first, 0);
    stage.table(second, 0);
    stage.check(expect![[r#"
        begin #0 0..9 sample
        begin #0 9..10 sample, #1 7..8 cached 7 sample, #2 0..9 sample
          #0 group 0: from 0 [0, 1, 2]
          #1 group 0: from 0 [0, 3]
    "#]]);
}

#[test]
fn a_conversation_resumes_after_its_answer() {
    let mut stage = Stage::new(settings(&[(FULL, 8)]));
    let request = |tokens: Vec<u32>| Request::new(tokens, 6);
    stage.scheduler.submit(0, request(vec![9, 9, 9])).expect("it fits");
    stage.run();
    let history = [[9; 3].as_slice(), &[1; 6], &[5, 5]].concat();
    stage.scheduler.submit(0, request(history)).expect("it fits");
    stage.begin();
    stage.check(expect![[r#"
        begin #0 0..3 sample
        begin #0 3..4 sample
        begin #0 4..5 sample
        begin #0 5..6 sample
        begin #0 6..7 sample
        begin #0 7..8 sample
          #0 Length
        begin #1 8..11 cached 8 sample
    "#]]);
}

#[test]
fn the_end_of_a_sequence_is_evicted_before_its_beginning() {
    let mut stage = Stage::new(settings(&[(FULL, 5)]));
    stage.ask(1, 16, 1);
    stage.run();
    stage.ask(2, 12, 1);
    stage.run();
    stage.ask(1, 16, 1);
    stage.begin();
    stage.check(expect![[r#"
        begin #0 0..16 sample
          #0 Length
        begin #1 0..12 sample
          #1 Length
        begin #2 8..16 cached 8 sample
    "#]]);
}

/// Three steps of a sequence that begins with eleven tokens, and what it holds in a group of this kind in each.
fn check_held(kind: CacheKind, expected: Expect) {
    let mut stage = Stage::new(settings(&[(FULL, 8), (kind, 4)]));
    let id = stage.ask(1, 11, 4);
    for _ in 0..3 {
        stage.begin();
        stage.table(id, 1);
        stage.commit();
    }
    stage.check(expected);
}

#[test]
fn blocks_outside_a_window_are_freed() {
    check_held(
        CacheKind::SlidingWindow { tokens: 5, sinks: 0 },
        expect![[r#"
            begin #0 0..11 sample
              #0 group 1: from 0 [0, 1, 2]
            begin #0 11..12 sample
              #0 group 1: from 1 [1, 2]
            begin #0 12..13 sample
              #0 group 1: from 2 [2, 3]
        "#]],
    );
}

#[test]
fn an_unquantized_prefix_is_held_until_it_is_passed() {
    check_held(
        CacheKind::UnquantizedPrefix { tokens: 12 },
        expect![[r#"
            begin #0 0..11 sample
              #0 group 1: from 0 [0, 1, 2]
            begin #0 11..12 sample
              #0 group 1: from 0 [0, 1, 2]
            begin #0 12..13 sample
              #0 group 1: from 3 []
        "#]],
    );
}

#[test]
fn a_prefix_is_reused_only_where_its_window_is_cached() {
    let mut stage = Stage::new(settings(&[(FULL, 9), (CacheKind::SlidingWindow { tokens: 4, sinks: 0 }, 3)]));
    stage.ask(1, 17, 1);
    stage.run();
    stage.ask(1, 12, 1);
    stage.run();
    stage.ask(1, 17, 1);
    stage.begin();
    stage.check(expect![[r#"
        begin #0 0..12
        begin #0 12..17 sample
          #0 Length
        begin #1 0..12 sample
          #1 Length
        begin #2 12..17 cached 12 sample
    "#]]);
}

#[test]
fn a_state_is_reused_at_its_checkpoint() {
    let mut stage = Stage::new(settings(&[(FULL, 8), (CacheKind::State, 3)]));
    stage.ask(1, 9, 2);
    stage.ask(1, 9, 1);
    stage.ask(1, 9, 1);
    stage.run();
    stage.check(expect![[r#"
        begin #0 0..8, #1 0..7
        begin #0 8..9 sample, #1 7..8, #2 0..8
        begin #0 9..10 sample, #1 8..9 sample
          #0 Length
          #1 Length
        begin #2 8..9 sample
          #2 Length
    "#]]);
}

#[test]
fn the_faulty_sequence_is_found_and_the_others_continue() {
    let mut stage = Stage::new(settings(&[(FULL, 16)]));
    let [_, poison, _] = [1, 2, 3].map(|number| stage.ask(number, 3, 2));
    while !stage.scheduler.is_idle() && stage.printed.len() < 2000 {
        stage.begin();
        match stage.flights[0].scheduled.iter().any(|scheduled| scheduled.sequence == poison) {
            true => stage.fail(),
            false => stage.commit(),
        }
    }
    stage.check(expect![[r#"
        begin #0 0..3 sample, #1 0..3 sample, #2 0..3 sample
        fail, then at most StepLimits { sequences: 1, tokens: 4 }
        begin #0 0..3 sample
        begin #1 0..3 sample
        fail, then at most StepLimits { sequences: 1, tokens: 4 }
        begin #1 0..3 sample
        fail, then at most StepLimits { sequences: 1, tokens: 4 }
          #1 failed: Step
        begin #2 0..3 sample
        begin #0 0..4 sample
          #0 Length
        begin #2 3..4 sample
          #2 Length
    "#]]);
}

#[test]
fn a_row_that_fails_ends_its_sequence_alone() {
    let mut stage = Stage::new(settings(&[(FULL, 8)]));
    let [bad, _] = [1, 2].map(|number| stage.ask(number, 3, 2));
    stage.begin();
    stage.begin();
    let row = |id| {
        if id == bad { SequenceOutput::Failed } else { SequenceOutput::token(1, Stop::No) }
    };
    stage.commit_with(row);
    stage.commit();
    stage.check(expect![[r#"
        begin #0 0..3 sample, #1 0..3 sample
        begin #0 3..4 from flight sample, #1 3..4 from flight sample
          #0 failed: Sampling
          #1 Length
    "#]]);
}

#[test]
fn a_deadline_passes_in_the_queue_and_in_flight() {
    let mut stage = Stage::new(Settings { max_sequences: 1, ..settings(&[(FULL, 8)]) });
    for _ in 0..2 {
        let request = Request { deadline: Some(0), ..Request::new(vec![1, 2], 2) };
        stage.scheduler.submit(0, request).expect("it fits");
    }
    stage.begin();
    assert!(stage.scheduler.is_idle());
    stage.check(expect![[r#"
        begin 
          #0 Deadline
          #1 Deadline
    "#]]);
}

#[test]
fn requests_that_cannot_run_or_be_queued_are_rejected() {
    let mut scheduler = Scheduler::new(Settings { max_queue: 1, ..settings(&[(FULL, 4)]) });
    assert_eq!(scheduler.max_sequence_tokens(), 17, "the last token is sampled and never computed");
    let mut submit = |prompt, new| scheduler.submit(0, Request::new(vec![1; prompt], new)).err();
    assert_eq!(submit(0, 1), Some(Rejection::Empty));
    assert_eq!(submit(1, 0), Some(Rejection::Empty));
    assert_eq!(submit(9, 9), Some(Rejection::TooLong { needed: 18, total: 17 }));
    assert_eq!(submit(9, 8), None);
    assert_eq!(submit(1, 1), Some(Rejection::QueueFull { queued: 1, limit: 1 }));
}

#[test]
#[should_panic(expected = "before the state changes")]
fn a_stale_plan_is_not_applied() {
    let mut scheduler = Scheduler::new(settings(&[(FULL, 4)]));
    let id = scheduler.submit(0, Request::new(vec![1], 1)).expect("it fits");
    let plan = scheduler.plan(0);
    scheduler.cancel(id);
    scheduler.apply(&plan);
}
