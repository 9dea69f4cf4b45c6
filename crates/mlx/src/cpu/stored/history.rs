//! What routers chose, and which experts are worth reading ahead of it.
//!
//! Invariant: pure; what is read ahead and the layer in progress take half of the memory at most.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::lru::Key;

/// One expert in so many of a layer at most chosen together says something of the next layer.
const LEARNED_SHARE: usize = 4;
/// A follower is likely after one in so many of the chosen experts.
const VOTES_SHARE: usize = 4;

/// The layers with experts, in the order in which they compute.
#[derive(Default)]
pub(super) struct History {
    layers: Vec<Layer>,
    /// By the number of a stack.
    stacks: Vec<Stack>,
}

struct Stack {
    layer: usize,
    experts: usize,
    expert_bytes: u64,
}

struct Layer {
    name: String,
    stacks: Vec<u32>,
    /// Of these stacks, those that computed with `chosen`.
    computed: Vec<u32>,
    /// The experts of the step in progress, or the last one.
    chosen: Vec<u32>,
    /// By an expert of this layer: those of the next one, the last time that it was chosen.
    followers: BTreeMap<u32, Vec<u32>>,
}

impl History {
    /// Numbers a stack. Those of one layer have experts in common.
    pub(super) fn add_stack(&mut self, layer: &str, experts: usize, expert_bytes: u64) -> u32 {
        let number = self.stacks.len() as u32;
        let known = self.layers.iter().position(|other| other.name == layer);
        let at = known.unwrap_or(self.layers.len());
        if known.is_none() {
            self.layers.push(Layer {
                name: layer.to_owned(),
                stacks: Vec::new(),
                computed: Vec::new(),
                chosen: Vec::new(),
                followers: BTreeMap::new(),
            });
        }
        if let Some(layer) = self.layers.get_mut(at) {
            layer.stacks.push(number);
        }
        self.stacks.push(Stack { layer: at, experts, expert_bytes });
        number
    }

    /// A stack computes with these experts. With the first one of a layer: what to read ahead, the most certain first.
    pub(super) fn used(&mut self, stack: u32, experts: &[u32], limit_bytes: u64) -> Option<Vec<Key>> {
        let &Stack { layer: at, experts: all, .. } = self.stacks.get(stack as usize)?;
        let layer = self.layers.get_mut(at)?;
        let is_new = layer.computed.is_empty() || layer.computed.contains(&stack);
        if !is_new && layer.chosen == experts {
            layer.computed.push(stack);
            return None;
        }
        layer.chosen = experts.to_vec();
        layer.computed = vec![stack];
        self.learn(at, experts, all);
        Some(self.ahead(at, stack, limit_bytes))
    }

    /// The layer before chose these followers.
    fn learn(&mut self, at: usize, experts: &[u32], all: usize) {
        let before = at.checked_sub(1).unwrap_or(self.layers.len() - 1);
        let Some(before) = self.layers.get_mut(before) else { return };
        let is_few = |chosen: usize| chosen * LEARNED_SHARE <= all;
        if !is_few(experts.len()) || !is_few(before.chosen.len()) {
            return;
        }
        for expert in before.chosen.clone() {
            before.followers.insert(expert, experts.to_vec());
        }
    }

    /// The layer's experts in its other stacks, then those that the next layer likely chooses.
    fn ahead(&self, at: usize, first: u32, limit_bytes: u64) -> Vec<Key> {
        let Some(layer) = self.layers.get(at) else { return Vec::new() };
        let in_layer = layer.chosen.len() as u64 * self.expert_bytes(layer);
        let Some(mut room) = (limit_bytes / 2).checked_sub(in_layer) else { return Vec::new() };
        let others = layer.stacks.iter().filter(|stack| **stack != first);
        let mut ahead: Vec<Key> =
            others.flat_map(|stack| layer.chosen.iter().map(|expert| (*stack, *expert))).collect();
        let Some(next) = self.layers.get((at + 1) % self.layers.len()) else { return ahead };
        for expert in layer.likely_followers() {
            let Some(left) = room.checked_sub(self.expert_bytes(next)) else { break };
            room = left;
            ahead.extend(next.stacks.iter().map(|stack| (*stack, expert)));
        }
        ahead
    }

    /// Bytes of one expert in all stacks of a layer.
    fn expert_bytes(&self, layer: &Layer) -> u64 {
        let stacks = layer.stacks.iter().filter_map(|stack| self.stacks.get(*stack as usize));
        stacks.map(|stack| stack.expert_bytes).sum()
    }
}

impl Layer {
    /// Experts of the next layer that a part of the chosen ones was followed by, as many as are chosen here at most.
    fn likely_followers(&self) -> Vec<u32> {
        let mut votes: BTreeMap<u32, usize> = BTreeMap::new();
        for follower in self.chosen.iter().filter_map(|expert| self.followers.get(expert)).flatten() {
            *votes.entry(*follower).or_default() += 1;
        }
        let mut likely: Vec<(Reverse<usize>, u32)> = votes
            .into_iter()
            .filter(|(_, votes)| votes * VOTES_SHARE >= self.chosen.len())
            .map(|(expert, votes)| (Reverse(votes), expert))
            .collect();
        likely.sort_unstable();
        likely.into_iter().take(self.chosen.len()).map(|(_, expert)| expert).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two layers of two stacks with 16 experts of ten bytes.
    fn history() -> History {
        let mut history = History::default();
        for layer in ["a", "a", "b", "b"] {
            history.add_stack(layer, 16, 10);
        }
        history
    }

    #[test]
    fn the_other_stacks_of_a_layer_are_read_ahead_once() {
        let mut history = history();
        assert_eq!(history.used(0, &[3, 5], 1000), Some(vec![(1, 3), (1, 5)]));
        assert_eq!(history.used(1, &[3, 5], 1000), None);
    }

    #[test]
    fn what_followed_an_expert_is_read_ahead_of_its_layer() {
        let mut history = history();
        let mut pass = |of_a: &[u32], of_b: &[u32]| {
            let ahead = history.used(0, of_a, 1000);
            history.used(1, of_a, 1000);
            history.used(2, of_b, 1000);
            history.used(3, of_b, 1000);
            ahead.unwrap()
        };
        pass(&[3, 5], &[7, 8]);
        pass(&[4], &[9]);
        assert_eq!(pass(&[5], &[7]), [(1, 5), (2, 7), (3, 7)]);
        assert_eq!(pass(&[4], &[1]), [(1, 4), (2, 9), (3, 9)]);
    }

    #[test]
    fn half_of_the_memory_bounds_what_is_read_ahead() {
        let mut history = history();
        for (stack, experts) in [(0, [1, 2]), (1, [1, 2]), (2, [3, 4]), (3, [3, 4])] {
            history.used(stack, &experts, 1000);
        }
        // The layer takes 40 bytes, and each expert of the next one 20.
        let mut bytes_ahead = |limit| {
            history.used(1, &[9], limit);
            history.used(0, &[1, 2], limit).unwrap().len()
        };
        assert_eq!([70, 80, 119, 120, 160].map(&mut bytes_ahead), [0, 2, 2, 4, 6]);
    }

    /// After a prompt that needs all experts nothing is likely.
    #[test]
    fn steps_of_most_experts_teach_nothing() {
        let mut history = history();
        let all: Vec<u32> = (0..16).collect();
        for stack in 0..4 {
            history.used(stack, &all, 10_000);
        }
        assert_eq!(history.used(0, &[1], 10_000), Some(vec![(1, 1)]));
    }
}
