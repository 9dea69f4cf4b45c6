//! A slower tier of storage: keeps what became findable, and gives some of it back, late and not all of it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Rng;
use super::device::Device;
use super::rng::mix;
use crate::{Scheduler, SequenceId, Tick};

/// A slower tier of storage.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tier {
    /// At most so long is a sequence held while its blocks are read. Zero: there is no such tier.
    pub delay: Tick,
    /// One in so many blocks cannot be read back; zero for none.
    pub loss_one_in: u64,
}

/// The tier while the world runs.
#[derive(Debug)]
pub(super) struct Storage {
    tier: Tier,
    rng: Rng,
    /// By group and key, the prints of a block.
    content: BTreeMap<(usize, u128), Vec<u64>>,
    /// Who is held, and until when.
    held: BTreeMap<SequenceId, Tick>,
    /// Who was, ever.
    ever_held: BTreeSet<SequenceId>,
    pub(super) restored: u64,
}

impl Storage {
    /// Nothing is kept yet.
    pub(super) fn new(tier: &Tier, seed: u64) -> Self {
        let (content, held, ever_held, restored) = Default::default();
        Self { tier: tier.clone(), rng: Rng::new(mix(seed ^ 0x57)), content, held, ever_held, restored }
    }

    /// Writes down what became findable.
    pub(super) fn keep(&mut self, scheduler: &mut Scheduler, device: &Device) {
        if self.tier.delay == 0 {
            return;
        }
        for sealed in scheduler.sealed(usize::MAX) {
            let prints = device.block(sealed.group, sealed.block);
            let before = self.content.insert((sealed.group, sealed.key), prints.clone());
            assert!(before.is_none_or(|before| before == prints), "one key, and two contents");
        }
    }

    /// Holds a sequence if something is stored for it.
    pub(super) fn fetch(&mut self, scheduler: &mut Scheduler, id: SequenceId, now: Tick) {
        if self.tier.delay == 0 || self.held.contains_key(&id) {
            return;
        }
        let content = &self.content;
        let absent = scheduler.absent(id, |group, key| content.contains_key(&(group, key)));
        if absent.is_empty() {
            return;
        }
        scheduler.hold(id);
        assert!(scheduler.is_held(id), "what waits can be held");
        self.ever_held.insert(id);
        self.held.insert(id, now + 1 + self.rng.below(self.tier.delay));
    }

    /// True if the sequence was ever held.
    pub(super) fn has_held(&self, id: SequenceId) -> bool {
        self.ever_held.contains(&id)
    }

    /// When the next sequence is to be released.
    pub(super) fn next(&self) -> Option<Tick> {
        self.held.values().copied().min()
    }

    /// Puts what was read where the scheduler wants it, and releases those that waited for it.
    pub(super) fn load(&mut self, scheduler: &mut Scheduler, device: &mut Device, now: Tick) {
        let due: Vec<_> = self.held.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).collect();
        for id in due {
            self.held.remove(&id);
            let (content, salt, one_in) = (&self.content, self.rng.draw(), self.tier.loss_one_in);
            let is_lost = |key: u128| one_in > 0 && mix(key as u64 ^ salt).is_multiple_of(one_in);
            let has = |group, key| content.contains_key(&(group, key)) && !is_lost(key);
            for restored in scheduler.restore(id, has) {
                assert!(!is_lost(restored.key), "what was not read is not restored");
                device.fill(restored.group, restored.block, &content[&(restored.group, restored.key)]);
                self.restored += 1;
            }
            scheduler.release_hold(id);
            scheduler.audit();
        }
    }
}
