//! The KV cache as the offload and prompt files use it: blocks in and out, outside of steps.

use omnibus_kv::BlockId;
use omnibus_model::{BlockBytes, BlockExport, BlockImport, KvCache, PromptCache};

/// Reads and writes blocks of the KV cache.
pub(super) trait KvStore {
    /// The KV cache.
    fn cache(&self) -> &KvCache;

    /// Waits for all launched steps.
    fn finish(&self) -> mlx::Result<()>;

    /// Starts copying blocks of a group out, after the launched steps and before later ones.
    fn read_blocks(&self, group: usize, blocks: &[BlockId]) -> mlx::Result<BlockExport>;

    /// The same for their bytes alone.
    fn read_bytes(&self, group: usize, blocks: &[BlockId]) -> mlx::Result<BlockBytes>;

    /// Writes blocks of a group that no sequence uses yet.
    fn write_blocks(&mut self, group: usize, blocks: &[BlockId], contents: &[&[u8]]) -> mlx::Result<()>;

    /// Fills blocks that no sequence uses yet from a prompt cache file.
    fn fill(&mut self, cache: &PromptCache, blocks: &[BlockImport]) -> mlx::Result<()>;
}
