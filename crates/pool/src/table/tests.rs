//! Scenarios, and random worlds that are audited after every event.

mod worlds;

use super::*;

const GB: u64 = 1 << 30;
const PATIENCE: Duration = Duration::from_secs(10);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A table of models with these gigabytes, and eight for all of them.
fn table(gigabytes: &[u64]) -> Table {
    Table::new(gigabytes.iter().map(|size| (size * GB, Policy::default())), Some(8 * GB), PATIENCE, 100)
}

fn waits(table: &mut Table, model: usize, now: Duration) -> WaiterId {
    match table.arrive(ModelId(model), now) {
        Arrival::Waits(waiter) => waiter,
        other => panic!("{other:?}"),
    }
}

/// Loads a model, whose only user leaves.
fn load_idle(table: &mut Table, model: usize, now: Duration) {
    let waiter = waits(table, model, now);
    assert_eq!(table.advance(now), [Action::Load(ModelId(model))]);
    table.loaded(ModelId(model), table.rows[model].bytes, now);
    assert_eq!(table.advance(now), [Action::Grant(ModelId(model), waiter)]);
    table.release(ModelId(model), now);
}

fn states(table: &Table) -> Vec<State> {
    table.rows.iter().map(|row| row.state.clone()).collect()
}

#[test]
fn a_hundred_that_wait_cause_one_load_and_come_in_their_order() {
    let mut table = table(&[4]);
    let waiters: Vec<_> = (0..100).map(|_| waits(&mut table, 0, at(0))).collect();
    assert_eq!(table.arrive(ModelId(0), at(0)), Arrival::Refused(Refusal::QueueFull));
    assert_eq!(table.advance(at(0)), [Action::Load(ModelId(0))]);
    assert_eq!(table.advance(at(1)), []);
    table.loaded(ModelId(0), 4 * GB, at(2));
    let granted: Vec<_> = waiters.into_iter().map(|waiter| Action::Grant(ModelId(0), waiter)).collect();
    assert_eq!(table.advance(at(2)), granted);
    assert_eq!(table.residence(ModelId(0)).unwrap().users, 100);
    assert_eq!(table.arrive(ModelId(0), at(3)), Arrival::Granted);
}

#[test]
fn the_least_recently_used_idle_model_goes_and_only_then_the_next_loads() {
    let mut table = table(&[4, 4, 4]);
    load_idle(&mut table, 0, at(0));
    load_idle(&mut table, 1, at(1));
    let waiter = waits(&mut table, 2, at(2));
    assert_eq!(table.advance(at(2)), [Action::Unload(ModelId(0))]);
    assert_eq!(table.memory().taken, 8 * GB);
    table.unloaded(ModelId(0));
    assert_eq!(table.advance(at(3)), [Action::Load(ModelId(2))]);
    table.loaded(ModelId(2), 4 * GB, at(4));
    assert_eq!(table.advance(at(4)), [Action::Grant(ModelId(2), waiter)]);
}

#[test]
fn a_small_model_stays_where_a_large_one_makes_the_room() {
    let mut table = table(&[1, 7, 7]);
    load_idle(&mut table, 0, at(0));
    load_idle(&mut table, 1, at(1));
    waits(&mut table, 2, at(2));
    // The small one was used before the large one, whose memory is enough.
    assert_eq!(table.advance(at(2)), [Action::Unload(ModelId(1))]);
    assert_eq!(states(&table)[0], State::Ready);
}

#[test]
fn busy_pinned_and_loading_models_stay_and_patience_ends() {
    let mut table = table(&[4, 4, 4]);
    load_idle(&mut table, 0, at(0));
    table.set_policy(ModelId(0), Policy { pinned: true, ttl: Some(at(1)) });
    load_idle(&mut table, 1, at(0));
    assert_eq!(table.arrive(ModelId(1), at(0)), Arrival::Granted);
    let waiter = waits(&mut table, 2, at(1));
    assert_eq!(table.advance(at(9)), []);
    assert_eq!(table.next_wake(at(9)), Some(at(11)));
    // Its turn has come: the busy model gets no new requests, ends the running one, and goes.
    assert_eq!(table.advance(at(11)), []);
    assert_eq!(states(&table), [State::Ready, State::Draining, State::Unloaded]);
    let back = waits(&mut table, 1, at(12));
    table.release(ModelId(1), at(13));
    assert_eq!(table.advance(at(13)), [Action::Unload(ModelId(1))]);
    table.unloaded(ModelId(1));
    assert_eq!(table.advance(at(14)), [Action::Load(ModelId(2))]);
    table.loaded(ModelId(2), 4 * GB, at(15));
    assert_eq!(table.advance(at(15)), [Action::Grant(ModelId(2), waiter)]);
    // And the other one's, in turn.
    assert_eq!(table.advance(at(22)), []);
    assert_eq!(states(&table)[2], State::Draining);
    table.release(ModelId(2), at(23));
    assert_eq!(table.advance(at(23)), [Action::Unload(ModelId(2))]);
    table.unloaded(ModelId(2));
    assert_eq!(table.advance(at(24)), [Action::Load(ModelId(1))]);
    table.loaded(ModelId(1), 4 * GB, at(25));
    assert_eq!(table.advance(at(25)), [Action::Grant(ModelId(1), back)]);
}

