//! Copies of blocks within a pool, in place.

use super::call::written_by;
use super::elementwise::upload;
use super::plan::{Plan, int, unused_output};
use super::source::COPY_BLOCKS;
use crate::{Array, Error, Result};

/// Blocks to copy, and how large one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopies {
    /// How many.
    pub count: i32,
    /// Bytes of a block.
    pub block_bytes: usize,
}

impl BlockCopies {
    /// Inputs: the pool, which is written in place, and pairs of blocks, from and to, `[2 · count or more]` i32. `None`
    /// for blocks that are no multiple of 16 bytes.
    pub fn plan(&self) -> Option<Plan> {
        let words = i32::try_from(self.block_bytes / 16).ok().filter(|words| *words > 0)?;
        if !self.block_bytes.is_multiple_of(16) || self.count < 1 {
            return None;
        }
        Some(Plan {
            kernel: &COPY_BLOCKS,
            constants: vec![int("WORDS", words)],
            groups: [(words + 255) / 256, self.count, 1],
            threads: 256,
            outputs: vec![unused_output()],
        })
    }
}

/// The pools after their blocks `copies`, `(from, to)`, were copied in place. No block may be both read and written. `None`
/// if there is no kernel for one of them.
pub fn copy_blocks(pools: &[&Array], copies: &[(u32, u32)]) -> Result<Option<Vec<Array>>> {
    let count = copies.len() as i32;
    let plan = |pool: &&Array| -> Result<Option<Plan>> {
        let blocks = pool.dim(0)?.max(1) as usize;
        Ok(BlockCopies { count, block_bytes: pool.nbytes() / blocks }.plan())
    };
    let Some(plans) = pools.iter().map(plan).collect::<Result<Option<Vec<Plan>>>>()? else { return Ok(None) };
    let pairs: Vec<i32> = copies.iter().flat_map(|(from, to)| [*from as i32, *to as i32]).collect();
    let pairs = upload(&pairs)?;
    let copied = |(pool, plan): (&&Array, Plan)| -> Result<Array> {
        let words = pool.view(crate::Dtype::U32)?;
        let done = plan.call(&[&words, &pairs])?.pop().ok_or_else(|| Error::new("a copy"))?;
        written_by(&[*pool], &done)?.pop().ok_or_else(|| Error::new("a pool"))
    };
    pools.iter().zip(plans).map(copied).collect::<Result<_>>().map(Some)
}
