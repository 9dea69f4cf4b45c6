//! Blocks as bytes, for a slower tier of storage.
//!
//! A block's bytes are those of its part of every array of its group, in the order of the layers and of a layer's
//! arrays.

use mlx::{Array, Dtype};
use omnibus_kv::BlockId;

use super::{KvCache, Pool, block_indices, poisoned};
use crate::take_rows::take_rows;

/// Blocks of one group by array, lazy.
#[derive(Debug)]
pub struct BlockExport(Vec<Array>);

impl BlockExport {
    /// A layer's two arrays, `[blocks, …]` each, in the order of the group's layers.
    pub fn arrays_by_layer(&self) -> impl Iterator<Item = [&Array; 2]> {
        self.0
            .chunks_exact(2)
            .filter_map(|pair| <[&Array; 2]>::try_from(pair.iter().collect::<Vec<_>>()).ok())
    }

    /// Every array, `[blocks, …]`.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.0.iter()
    }
}

/// The bytes of blocks of one group, lazy.
#[derive(Debug)]
pub struct BlockBytes {
    /// `[blocks, …]`: one array, because each read of a GPU's memory costs the host a wait.
    joined: Array,
    blocks: usize,
}

impl BlockBytes {
    /// What [`Self::read`] reads: it is fast once this is evaluated.
    pub fn array(&self) -> &Array {
        &self.joined
    }

    /// Each block's bytes, in the order of the request. Waits until they are computed.
    pub fn read(&self) -> mlx::Result<Vec<Vec<u8>>> {
        let bytes = self.joined.to_bytes()?;
        let each = (bytes.len() / self.blocks.max(1)).max(1);
        Ok(bytes.chunks_exact(each).map(<[u8]>::to_vec).collect())
    }
}

impl KvCache {
    /// The layout of blocks as text: equal for caches with interchangeable blocks.
    pub fn layout(&self) -> String {
        let each = self.arrays().zip(self.pools.iter().flat_map(|pool| [pool.group; 2]));
        let parts =
            each.map(|(array, group)| format!("{group}:{:?}{:?}", array.dtype().ok(), &array.shape()[1..]));
        // From the second layer on, keys and values depend on which tokens were visible.
        let specs = self.groups.iter().map(|group| format!("{:?}", group.spec));
        specs.chain(parts).collect::<Vec<_>>().join(",")
    }

    /// Bytes of a block of a group.
    pub fn block_bytes(&self, group: usize) -> usize {
        let arrays = self.group_arrays(group);
        arrays.map(|array| array.nbytes() / array.shape().first().map_or(1, |blocks| *blocks as usize)).sum()
    }

    /// Copies blocks out of a group.
    pub fn read_blocks(&self, group: usize, blocks: &[BlockId]) -> mlx::Result<BlockExport> {
        let indices = block_indices(blocks)?;
        let parts = self.group_arrays(group).map(|array| take_rows(array, &indices));
        parts.collect::<mlx::Result<_>>().map(BlockExport)
    }

    /// The bytes of blocks of a group. While they are computed they take twice their memory.
    pub fn read_bytes(&self, group: usize, blocks: &[BlockId]) -> mlx::Result<BlockBytes> {
        let parts = self.read_blocks(group, blocks)?;
        let dtypes = parts.arrays().map(Array::dtype).collect::<mlx::Result<Vec<_>>>()?;
        let is_uniform = dtypes.windows(2).all(|pair| pair[0] == pair[1]);
        let row = |part: &Array| -> mlx::Result<Array> {
            let row = part.reshape(&[blocks.len() as i32, -1])?;
            if is_uniform { Ok(row) } else { row.view(Dtype::U8) }
        };
        let rows = parts.arrays().map(row).collect::<mlx::Result<Vec<_>>>()?;
        let joined = mlx::concatenate(&rows.iter().collect::<Vec<_>>(), 1)?;
        Ok(BlockBytes { joined, blocks: blocks.len() })
    }

    /// Writes blocks of a group, each of [`Self::block_bytes`] bytes. Waits for the step in flight, so that the
    /// pools are written in place.
    pub fn write_blocks(&mut self, group: usize, blocks: &[BlockId], contents: &[&[u8]]) -> mlx::Result<()> {
        let size = self.block_bytes(group);
        if contents.len() != blocks.len() || contents.iter().any(|content| content.len() != size) {
            return Err(mlx::Error::new("each block has its bytes, and as many as a block has"));
        }
        let mut at = 0;
        self.write_parts(group, blocks, |pool| {
            let mut part = |array: &Array| -> mlx::Result<Array> {
                let mut shape = array.shape().to_vec();
                let bytes = array.nbytes() / shape.first().map_or(1, |blocks| *blocks as usize);
                let mut bytes_of_blocks = Vec::with_capacity(blocks.len() * bytes);
                contents
                    .iter()
                    .for_each(|content| bytes_of_blocks.extend_from_slice(&content[at..at + bytes]));
                if let Some(first) = shape.first_mut() {
                    *first = blocks.len() as i32;
                }
                at += bytes;
                Array::from_bytes(&bytes_of_blocks, &shape, array.dtype()?)
            };
            let [first, second] = pool.arrays() else { return Err(poisoned()) };
            Ok([part(first)?, part(second)?])
        })
    }

    /// Writes blocks of a group from arrays, `[blocks, …]` for each layer's two. One layer is written before the next
    /// layer's arrays are made, so that they reuse its memory. Waits for the step in flight, so that the pools are
    /// written in place.
    pub(crate) fn write_parts(
        &mut self,
        group: usize,
        blocks: &[BlockId],
        mut parts: impl FnMut(&Pool) -> mlx::Result<[Array; 2]>,
    ) -> mlx::Result<()> {
        if blocks.is_empty() {
            return Ok(());
        }
        mlx::eval(self.group_arrays(group))?;
        let indices = block_indices(blocks)?;
        // An unused pool allocates consecutive blocks; one copy is then much faster than a scatter.
        let consecutive = blocks.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0);
        let run = blocks.first().filter(|_| consecutive).map(|first| first.0 as i32);
        let write = |array: Array, update: Array| -> mlx::Result<Array> {
            let update = update.astype(array.dtype()?)?;
            let written = match run {
                Some(first) => {
                    let (mut start, mut stop) = (vec![0; array.ndim()], array.shape().to_vec());
                    (start[0], stop[0]) = (first, first + blocks.len() as i32);
                    array.slice_update(&update, &start, &stop)?
                }
                None => array.scatter_rows(&indices, &update)?,
            };
            written.eval()?;
            Ok(written)
        };
        for pool in self.pools.iter_mut().filter(|pool| pool.group == group) {
            let [first_update, second_update] = parts(pool)?;
            let [first, second] = pool.take()?;
            pool.put([write(first, first_update)?, write(second, second_update)?]);
        }
        Ok(())
    }

    fn pools_of(&self, group: usize) -> impl Iterator<Item = &Pool> {
        self.pools.iter().filter(move |pool| pool.group == group)
    }

    fn group_arrays(&self, group: usize) -> impl Iterator<Item = &Array> {
        self.pools_of(group).flat_map(Pool::arrays)
    }
}