#[test]
fn a_model_that_drains_stays_where_its_memory_is_needed_no_more() {
    let mut table = table(&[8, 8]);
    load_idle(&mut table, 0, at(0));
    assert_eq!(table.arrive(ModelId(0), at(0)), Arrival::Granted);
    let other = waits(&mut table, 1, at(0));
    assert_eq!(table.advance(at(10)), []);
    let back = waits(&mut table, 0, at(11));
    table.leave(other);
    assert_eq!(table.advance(at(12)), [Action::Grant(ModelId(0), back)]);
    assert_eq!(states(&table), [State::Ready, State::Unloaded]);
}

#[test]
fn what_cannot_fit_is_refused_with_numbers() {
    let mut table = table(&[5, 4, 9]);
    load_idle(&mut table, 0, at(0));
    table.set_policy(ModelId(0), Policy { pinned: true, ttl: None });
    let (second, third) = (waits(&mut table, 1, at(1)), waits(&mut table, 2, at(1)));
    let refused = |waiter, needed: u64| {
        let refusal = Refusal::TooLarge { needed: needed * GB, budget: 8 * GB, pinned: 5 * GB };
        Action::Refuse(waiter, refusal)
    };
    assert_eq!(table.advance(at(1)), [refused(second, 4), refused(third, 9)]);
    assert_eq!(states(&table)[0], State::Ready);
}

#[test]
fn a_load_that_fails_answers_its_waiters_and_is_tried_again_after_a_pause() {
    let mut table = table(&[4, 4]);
    load_idle(&mut table, 1, at(0));
    for pause in [1, 2, 4] {
        let now = at(100 * pause);
        let waiter = waits(&mut table, 0, now);
        assert_eq!(table.advance(now), [Action::Load(ModelId(0))]);
        table.failed(ModelId(0), "no such file", now);
        let refusal = Refusal::Failed { why: "no such file".to_owned(), retry_in: at(pause) };
        assert_eq!(table.advance(now), [Action::Refuse(waiter, refusal.clone())]);
        assert_eq!(table.arrive(ModelId(0), now), Arrival::Refused(refusal));
    }
    assert_eq!(states(&table)[1], State::Ready);
}

#[test]
fn a_time_to_live_begins_at_the_last_end_of_use() {
    let mut table = table(&[4]);
    table.set_policy(ModelId(0), Policy { pinned: false, ttl: Some(at(5)) });
    load_idle(&mut table, 0, at(0));
    assert_eq!(table.next_wake(at(0)), Some(at(5)));
    // A request that arrives in time keeps it, however long it takes.
    assert_eq!(table.arrive(ModelId(0), at(4)), Arrival::Granted);
    assert_eq!(table.advance(at(60)), []);
    table.release(ModelId(0), at(60));
    assert_eq!(table.advance(at(64)), []);
    assert_eq!(table.advance(at(65)), [Action::Unload(ModelId(0))]);
}

#[test]
fn a_time_to_live_without_end_is_none() {
    let mut table = table(&[4]);
    table.set_policy(ModelId(0), Policy { pinned: false, ttl: Some(Duration::MAX) });
    load_idle(&mut table, 0, at(1));
    assert_eq!(table.next_wake(at(2)), None);
    assert_eq!(table.residence(ModelId(0)).unwrap().expires, None);
}

#[test]
fn one_that_is_unloaded_ends_what_runs_and_loads_again_for_what_arrives() {
    let mut table = table(&[4]);
    load_idle(&mut table, 0, at(0));
    assert_eq!(table.arrive(ModelId(0), at(1)), Arrival::Granted);
    let gone = table.unload(ModelId(0)).unwrap();
    let later = waits(&mut table, 0, at(2));
    assert_eq!(table.advance(at(2)), []);
    table.release(ModelId(0), at(3));
    assert_eq!(table.advance(at(3)), [Action::Unload(ModelId(0))]);
    table.unloaded(ModelId(0));
    assert_eq!(table.advance(at(4)), [Action::Ended(gone), Action::Load(ModelId(0))]);
    table.loaded(ModelId(0), 4 * GB, at(5));
    assert_eq!(table.advance(at(5)), [Action::Grant(ModelId(0), later)]);
    table.release(ModelId(0), at(6));
    assert!(table.unload(ModelId(0)).is_some());
    assert_eq!(table.advance(at(6)), [Action::Unload(ModelId(0))]);
    table.unloaded(ModelId(0));
    assert!(table.unload(ModelId(0)).is_none());
}

#[test]
fn one_that_is_unloaded_while_it_loads_serves_its_waiters_first() {
    let mut table = table(&[4]);
    let waiter = waits(&mut table, 0, at(0));
    assert_eq!(table.advance(at(0)), [Action::Load(ModelId(0))]);
    let gone = table.unload(ModelId(0)).unwrap();
    table.loaded(ModelId(0), 4 * GB, at(1));
    assert_eq!(table.advance(at(1)), [Action::Grant(ModelId(0), waiter)]);
    table.release(ModelId(0), at(2));
    assert_eq!(table.advance(at(2)), [Action::Unload(ModelId(0))]);
    table.unloaded(ModelId(0));
    assert_eq!(table.advance(at(2)), [Action::Ended(gone)]);
}

#[test]
fn a_load_goes_on_without_its_last_waiter() {
    let mut table = table(&[4]);
    let waiter = waits(&mut table, 0, at(0));
    assert_eq!(table.advance(at(0)), [Action::Load(ModelId(0))]);
    table.leave(waiter);
    table.loaded(ModelId(0), 3 * GB, at(1));
    assert_eq!(table.advance(at(1)), []);
    assert_eq!(table.memory(), MemoryUse { budget: Some(8 * GB), taken: 3 * GB });
    assert_eq!(table.arrive(ModelId(0), at(2)), Arrival::Granted);
}
