//! Random worlds: clients that come and go, loads that fail, models that are unloaded, a clock.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use proptest::prelude::*;

use super::super::*;

const BUDGET: u64 = 10;

#[derive(Debug, Clone)]
enum Event {
    Arrive(usize),
    Release(usize),
    Leave(usize),
    EndLoad(usize, bool),
    EndUnload(usize),
    Unload(usize),
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0usize..5).prop_map(Event::Arrive),
        4 => any::<usize>().prop_map(Event::Release),
        1 => any::<usize>().prop_map(Event::Leave),
        3 => (any::<usize>(), prop::bool::weighted(0.2)).prop_map(|(at, fails)| Event::EndLoad(at, fails)),
        3 => any::<usize>().prop_map(Event::EndUnload),
        1 => (0usize..5).prop_map(Event::Unload),
        3 => (0u64..12).prop_map(Event::Wait),
    ]
}

/// What the caller of a table knows.
struct World {
    table: Table,
    now: Duration,
    loading: Vec<ModelId>,
    unloading: Vec<ModelId>,
    leases: Vec<ModelId>,
    waiting: HashMap<WaiterId, ModelId>,
    ending: HashSet<WaiterId>,
    bytes: Vec<u64>,
}

impl World {
    fn new(models: &[(u64, bool, Option<u64>)]) -> Self {
        let policy = |pinned: bool, ttl: Option<u64>| Policy { pinned, ttl: ttl.map(Duration::from_secs) };
        let rows = models.iter().map(|(bytes, pinned, ttl)| (*bytes, policy(*pinned, *ttl)));
        Self {
            table: Table::new(rows, Some(BUDGET), Duration::from_secs(10), 50),
            now: Duration::ZERO,
            loading: Vec::new(),
            unloading: Vec::new(),
            leases: Vec::new(),
            waiting: HashMap::new(),
            ending: HashSet::new(),
            bytes: models.iter().map(|(bytes, ..)| *bytes).collect(),
        }
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Arrive(model) => match self.table.arrive(ModelId(*model), self.now) {
                Arrival::Granted => self.leases.push(ModelId(*model)),
                Arrival::Waits(waiter) => _ = self.waiting.insert(waiter, ModelId(*model)),
                Arrival::Refused(_) => {}
            },
            Event::Release(at) if !self.leases.is_empty() => {
                let model = self.leases.swap_remove(at % self.leases.len());
                self.table.release(model, self.now);
            }
            Event::Leave(at) if !self.waiting.is_empty() => {
                let mut all: Vec<_> = self.waiting.keys().copied().collect();
                all.sort();
                let waiter = all[at % all.len()];
                self.waiting.remove(&waiter);
                self.table.leave(waiter);
            }
            Event::EndLoad(at, fails) if !self.loading.is_empty() => {
                let model = self.loading.swap_remove(at % self.loading.len());
                match fails {
                    true => self.table.failed(model, "broken", self.now),
                    false => self.table.loaded(model, self.bytes[model.0], self.now),
                }
            }
            Event::EndUnload(at) if !self.unloading.is_empty() => {
                let model = self.unloading.swap_remove(at % self.unloading.len());
                self.table.unloaded(model);
            }
            Event::Unload(model) => self.ending.extend(self.table.unload(ModelId(*model))),
            Event::Wait(seconds) => self.now += Duration::from_secs(*seconds),
            Event::Release(_) | Event::Leave(_) | Event::EndLoad(..) | Event::EndUnload(_) => {}
        }
        for action in self.table.advance(self.now) {
            self.act(action);
        }
        self.audit();
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Load(model) => {
                assert!(
                    !self.loading.contains(&model) && !self.unloading.contains(&model),
                    "one load at a time"
                );
                self.loading.push(model);
            }
            Action::Unload(model) => {
                assert!(!self.leases.contains(&model), "a model with a lease was unloaded");
                assert!(!self.unloading.contains(&model) && !self.loading.contains(&model));
                self.unloading.push(model);
            }
            Action::Grant(model, waiter) => {
                assert_eq!(self.waiting.remove(&waiter), Some(model), "granted to one that does not wait");
                assert!(!self.unloading.contains(&model) && !self.loading.contains(&model));
                self.leases.push(model);
            }
            Action::Refuse(waiter, _) => assert!(self.waiting.remove(&waiter).is_some()),
            Action::Ended(waiter) => assert!(self.ending.remove(&waiter)),
        }
    }

    fn audit(&self) {
        let memory = self.table.memory();
        assert!(memory.taken <= BUDGET, "{} of {BUDGET} bytes", memory.taken);
        for (index, bytes) in self.bytes.iter().enumerate() {
            let residence = self.table.residence(ModelId(index)).unwrap();
            let users = self.leases.iter().filter(|model| model.0 == index).count();
            assert_eq!((residence.bytes, residence.users), (*bytes, users));
            let is_up = matches!(residence.state, State::Ready | State::Draining);
            assert!(users == 0 || is_up, "leases of a model that is {:?}", residence.state);
        }
    }

    /// Everything that was begun ends, and no more comes.
    fn settle(&mut self) {
        for _ in 0..1000 {
            let (event, idle) = match () {
                () if !self.loading.is_empty() => (Event::EndLoad(0, false), false),
                () if !self.unloading.is_empty() => (Event::EndUnload(0), false),
                () if !self.leases.is_empty() => (Event::Release(0), false),
                () => (Event::Wait(1), true),
            };
            self.happen(&event);
            if idle && self.waiting.is_empty() && self.ending.is_empty() {
                return;
            }
        }
        panic!("still waiting: {:?}, {:?}", self.waiting, self.table);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_budget_holds_no_lease_is_broken_and_none_waits_for_ever(
        models in prop::collection::vec((1u64..12, prop::bool::weighted(0.2), prop::option::of(0u64..20)), 5),
        events in prop::collection::vec(event(), 1..200),
    ) {
        let mut world = World::new(&models);
        events.iter().for_each(|event| world.happen(event));
        world.settle();
    }
}
