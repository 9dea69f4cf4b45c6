//! Copies whole blocks of a pool to others, in place.

use super::pool;

/// Inputs: the pool `[blocks, …]` of `bytes` each, and pairs `[pairs, 2]`, i32: from and to. Output: the pool.
/// All are read before any is written; an invalid pair is skipped.
#[derive(Clone, Debug, PartialEq)]
pub struct Copy {
    pub blocks: usize,
    pub bytes: usize,
    pub pairs: usize,
}

impl Copy {
    /// # Safety
    /// The buffers have the sizes named above.
    pub(super) unsafe fn run(&self, inputs: &[*const u8], pool: *mut u8) {
        let Self { blocks, bytes, pairs } = *self;
        let numbers = inputs[1].cast::<i32>();
        let place = |i: usize| usize::try_from(*numbers.add(i)).ok().filter(|block| *block < blocks);
        let pairs: Vec<(usize, usize)> =
            (0..pairs).filter_map(|i| place(2 * i).zip(place(2 * i + 1))).collect();
        let chained = pairs.iter().any(|(_, to)| pairs.iter().any(|(from, _)| from == to));
        if !chained {
            struct Shared(*mut u8);
            // SAFETY: tasks write different blocks and read none that is written.
            unsafe impl Sync for Shared {}
            let shared = Shared(pool);
            return pool::run(pairs.len(), |i| {
                let (shared, (from, to)) = (&shared, pairs[i]);
                // SAFETY: both blocks lie within the pool and are different.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        shared.0.add(from * bytes),
                        shared.0.add(to * bytes),
                        bytes,
                    );
                }
            });
        }
        let mut read = vec![0u8; pairs.len() * bytes];
        for (i, (from, _)) in pairs.iter().enumerate() {
            std::ptr::copy_nonoverlapping(pool.add(from * bytes), read.as_mut_ptr().add(i * bytes), bytes);
        }
        for (i, (_, to)) in pairs.iter().enumerate() {
            std::ptr::copy_nonoverlapping(read.as_ptr().add(i * bytes), pool.add(to * bytes), bytes);
        }
    }
}
