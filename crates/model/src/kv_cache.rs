//! The KV cache: pools of fixed-size blocks, two arrays a layer.
//!
//! Layers of one kind form a group and share block tables; `core` does the accounting of each group's blocks, this
//! module owns the arrays. A recurrent layer has one state per sequence, whatever its length: its block is a slot.
//!
//! Invariant: a pool array has one owner. Blocks take it out, write it, and put the new value back, so that MLX can
//! write in place.

mod copies;
mod groups;
mod transfer;

use mlx::{Array, Dtype};
use omnibus_kv::{BlockId, KvCacheSpec};

use crate::blueprint::Blueprint;
use crate::kv_format;
use crate::kv_format::KvStorage;
pub use groups::{KvCacheGroup, VisibleTo};
pub use transfer::{BlockBytes, BlockExport};

/// The cached keys, values and states of all layers, in blocks.
pub struct KvCache {
    /// Tokens of a block.
    pub(crate) block_size: usize,
    pub(crate) storage: KvStorage,
    pub(crate) groups: Vec<KvCacheGroup>,
    /// Blocks of each group, the scratch block that follows them not counted.
    pub(crate) blocks: Vec<usize>,
    /// One for each cache of each layer, in order, and after them those of the unquantized prefix.
    pub(crate) pools: Vec<Pool>,
}

/// The arrays of one of a layer's caches in one group.
pub(crate) struct Pool {
    pub(crate) layer: usize,
    /// Which of the layer's caches.
    pub(crate) part: usize,
    pub(crate) group: usize,
    /// Both `[blocks + 1, …]`: keys and values, `[_, block_size, kv_heads, head_dim]` each (packed, a head is a row of
    /// words), or a recurrence's convolution state and its state. `None` only while a step is being built, or after
    /// building one failed half-way.
    arrays: Option<[Array; 2]>,
}

impl Pool {
    /// Takes the arrays, to be written and put back.
    pub(crate) fn take(&mut self) -> mlx::Result<[Array; 2]> {
        self.arrays.take().ok_or_else(poisoned)
    }

    pub(crate) fn put(&mut self, arrays: [Array; 2]) {
        self.arrays = Some(arrays);
    }

    /// The arrays, for reading.
    pub(crate) fn arrays(&self) -> &[Array] {
        self.arrays.as_ref().map_or(&[], |arrays| arrays.as_slice())
    }
}

impl KvCache {
    /// Pools with `blocks[g]` blocks for group `g` of [`Blueprint::kv_cache_groups`] with this storage. What unused
    /// blocks hold is undefined, and on a CPU they take no memory before they are written.
    pub fn new(
        blueprint: &Blueprint,
        blocks: &[usize],
        block_size: usize,
        storage: impl Into<KvStorage>,
    ) -> mlx::Result<Self> {
        let storage = storage.into();
        let groups = blueprint.kv_cache_groups(storage);
        let mut places: Vec<(usize, usize, usize)> = (groups.iter().enumerate())
            .flat_map(|(group, of)| {
                of.layers.iter().zip(&of.parts).map(move |(layer, part)| (*layer, *part, group))
            })
            .collect();
        places.sort_by_key(|(layer, part, group)| {
            (groups[*group].visible_to == VisibleTo::PrefixRows, *layer, *part)
        });
        let pools = places.into_iter().map(|(layer, part, group)| {
            let format = groups[group].spec.format;
            let caches = blueprint.layers[layer].mixer.spec().caches();
            let [first, second] = caches[part].pool_shapes(blocks[group] + 1, block_size, format);
            let dtype = kv_format::dtype_of(format);
            Ok(Pool {
                layer,
                part,
                group,
                arrays: Some([allocate(&first, dtype)?, allocate(&second, dtype)?]),
            })
        });
        let pools = pools.collect::<mlx::Result<_>>()?;
        Ok(Self { block_size, storage, blocks: blocks.to_vec(), groups, pools })
    }

    /// Its groups.
    pub fn groups(&self) -> &[KvCacheGroup] {
        &self.groups
    }

    /// Tokens of a block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// The spec of a group.
    pub(crate) fn spec(&self, group: usize) -> mlx::Result<&KvCacheSpec> {
        self.groups.get(group).map(|group| &group.spec).ok_or_else(poisoned)
    }

