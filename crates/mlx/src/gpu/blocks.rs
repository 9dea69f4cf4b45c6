//! Copies of blocks within pools, in place.

use super::call::written_by;
use super::elementwise::upload;
use super::plan::{Plan, dtype, int, unused_output};
use super::source::COPY_BLOCKS;
use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::{Error, Result};

/// Pools of one launch at most.
pub const POOLS_MAX: usize = 16;

/// Blocks to copy in each of some pools, and how large one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopies {
    /// How many.
    pub count: i32,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// How many pools, [`POOLS_MAX`] at most.
    pub pools: usize,
    /// Of the pools.
    pub dtype: Dtype,
}

impl BlockCopies {
    /// Inputs: [`POOLS_MAX`] pools, of which the first ones are written in place and the others are anything,
    /// and pairs of blocks, from and to, `[2 · count or more]` i32. `None` for blocks that are no multiple of 16 bytes, and for
    /// too many pools.
    pub fn plan(&self) -> Option<Plan> {
        let words = i32::try_from(self.block_bytes / 16).ok().filter(|words| *words > 0)?;
        let has_pools = (1..=POOLS_MAX).contains(&self.pools);
        if !self.block_bytes.is_multiple_of(16) || self.count < 1 || !has_pools {
            return None;
        }
        Some(Plan {
            kernel: &COPY_BLOCKS,
            constants: vec![dtype("T", self.dtype), int("WORDS", words)],
            groups: [(words + 255) / 256, self.count, self.pools as i32],
            threads: 256,
            outputs: vec![unused_output()],
        })
    }
}

/// The pools after their blocks `copies`, `(from, to)`, were copied in place. No block may be both read and written. `None`
/// if there is no kernel for one of them.
pub fn copy_blocks(pools: &[&Array], copies: &[(u32, u32)]) -> Result<Option<Vec<Array>>> {
    let count = copies.len() as i32;
    let kind = |pool: &&Array| Ok((pool.nbytes() / pool.dim(0)?.max(1) as usize, pool.dtype()?));
    let kinds = pools.iter().map(kind).collect::<Result<Vec<(usize, Dtype)>>>()?;
    // Pools of one layer are alike, and often those of all layers.
    let mut launches: Vec<(Plan, &[&Array])> = Vec::new();
    let mut rest = pools;
    for alike in kinds.chunk_by(|kind, next| kind == next).flat_map(|alike| alike.chunks(POOLS_MAX)) {
        let (pools, behind) = rest.split_at(alike.len());
        let Some((block_bytes, dtype)) = alike.first().copied() else { continue };
        let Some(plan) = (BlockCopies { count, block_bytes, pools: pools.len(), dtype }).plan() else {
            return Ok(None);
        };
        launches.push((plan, pools));
        rest = behind;
    }
    let pairs: Vec<i32> = copies.iter().flat_map(|(from, to)| [*from as i32, *to as i32]).collect();
    let pairs = upload(&pairs)?;
    let mut copied = Vec::with_capacity(pools.len());
    for (plan, pools) in launches {
        let inputs: Vec<&Array> = pools.iter().copied().cycle().take(POOLS_MAX).chain([&pairs]).collect();
        let done = plan.call(&inputs)?.pop().ok_or_else(|| Error::new("a copy"))?;
        copied.extend(written_by(pools, &done)?);
    }
    Ok(Some(copied))
}
