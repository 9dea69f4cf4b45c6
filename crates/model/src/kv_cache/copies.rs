//! Copies of blocks by MLX's operations, where no kernel of ours copies them.

use mlx::Array;
use omnibus_kv::BlockId;

use super::{KvCache, Pool, block_indices, poisoned};

impl KvCache {
    /// Copies blocks of a group, `(from, to)`; all are read before any is written.
    pub(super) fn copy_by_operations(
        &mut self,
        group: usize,
        copies: &[(BlockId, BlockId)],
    ) -> mlx::Result<()> {
        let (from, to): (Vec<BlockId>, Vec<BlockId>) = copies.iter().copied().unzip();
        let (from, to) = (block_indices(&from)?, block_indices(&to)?);
        let read = self.pools.iter().filter(|pool| pool.group == group).flat_map(Pool::arrays);
        let read = read.map(|array| array.take(&from, 0)).collect::<mlx::Result<Vec<Array>>>()?;
        // Evaluated before a pool is written, so that the writes are in place; together, so that the device is waited for once.
        mlx::eval(&read)?;
        let mut read = read.iter();
        for pool in self.pools.iter_mut().filter(|pool| pool.group == group) {
            let (Some(of_first), Some(of_second)) = (read.next(), read.next()) else {
                return Err(poisoned());
            };
            let [first, second] = pool.take()?;
            pool.put([first.scatter_rows(&to, of_first)?, second.scatter_rows(&to, of_second)?]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use omnibus_kv::FloatType;

    use super::*;

    /// A pool of four blocks of two numbers, the first array beginning with `first`.
    fn pool(group: usize, first: i32) -> Pool {
        let array = |first: i32| {
            let numbers: Vec<i32> = (first..first + 8).collect();
            Array::from_slice(&numbers, &[4, 2]).unwrap()
        };
        Pool { layer: 0, part: 0, group, arrays: Some([array(first), array(first + 100)]) }
    }

    #[test]
    fn blocks_are_read_before_any_is_written_and_other_groups_stay() {
        let pools = vec![pool(0, 0), pool(1, 1000), pool(0, 2000)];
        let (storage, groups, blocks) = (FloatType::F32.into(), Vec::new(), Vec::new());
        let mut cache = KvCache { block_size: 2, storage, groups, blocks, pools };
        let copies = [(BlockId(1), BlockId(2)), (BlockId(2), BlockId(0))];
        cache.copy_by_operations(0, &copies).unwrap();
        let rows: Vec<Vec<i32>> = cache.arrays().map(|array| array.to_vec().unwrap()).collect();
        let copied = |first: i32| [4, 5, 2, 3, 2, 3, 6, 7].map(|number| first + number).to_vec();
        let whole = |first: i32| (first..first + 8).collect::<Vec<i32>>();
        let expected = [copied(0), copied(100), whole(1000), whole(1100), copied(2000), copied(2100)];
        assert_eq!(rows, expected);
    }
}
