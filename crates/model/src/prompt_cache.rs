//! A computed prompt in a file, in mlx-lm's format: what its `cache_prompt` writes and its `generate` reads.
//!
//! ```text
//! arrays    "<layer>.0", "<layer>.1"      keys and values, [1, kv_heads, room, head_dim]   (KVCache, RotatingKVCache)
//!           "<layer>.2" …                 offset; of a rotating one also keep, max_size and where it writes next
//!           "<layer>.0.0", "<layer>.0.1"  a recurrence's convolution and state, [1, …]     (ArraysCache)
//! metadata  "0.<name>"  "1.<layer>" the layer's class  "2.<n>.0" which arrays stand for numbers or nothing
//! ```
//!
//! The format does not hold the prompt's tokens. Our files do, in an entry of their own.

mod layer;
mod layout;

use std::collections::BTreeMap;
use std::path::Path;

use mlx::io::Safetensors;
use omnibus_kv::{BlockId, KvCacheSpec};

use crate::blueprint::Blueprint;
use crate::kv_cache::{BlockExport, KvCache, KvCacheGroup};
use crate::weights::LoadError;
use layer::{LayerCache, LayerOfFile};

/// Where we note a prompt's tokens, in the metadata.
const TOKENS: &str = "omnibus_tokens";

/// A computed prompt.
#[derive(Debug)]
pub struct PromptCache {
    /// In the order of the model's layers.
    layers: Vec<LayerCache>,
    len: usize,
    tokens: Option<Vec<u32>>,
}

/// A block to fill from a file: in which group, where, and which block of the sequence it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[allow(missing_docs)]
pub struct BlockImport {
    pub group: usize,
    pub block: BlockId,
    pub logical: usize,
}

impl PromptCache {
    /// Reads a file and checks it against the model that continues from it. `longest`: the longest sequence, in
    /// tokens.
    pub fn read(path: &Path, blueprint: &Blueprint, longest: Option<usize>) -> Result<Self, LoadError> {
        let broken = |problem: String| LoadError::File { file: path.to_owned(), problem };
        crate::weights::check_header(path)?;
        let Safetensors { arrays, metadata } = mlx::io::load_safetensors_with_metadata(path)?;
        let layers = blueprint.layers.iter().enumerate().map(|(index, spec)| {
            let layer = LayerOfFile { index, arrays: &arrays, metadata: &metadata };
            let read = match spec.mixer.spec().caches().as_slice() {
                [cache] => layer.read(*cache),
                _ => Err("layers that cache nothing or several things are not in such files".to_owned()),
            };
            read.map_err(|problem| broken(format!("layer {index}: {problem}")))
        });
        let layers: Vec<LayerCache> = layers.collect::<Result<_, _>>()?;
        if metadata.contains_key(&format!("1.{}", layers.len())) {
            return Err(broken(format!("it has more than this model's {} layers", layers.len())));
        }
        let tokens = metadata.get(&format!("0.{TOKENS}")).and_then(|text| serde_json::from_str(text).ok());
        let tokens = tokens.map(|tokens: Vec<u32>| tokens);
        let noted = tokens.as_ref().map(Vec::len);
        let mut lengths = layers.iter().filter_map(LayerCache::len);
        let len = lengths.next().or(noted).ok_or_else(|| {
            broken("it does not say how many tokens it was computed from; only omnibus notes that".to_owned())
        })?;
        if lengths.any(|other| other != len) || noted.is_some_and(|noted| noted != len) || len == 0 {
            return Err(broken("its layers were computed from different numbers of tokens".to_owned()));
        }
        // A window's layers hold a few tokens however many they claim, so no array bounds the number.
        if let Some(longest) = longest.filter(|longest| len > *longest) {
            return Err(broken(format!(
                "it was computed from {len} tokens, and a sequence of this model has at most {longest}; compute a \
                 shorter prompt with `omnibus cache prompt`, or raise --max-model-len if the model allows it"
            )));
        }
        Ok(Self { layers, len, tokens })
    }

    /// Tokens it was computed from.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: an empty prompt is not read.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Which tokens, if the file says so.
    pub fn tokens(&self) -> Option<&[u32]> {
        self.tokens.as_deref()
    }

    /// The longest block, of at most `most` tokens, in which the prompt comes out even.
    pub fn block_size(&self, most: usize) -> usize {
        (1..=most.max(1)).rev().find(|size| self.len.is_multiple_of(*size)).unwrap_or(1)
    }

    /// True if block `logical` of the prompt can be filled in a group with this spec.
    pub fn has(&self, spec: &KvCacheSpec, logical: usize, block_size: usize) -> bool {
        let end = (logical + 1) * block_size;
        if spec.kind.is_state() { end == self.len } else { end <= self.len }
    }

    /// Fills blocks.
    pub fn fill(&self, cache: &mut KvCache, blocks: &[BlockImport]) -> mlx::Result<()> {
        let size = cache.block_size();
        for group in 0..cache.groups().len() {
            let of_group: Vec<&BlockImport> = blocks.iter().filter(|placed| placed.group == group).collect();
            let ids: Vec<BlockId> = of_group.iter().map(|placed| placed.block).collect();
            let logical: Vec<usize> = of_group.iter().map(|placed| placed.logical).collect();
            cache.write_parts(group, &ids, |pool| {
                let layer =
                    self.layers.get(pool.layer).ok_or_else(|| mlx::Error::new("a layer is missing"))?;
                layer.blocks(&logical, size, self.len)
            })?;
        }
        Ok(())
    }

    /// Writes a file of a cache with these groups. `parts`: for each group its blocks with the last of the prompt's
    /// tokens, in order, or a recurrence's slot.
    pub fn write(
        path: &Path,
        groups: &[KvCacheGroup],
        tokens: &[u32],
        parts: &[BlockExport],
        metadata: &BTreeMap<String, String>,
    ) -> mlx::Result<()> {
        let mut file = layout::File::default();
        for (group, parts) in groups.iter().zip(parts) {
            for (layer, pair) in group.layers.iter().zip(parts.arrays_by_layer()) {
                LayerCache::of_blocks(group.spec.kind, pair, tokens.len())?.put(*layer, &mut file)?;
            }
        }
        for (name, value) in metadata {
            file.note(name, value);
        }
        file.note(TOKENS, &serde_json::json!(tokens).to_string());
        file.save(path)
    }
}
