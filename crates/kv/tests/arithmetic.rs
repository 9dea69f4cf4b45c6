//! Block and window arithmetic against its definition by positions, for all small cases.

use std::collections::BTreeSet;

use omnibus_kv::{BlockId, BlockTable, CacheKind};

const MOST: usize = 24;

/// Every kind with small numbers, in blocks of every small size.
fn cases() -> Vec<(CacheKind, usize)> {
    let windows =
        (1..=9).flat_map(|tokens| (0..=5).map(move |sinks| CacheKind::SlidingWindow { tokens, sinks }));
    let prefixes = (1..=11).map(|tokens| CacheKind::UnquantizedPrefix { tokens });
    let kinds = [CacheKind::Full, CacheKind::Latent].into_iter().chain(windows).chain(prefixes);
    kinds.flat_map(|kind| (1..=5).map(move |block_size| (kind, block_size))).collect()
}

/// Logical blocks with a position before `end` that some position from `next` on sees.
fn visible_blocks(kind: CacheKind, block_size: usize, next: usize, end: usize) -> BTreeSet<usize> {
    let sees = |key: usize| (next..next + MOST).any(|position| kind.is_visible(position, key));
    (0..end).filter(|key| sees(*key)).map(|key| key / block_size).collect()
}

#[test]
fn visible_blocks_are_sinks_and_those_from_the_first_visible_on() {
    for (kind, block_size) in cases() {
        for next in 0..MOST {
            let end = kind.blocks_for(block_size, next);
            let first = kind.first_visible_block(block_size, next).min(end);
            let sinks = kind.sink_blocks(block_size).min(first);
            let counted: BTreeSet<usize> = (0..sinks).chain(first..end).collect();
            let visible = visible_blocks(kind, block_size, next, next);
            assert!(counted.is_superset(&visible), "{kind:?} in blocks of {block_size} at {next}");
            // A block that is still being filled stays, visible or not.
            let extra: Vec<usize> = counted.difference(&visible).copied().collect();
            let partial = |at: &usize| (at + 1) * block_size > next || *at < sinks;
            assert!(extra.iter().all(partial), "{kind:?} in blocks of {block_size} at {next}: {extra:?}");
        }
    }
}

#[test]
fn a_sequence_that_grows_and_frees_can_always_see_what_it_may() {
    for (kind, block_size) in cases() {
        let mut table = BlockTable::new(kind, block_size);
        let mut fresh = 0..;
        for next in 0..MOST {
            while table.end() < kind.blocks_for(block_size, next + 1) {
                table.blocks.extend(fresh.next().map(BlockId));
            }
            for key in (0..=next).filter(|key| kind.is_visible(next, *key)) {
                let expected = |block: BlockId| block.index() * block_size + key % block_size;
                assert_eq!(table.slot(key, block_size), table.block(key / block_size).map(expected));
                assert_eq!(table.block(key / block_size), Some(BlockId((key / block_size) as u32)));
            }
            let freed = table.free_out_of_window(kind, block_size, next + 1).count();
            let is_window = matches!(kind, CacheKind::SlidingWindow { .. });
            assert!(
                freed <= 1 || !is_window,
                "{kind:?} in blocks of {block_size}: a window passes one at a time"
            );
            assert_eq!(table.end() - table.freed_blocks, table.blocks.len());
            assert!(table.out_of_window(kind, block_size, next + 1).is_empty());
        }
    }
}

#[test]
fn blocks_for_tokens_and_tokens_in_blocks_are_inverse() {
    for (kind, block_size) in cases() {
        for tokens in 0..MOST {
            let blocks = kind.blocks_for(block_size, tokens);
            assert!(kind.tokens_in(block_size, blocks) >= tokens, "{kind:?} {block_size} {tokens}");
            let fewer = blocks.checked_sub(1).map(|fewer| kind.tokens_in(block_size, fewer));
            assert!(fewer.is_none_or(|fewer| fewer < tokens), "{kind:?} {block_size} {tokens}");
            assert!((0..blocks).all(|at| kind.has_block(block_size, at)));
        }
        let prefix = matches!(kind, CacheKind::UnquantizedPrefix { .. });
        assert_eq!(kind.has_block(block_size, MOST), !prefix);
    }
}

#[test]
fn the_longest_sequence_of_a_pool_is_the_last_that_runs_alone() {
    for (kind, block_size) in cases() {
        for blocks in 1..8 {
            // Positions 0 to `last` are computed one by one, and what is out of the window is freed before each.
            let held = |last: usize| {
                let end = kind.blocks_for(block_size, last + 1);
                end - kind.out_of_window_blocks(block_size, last).min(end)
            };
            let runs = (0..MOST).take_while(|last| held(*last) <= blocks).count();
            let longest = kind.max_sequence_tokens(block_size, blocks);
            let expected = if runs == MOST { usize::MAX } else { runs + 1 };
            let enough = longest >= MOST && expected >= MOST;
            assert!(enough || longest == expected, "{kind:?} {block_size} {blocks}: {longest} {expected}");
        }
    }
}

#[test]
fn a_hit_requires_sinks_and_what_is_visible_behind_it() {
    for (kind, block_size) in cases() {
        for blocks in 1..6 {
            let start = blocks * block_size;
            let required: BTreeSet<usize> = kind.required_blocks(block_size, blocks, start).collect();
            assert_eq!(
                required,
                visible_blocks(kind, block_size, start, start),
                "{kind:?} {block_size} {blocks}"
            );
            let first = kind.first_required_block(block_size, blocks);
            let behind_sinks = required.iter().copied().find(|at| *at >= kind.sink_blocks(block_size));
            assert!(first <= behind_sinks.unwrap_or(blocks), "{kind:?} {block_size} {blocks}: {first}");
        }
    }
}

#[test]
fn a_table_is_cut_behind_its_last_token() {
    for (kind, block_size) in cases() {
        for (tokens, cut) in (1..MOST).flat_map(|tokens| (0..=tokens).map(move |cut| (tokens, cut))) {
            let mut table = BlockTable::new(kind, block_size);
            table.blocks = (0..kind.blocks_for(block_size, tokens) as u32).map(BlockId).collect();
            let whole = table.blocks.clone();
            let removed: Vec<BlockId> = table.truncate(kind, block_size, cut).collect();
            assert_eq!(table.end(), kind.blocks_for(block_size, cut));
            let again: Vec<BlockId> = table.blocks.iter().copied().chain(removed.into_iter().rev()).collect();
            assert_eq!(again, whole, "last first");
        }
    }
}

#[test]
fn a_state_is_one_slot_whatever_the_length() {
    let kind = CacheKind::State;
    assert_eq!([0, 1, 99].map(|tokens| kind.blocks_for(4, tokens)), [1, 1, 1]);
    assert_eq!((kind.tokens_in(4, 0), kind.tokens_in(4, 1)), (0, usize::MAX));
    assert_eq!((kind.first_required_block(4, 5), kind.shared_blocks(5)), (4, 0));
    assert_eq!(kind.required_blocks(4, 5, 20).collect::<Vec<_>>(), [4]);
    assert!(!kind.is_visible(3, 2), "it has no keys");
}
