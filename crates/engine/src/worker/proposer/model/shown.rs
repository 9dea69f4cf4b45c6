//! What a network that drafts has seen of a sequence.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use omnibus_kv::{BlockId, BlockTable};

use crate::worker::proposer::Promised;

/// What a network that drafts has seen of a sequence.
#[derive(Default)]
pub(super) struct Shown {
    /// Rows, from the first on, whose keys and values it has.
    pub(super) computed: usize,
    /// Blocks at the beginning that it does not read, because it never had the states of their rows.
    pub(super) skipped_blocks: usize,
    /// Of a draft head, once a step of the sequence was planned.
    states: Option<StatesKept>,
    /// Steps left no states since it was shown something, because the head rested.
    rested: bool,
    /// The blocks that it wrote for this sequence.
    pub(super) blocks: Vec<BlockId>,
    /// Of each full one.
    hashes: Vec<u64>,
    /// Draft tokens behind the computed ones that it has keys and values of, too.
    pub(super) drafted: Vec<u32>,
}

/// The target's hidden states that the device keeps of a sequence.
#[derive(Debug, Clone, Copy)]
pub(super) struct StatesKept {
    /// The first position of which they are there and were not read.
    from: usize,
    /// Position behind the last planned row.
    end: usize,
}

impl Shown {
    /// Draft tokens that were accepted are computed.
    pub(super) fn take_accepted(&mut self, tokens: &[u32]) {
        let behind = tokens.get(self.computed..).unwrap_or_default();
        let accepted = behind.iter().zip(&self.drafted).take_while(|(one, other)| one == other).count();
        self.computed += accepted;
        self.drafted.clear();
    }

    /// Forgets what it wrote to blocks that the sequence has no more.
    pub(super) fn keep_same_blocks(&mut self, table: &BlockTable, block_size: usize) {
        let same = self.blocks.iter().zip(&table.blocks).take_while(|(one, other)| one == other).count();
        self.blocks.truncate(same);
        self.hashes.truncate(same);
        self.computed = self.computed.min(same * block_size);
    }

    /// Counts the blocks that follow and that hold this sequence's tokens already, up to row `end`.
    pub(super) fn find_filled(
        &mut self,
        of: &Promised<'_>,
        end: usize,
        filled: &BTreeMap<BlockId, u64>,
        block_size: usize,
    ) {
        while self.skipped_blocks == 0
            && self.computed == self.hashes.len() * block_size
            && self.computed + block_size <= end
        {
            let hash = self.next_hash(of.tokens, block_size);
            let block = of.table.block(self.hashes.len());
            let Some(block) = block.filter(|block| filled.get(block) == Some(&hash)) else { break };
            self.blocks.truncate(self.hashes.len());
            self.blocks.push(block);
            self.hashes.push(hash);
            self.computed += block_size;
        }
        self.computed = self.computed.min(end);
    }

    /// Keeps the hashes of the blocks that are full.
    pub(super) fn fill(&mut self, of: &Promised<'_>, filled: &mut BTreeMap<BlockId, u64>, block_size: usize) {
        while self.skipped_blocks == 0 && (self.hashes.len() + 1) * block_size <= self.computed {
            let hash = self.next_hash(of.tokens, block_size);
            if let Some(block) = self.blocks.get(self.hashes.len()) {
                filled.insert(*block, hash);
            }
            self.hashes.push(hash);
        }
    }

    fn next_hash(&self, tokens: &[u32], block_size: usize) -> u64 {
        let start = self.hashes.len() * block_size;
        let mut hasher = DefaultHasher::new();
        (self.hashes.last(), tokens.get(start..start + block_size)).hash(&mut hasher);
        hasher.finish()
    }

    /// Counts the states that the steps of the sequence leave on the device.
    pub(super) fn see_plan(&mut self, planned: &std::ops::Range<usize>) {
        let states = self.states.get_or_insert(StatesKept { from: planned.start, end: planned.start });
        if planned.start > states.end {
            // Its keys came from elsewhere.
            states.from = planned.start;
        }
        // After a preemption rows are computed again, and their states with them.
        states.from = states.from.min(planned.start);
        states.end = planned.end;
    }

    /// A step of the sequence leaves no states.
    pub(super) fn rest(&mut self) {
        self.rested = true;
    }

    /// Whether there is a row below `rows` whose state is there, behind those that were missed.
    pub(super) fn can_begin(&self, rows: usize, block_size: usize) -> bool {
        !self.rested || self.states.is_some_and(|states| self.begin(states.from, block_size) < rows)
    }

    /// The row with which the head goes on, where states before `from` are missing: a part of a block was copied with the target's, or
    /// has keys of another sequence; where more are missing, it begins at the next block.
    fn begin(&self, from: usize, block_size: usize) -> usize {
        match from.saturating_sub(self.computed) {
            0 => self.computed,
            missing if missing < block_size && !self.rested => from,
            _ => from.div_ceil(block_size) * block_size,
        }
    }

    /// How many of `rows` need not be shown if its blocks hold them: not the newest, whose logits give the first draft token,
    /// unless its state is missing.
    pub(super) fn most_found(&self, rows: usize) -> usize {
        match self.states {
            Some(StatesKept { from, .. }) if from >= rows => rows,
            _ => rows.saturating_sub(1),
        }
    }

    /// Skips the rows whose states are missing.
    pub(super) fn skip_missing_states(&mut self, block_size: usize) {
        let Some(StatesKept { from, .. }) = self.states.filter(|states| states.from > self.computed) else {
            return;
        };
        let begin = self.begin(from, block_size);
        if self.rested || from - self.computed >= block_size {
            self.skipped_blocks = begin / block_size;
            self.hashes.clear();
        }
        self.computed = begin;
    }

    /// The states of all rows before this one were read.
    pub(super) fn read_states(&mut self, end: usize) {
        self.rested = false;
        if let Some(states) = &mut self.states {
            states.from = states.from.max(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 16;

    fn after(plans: &[std::ops::Range<usize>], read: usize) -> Shown {
        let mut shown = Shown::default();
        plans.iter().for_each(|plan| shown.see_plan(plan));
        shown.read_states(read);
        shown.computed = read;
        shown
    }

    #[test]
    fn rows_that_are_computed_again_have_states_again() {
        let mut shown = after(&[0..40, 40..41], 40);
        shown.computed = 0;
        shown.see_plan(&(0..41));
        shown.skip_missing_states(BLOCK);
        assert_eq!((shown.computed, shown.skipped_blocks), (0, 0));
    }

    #[test]
    fn a_head_that_rested_goes_on_at_a_block_whose_states_are_all_there() {
        let mut shown = after(&[0..40, 40..41], 40);
        assert!(shown.can_begin(41, BLOCK));
        shown.rest();
        shown.see_plan(&(45..46));
        assert!(!shown.can_begin(48, BLOCK) && shown.can_begin(49, BLOCK));
        shown.skip_missing_states(BLOCK);
        assert_eq!((shown.computed, shown.skipped_blocks), (48, 3));
        shown.read_states(49);
        assert!(shown.can_begin(49, BLOCK));
    }

    #[test]
    fn a_prefix_whose_keys_came_from_elsewhere_is_skipped() {
        let mut found = Shown::default();
        found.see_plan(&(40..50));
        found.skip_missing_states(BLOCK);
        assert_eq!((found.computed, found.skipped_blocks), (48, 3));
        let mut copied = Shown { computed: 32, ..Shown::default() };
        copied.see_plan(&(40..50));
        copied.skip_missing_states(BLOCK);
        assert_eq!((copied.computed, copied.skipped_blocks), (40, 0));
    }
}
