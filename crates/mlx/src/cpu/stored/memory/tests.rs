//! Products with stand-ins for kernels over a file of known bytes.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::super::file::{ExpertRange, FileRange, StoredFile};
use super::*;

const EXPERTS: usize = 8;
/// Two lines of memory.
const BYTES: usize = 100;
const RESIDENT_BYTES: u64 = 128;

/// Two layers of two stacks in one file, one of each with its experts in places of their own, in which each byte is 8 times the number of its stack, and that of its expert.
struct World {
    path: PathBuf,
    memory: ExpertMemory,
    stacks: Vec<Arc<StackFiles>>,
}

impl World {
    /// Memory for so many experts of a stack.
    fn new(test: &str, experts: u64) -> Self {
        let path = std::env::temp_dir().join(format!("omnibus-stored-{}-{test}", std::process::id()));
        let bytes: Vec<u8> = (0..4 * EXPERTS * BYTES).map(|at| (at / BYTES) as u8).collect();
        fs::write(&path, bytes).unwrap();
        let memory = ExpertMemory::new(experts * RESIDENT_BYTES).unwrap();
        let file = Arc::new(StoredFile::open(&path).unwrap());
        let of_stack = |(number, layer): (u64, &&str)| {
            let bytes = (EXPERTS * BYTES) as u64;
            let range = |offset, bytes| FileRange { file: Arc::clone(&file), offset, bytes };
            let range = match number % 2 {
                0 => ExpertRange::Stacked(range(number * bytes, bytes)),
                _ => {
                    let offsets = (0..EXPERTS as u64).map(|expert| number * bytes + expert * BYTES as u64);
                    ExpertRange::Single(offsets.map(|offset| range(offset, BYTES as u64)).collect())
                }
            };
            let files = Arc::new(StackFiles { experts: EXPERTS, ranges: vec![(range, BYTES)] });
            assert_eq!(memory.add_stack(layer, Arc::clone(&files)), number as u32);
            files
        };
        let stacks = (0..).zip(&["a", "a", "b", "b"]).map(of_stack).collect();
        Self { path, memory, stacks }
    }

    /// One product; returns how many parts it had. Each expert is computed once, with its own weights.
    fn product(&self, stack: u32, needed: &[u32]) -> Result<usize, String> {
        let (mut parts, mut computed) = (0, Vec::new());
        self.memory.by_parts((stack, &self.stacks[stack as usize]), needed, |table| {
            parts += 1;
            for (expert, [words, ..]) in (0u32..).zip(table).filter(|(_, [words, ..])| !words.is_null()) {
                // SAFETY: the memory holds so many bytes of this expert while this is called.
                let bytes = unsafe { std::slice::from_raw_parts(*words, BYTES) };
                assert!(bytes.iter().all(|byte| u32::from(*byte) == 8 * stack + expert), "{stack} {expert}");
                computed.push(expert);
            }
        })?;
        computed.sort_unstable();
        assert_eq!(computed, needed);
        assert!(self.memory.stats().resident_bytes <= self.memory.limit_bytes());
        Ok(parts)
    }

    fn wait_until_idle(&self) {
        while !self.memory.0.shared.lock().residents.is_idle() {
            std::thread::yield_now();
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _left_behind = fs::remove_file(&self.path);
    }
}

#[test]
fn more_experts_than_fit_are_computed_in_parts() {
    let world = World::new("parts", 3);
    assert_eq!(world.product(0, &[0, 1, 2, 3, 4, 5, 6]), Ok(3));
    // The last three are there, and come first.
    assert_eq!(world.product(0, &[3, 4, 5, 6]), Ok(2));
    let stats = world.memory.stats();
    assert_eq!((stats.misses_total, stats.hits_total, stats.read_bytes_total), (8, 3, 800));
}

#[test]
fn the_other_matrices_of_an_expert_are_read_ahead() {
    let world = World::new("ahead", 16);
    world.product(0, &[2, 5]).unwrap();
    world.wait_until_idle();
    world.product(1, &[2, 5]).unwrap();
    let stats = world.memory.stats();
    assert_eq!((stats.misses_total, stats.hits_total), (2, 2));
    assert_eq!((stats.prefetches_total, stats.prefetch_hits_total), (2, 2));
}

#[test]
fn what_the_next_layer_chose_last_time_is_read_ahead() {
    let world = World::new("history", 12);
    let pass = |of_a: &[u32], of_b: &[u32]| {
        for (stack, experts) in [(0, of_a), (1, of_a), (2, of_b), (3, of_b)] {
            world.product(stack, experts).unwrap();
            world.wait_until_idle();
        }
    };
    pass(&[1], &[6]);
    // These evict the first ones.
    pass(&[2], &[3]);
    pass(&[3], &[4]);
    pass(&[5], &[2]);
    let before = world.memory.stats();
    pass(&[1], &[6]);
    let after = world.memory.stats();
    assert_eq!(after.misses_total - before.misses_total, 1);
    assert_eq!(after.prefetch_hits_total - before.prefetch_hits_total, 3);
}

#[test]
fn a_file_that_was_cut_fails_products_of_what_is_not_resident() {
    let world = World::new("cut", 4);
    world.product(0, &[1]).unwrap();
    OpenOptions::new().write(true).open(&world.path).unwrap().set_len(50).unwrap();
    let message = world.product(0, &[1, 2, 3]).unwrap_err();
    assert!(message.contains("-cut was changed while it is served"), "{message}");
    assert_eq!(world.product(0, &[1]), Ok(1));
}

#[test]
fn a_file_that_was_written_fails_products() {
    let world = World::new("written", 4);
    let later = SystemTime::now() + Duration::from_secs(10);
    OpenOptions::new().write(true).open(&world.path).unwrap().set_modified(later).unwrap();
    assert!(world.product(0, &[0]).unwrap_err().contains("was changed"));
}

/// The reader has the old one open.
#[test]
fn a_file_that_was_replaced_is_read_as_it_was() {
    let world = World::new("replaced", 4);
    fs::remove_file(&world.path).unwrap();
    fs::write(&world.path, b"another").unwrap();
    assert_eq!(world.product(3, &[0, 7]), Ok(1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever readers do meanwhile.
    #[test]
    fn every_product_has_its_experts_within_the_bound(
        fit in 1u64..20,
        products in proptest::collection::vec((0u32..4, proptest::collection::btree_set(0u32..8, 0..8)), 1..40),
    ) {
        let world = World::new("random", fit);
        for (stack, needed) in products {
            let needed: Vec<u32> = needed.into_iter().collect();
            world.product(stack, &needed).unwrap();
        }
    }
}
