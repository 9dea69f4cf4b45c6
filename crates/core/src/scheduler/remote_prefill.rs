//! Prompts that another replica computes: which ones, and when it pays.
//!
//! Invariant: a prompt is for another replica only if the blocks that it computes have the hashes of the sequence's own.

use super::Scheduler;
use super::swap::recompute_us;
use crate::cost::Transfer;
use crate::prefix::BlockHash;
use crate::request::{SequenceId, Tick, Token};

/// How much longer than here a prompt may take at another replica: computed here, it delays the sequences that decode.
const PATIENCE: f64 = 2.0;

/// What another replica needs to compute a sequence's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemotePrompt<'a> {
    /// The tokens of full blocks.
    pub tokens: &'a [Token],
    /// [`crate::Request::cache_salt`].
    pub cache_salt: u128,
    /// How long the missing ones are expected to take here; 0 without measurements.
    pub here: Tick,
}

impl Scheduler {
    /// The prompt of a waiting sequence, if another replica should compute the blocks that are neither cached nor `stored`
    /// elsewhere: if that, and reading them, is expected to take less than twice the time of computing them here. Without
    /// measurements it is tried, and each time that it is not, its expected cost decays a little.
    ///
    /// Both times are linear in the share of the prompt that is computed elsewhere, but for what a request costs by itself.
    /// So the best share is all or nothing.
    pub fn remote_prompt(
        &mut self,
        id: SequenceId,
        stored: impl Fn(usize, u128) -> bool,
    ) -> Option<RemotePrompt<'_>> {
        let (cache, most) = self.lookup(id)?;
        if !cache.hashes.is_text() || cache.hashes.adapter() != 0 {
            return None;
        }
        let is_stored = |group, hash: BlockHash| stored(group, hash.0);
        let there = self.kv_cache.longest_usable_hit_with(cache, most, is_stored);
        let positions = there * self.settings.block_size..most * self.settings.block_size;
        if positions.is_empty() {
            return None;
        }
        let missing = self.kv_cache.missing(cache.hashes.all().get(..most)?).into_iter();
        let bytes = missing.filter(|(_, at)| *at >= there).map(|(group, _)| self.swaps.bytes_of(group)).sum();
        let here_us = recompute_us(&self.cost, &positions);
        let transfers = &self.cost.transfers;
        let elsewhere_us = transfers.predict(Transfer::PeerPrefill, positions.len() as u64)
            + transfers.predict(Transfer::PeerRead, bytes)
            + transfers.predict(Transfer::Onload, bytes);
        if here_us > 0.0 && elsewhere_us > PATIENCE * here_us {
            self.cost.transfers.doubt();
            return None;
        }
        let sequence = self.sequences.get(id)?;
        let tokens = sequence.tokens.get(..positions.end)?;
        let cache_salt = sequence.lookup.as_ref()?.salt;
        Some(RemotePrompt { tokens, cache_salt, here: here_us as Tick })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::StepLoad;
    use crate::request::Request;
    use crate::settings::{CacheGroup, Offload, PreemptionPolicy, SwapSettings};
    use crate::sim::Scenario;
    use omnibus_kv::CacheKind;

    const BLOCK: usize = 64;
    const PROMPT: usize = 65_536;
    /// Bytes of a token of Llama 3.1 8B in 16 bits.
    const TOKEN_BYTES: usize = 131_072;

    /// A prompt that waits in a scheduler that computes so many tokens in a second, with a peer that computes so many over a
    /// link of so many bytes in a second.
    fn waiting(here: f64, peer: f64, link: f64) -> (Scheduler, SequenceId) {
        let mut settings = Scenario::typical(1, 0, 1).settings;
        (settings.block_size, settings.max_context) = (BLOCK, 2 * PROMPT);
        let mut group = CacheGroup::of_kind(CacheKind::Full, (2 * PROMPT / BLOCK) as u32);
        group.spec.elements = TOKEN_BYTES / 4;
        settings.groups = vec![group];
        settings.swap = SwapSettings { preemption: PreemptionPolicy::Recompute, offload: Offload::Available };
        let mut scheduler = Scheduler::new(settings);
        let us = |amount: usize, rate: f64| (amount as f64 / rate * 1e6) as Tick;
        for tokens in [2048, 4096, 8192].repeat(8) {
            scheduler.cost.learn(&StepLoad::prefill(0, tokens), us(tokens, here));
            scheduler.learn_transfer(Transfer::PeerPrefill, tokens as u64, us(tokens, peer));
            let bytes = tokens * TOKEN_BYTES;
            scheduler.learn_transfer(Transfer::PeerRead, bytes as u64, us(bytes, link));
        }
        let request = Request { cache_salt: 7, ..Request::new(vec![1; PROMPT], 1) };
        let id = scheduler.submit(0, request).expect("it fits");
        (scheduler, id)
    }

    /// Published speeds of prefill: an M3 Ultra, and an H100, 10 Gbit/s between them.
    #[test]
    fn a_fast_peer_computes_a_long_prompt_in_a_third_of_the_time() {
        let (mut scheduler, id) = waiting(800.0, 10_000.0, 1.25e9);
        let prompt =
            scheduler.remote_prompt(id, |_, _| false).map(|prompt| (prompt.tokens.len(), prompt.here));
        let (tokens, here) = prompt.expect("the peer is faster");
        assert_eq!(tokens, PROMPT - BLOCK, "all full blocks before the last token");
        let transfers = &scheduler.cost.transfers;
        let elsewhere = transfers.predict(Transfer::PeerPrefill, tokens as u64)
            + transfers.predict(Transfer::PeerRead, (tokens * TOKEN_BYTES) as u64);
        assert!(here as f64 > 3.0 * elsewhere, "{here} us here, {elsewhere} us elsewhere");
    }

    #[test]
    fn a_peer_that_takes_over_twice_as_long_is_not_asked_until_its_cost_has_decayed() {
        let (mut scheduler, id) = waiting(800.0, 300.0, 1.25e9);
        assert_eq!(scheduler.remote_prompt(id, |_, _| false), None);
        let asked = (0..100).any(|_| scheduler.remote_prompt(id, |_, _| false).is_some());
        assert!(asked, "it may have become faster");
        let (mut as_fast, id) = waiting(800.0, 800.0, 1.25e9);
        assert!(as_fast.remote_prompt(id, |_, _| false).is_some(), "prompts here delay decodes");
        let (mut slow_link, id) = waiting(800.0, 10_000.0, 10e6);
        assert_eq!(slow_link.remote_prompt(id, |_, _| false), None);
    }

    #[test]
    fn what_is_stored_is_not_computed_elsewhere() {
        let (mut scheduler, id) = waiting(800.0, 10_000.0, 1.25e9);
        assert_eq!(scheduler.remote_prompt(id, |_, _| true), None);
        let salt = scheduler.remote_prompt(id, |_, _| false).map(|prompt| prompt.cache_salt);
        assert_eq!(salt, Some(7));
    }

    #[test]
    fn prompts_with_media_or_an_adapter_are_computed_here() {
        for request in [
            Request { adapter: 3, ..Request::new(vec![1; 1024], 1) },
            Request { mm_hashes: vec![(5, 9)], ..Request::new(vec![1; 1024], 1) },
        ] {
            let (mut scheduler, _) = waiting(800.0, 10_000.0, 1.25e9);
            let id = scheduler.submit(0, request).expect("it fits");
            assert_eq!(scheduler.remote_prompt(id, |_, _| false), None);
        }
    }
}
