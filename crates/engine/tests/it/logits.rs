//! The embedded model without an engine: what its logits are after some tokens.

use std::path::Path;

use mlx::Array;
use omnibus_kv::{BlockId, BlockTable, KvFormat};
use omnibus_model::{Batch, Kernels, KvCache, KvStorage, Model, Segment, Source};

const BLOCK_SIZE: usize = 16;

/// The embedded model.
pub struct Logits(Model);

impl Logits {
    pub fn load() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/models/omnibus-mini");
        Self(Model::load(&Source::Directory(path), Kernels::fastest()).unwrap())
    }

    /// The logits after the last token, computed in one step.
    pub fn after(&self, tokens: &[u32]) -> Vec<f32> {
        let model = &self.0;
        let storage = KvStorage::from(KvFormat::Float(model.kv_float()));
        let count = tokens.len().div_ceil(BLOCK_SIZE);
        let groups = model.blueprint().kv_cache_groups(storage);
        let mut cache =
            KvCache::new(model.blueprint(), &vec![count; groups.len()], BLOCK_SIZE, storage).unwrap();
        let blocks: Vec<BlockId> = (0..count as u32).map(BlockId).collect();
        let table = |kind| BlockTable { blocks: blocks.clone(), ..BlockTable::new(kind, BLOCK_SIZE) };
        let tables = groups.iter().map(|group| table(group.spec.kind)).collect();
        let (len, context, samples) = (tokens.len(), 0, 1);
        let segment = Segment { first: 0, len, context, prompt: len, samples, adapter: None, tables };
        let ids: Vec<i32> = tokens.iter().map(|token| *token as i32).collect();
        let batch = Batch {
            tokens: Array::from_slice(&ids, &[len as i32]).unwrap(),
            segments: vec![segment],
            logits_at: vec![len - 1],
            multimodal: None,
            hidden: None,
        };
        model.forward(&batch, &mut cache).unwrap().logits.unwrap().0.to_vec::<f32>().unwrap()
    }
}