    /// A pool, and that of the unquantized prefix for the same layer's same cache.
    pub(crate) fn with_prefix(&self, at: usize) -> impl Iterator<Item = usize> + use<> {
        let place = self.pools.get(at).map(|pool| (pool.layer, pool.part));
        let prefix = self.pools.iter().rposition(|pool| Some((pool.layer, pool.part)) == place);
        std::iter::once(at).chain(prefix.filter(|prefix| *prefix != at))
    }

    /// Copies whole blocks (of a recurrence, slots) within a group, `(from, to)`; all are read before any is written.
    pub fn copy_blocks(&mut self, group: usize, copies: &[(BlockId, BlockId)]) -> mlx::Result<()> {
        if copies.is_empty() {
            return Ok(());
        }
        if mlx::cpu::available() {
            let copies: Vec<(u32, u32)> = copies.iter().map(|(from, to)| (from.0, to.0)).collect();
            for pool in self.pools.iter_mut().filter(|pool| pool.group == group) {
                let [first, second] = pool.take()?;
                pool.put([mlx::cpu::copy_blocks(first, &copies)?, mlx::cpu::copy_blocks(second, &copies)?]);
            }
            return Ok(());
        }
        if mlx::gpu::available() && self.copy_blocks_in_place(group, copies)? {
            return Ok(());
        }
        self.copy_by_operations(group, copies)
    }

    /// Copies by our GPU kernel, while steps in flight read the pools. False if there is none for these copies.
    fn copy_blocks_in_place(&mut self, group: usize, copies: &[(BlockId, BlockId)]) -> mlx::Result<bool> {
        let is_read = |block: &BlockId| copies.iter().any(|(from, _)| from == block);
        if copies.iter().any(|(_, to)| is_read(to)) {
            return Ok(false);
        }
        let copies: Vec<(u32, u32)> = copies.iter().map(|(from, to)| (from.0, to.0)).collect();
        let arrays: Vec<&Array> =
            self.pools.iter().filter(|pool| pool.group == group).flat_map(Pool::arrays).collect();
        let Some(copied) = mlx::gpu::copy_blocks(&arrays, &copies)? else { return Ok(false) };
        let mut copied = copied.into_iter();
        for pool in self.pools.iter_mut().filter(|pool| pool.group == group) {
            let (Some(first), Some(second)) = (copied.next(), copied.next()) else { return Err(poisoned()) };
            pool.put([first, second]);
        }
        // Kernels of one launch are ordered by their outputs, and the copies have none that the next kernels read.
        let arrays = self.pools.iter().filter(|pool| pool.group == group).flat_map(Pool::arrays);
        match mlx::device::backend() {
            mlx::device::Backend::Cuda => mlx::async_eval(arrays)?,
            _ => mlx::eval(arrays)?,
        }
        Ok(true)
    }

    /// Every array, to be evaluated with a step's results.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.pools.iter().flat_map(Pool::arrays)
    }

    /// Puts back what [`arrays`](Self::arrays) gave, after a pass was built that is not computed.
    pub(crate) fn restore(&mut self, arrays: &[&Array]) {
        for (pool, arrays) in self.pools.iter_mut().zip(arrays.chunks_exact(2)) {
            if let [first, second] = arrays {
                pool.put([(*first).clone(), (*second).clone()]);
            }
        }
    }

    /// False after a step failed while it was built; the pools must then be allocated again.
    pub fn is_whole(&self) -> bool {
        self.pools.iter().all(|pool| pool.arrays.is_some())
    }
}

/// Block ids as MLX indexes with them, `[n]` i32.
pub(crate) fn block_indices(blocks: &[BlockId]) -> mlx::Result<Array> {
    let indices: Vec<i32> = blocks.iter().map(|block| block.0 as i32).collect();
    Array::from_slice(&indices, &[indices.len() as i32])
}

/// One pool's array. On a CPU, pages that are never written take no memory; a GPU's memory is taken at once, and
/// zeroed on the GPU.
fn allocate(shape: &[usize], dtype: Dtype) -> mlx::Result<Array> {
    let shape: Vec<i32> = shape.iter().map(|n| *n as i32).collect();
    if mlx::cpu::available() {
        return Array::uninitialized(&shape, dtype);
    }
    let zeros = Array::zeros(&shape, dtype)?;
    zeros.eval()?;
    Ok(zeros)
}

pub(crate) fn poisoned() -> mlx::Error {
    mlx::Error::new("an earlier failure left no pool")
}
