//! The device's side of a draft model: a smaller model with the same vocabulary, whose tokens the target model verifies.
//!
//! Its KV cache has as many blocks as the target model's, by the same numbers: a sequence's table serves both. It draws
//! tokens as the target model does, with the same parameters and random numbers, which accepts more of them than
//! independent draws.
//!
//! Invariant: it never writes what the target model reads, so what it computes costs time and changes no token.

use mlx::Array;
use omnibus_core::Padding;
use omnibus_kv::{CacheKind, KvFormat};
use omnibus_model::{Batch, KvCache, KvCacheGroup, Model, Segment, Source};

use super::rounds::{DraftPasses, DraftSegment, FirstRows, first_rows, later_segments, rows_of_round, taken};
use crate::error::StartError;
use crate::front::tokenizer_of;

/// A draft model with its KV cache.
pub(in crate::worker) struct DraftModel {
    model: Model,
    cache: KvCache,
    block_size: usize,
    /// Token ids of the target model.
    vocab: usize,
}

/// The group of the target model whose tables hold every position of a sequence.
pub(in crate::worker) fn full_attention_group(groups: &[KvCacheGroup]) -> Option<usize> {
    groups.iter().position(|group| matches!(group.spec.kind, CacheKind::Full | CacheKind::Latent))
}

/// How a draft model stores keys and values.
pub(in crate::worker) fn groups(model: &Model) -> Vec<KvCacheGroup> {
    model.blueprint().kv_cache_groups(floats(model))
}

/// Keys and values of a network as they are computed.
pub(super) fn floats(model: &Model) -> KvFormat {
    KvFormat::Float(model.kv_float())
}

/// Refuses a draft model that cannot serve this one, with a line that says what differs.
pub(super) fn check(draft: &Model, of: &Source, target: &Model, source: &Source) -> Result<(), StartError> {
    let name = of.path("config.json");
    let refuse = |why: &str| Err(StartError::new(format!("the draft model {} {why}", name.display())));
    if groups(draft).iter().any(|group| group.spec.kind.is_state()) {
        return refuse(
            "has recurrent layers, whose states cannot follow rejected tokens; choose one with attention alone",
        );
    }
    if draft.blueprint().has_cross_attention() || !draft.blueprint().shares_prefixes() {
        return refuse(
            "has layers that depend on more than the tokens before a row; choose one with attention alone",
        );
    }
    let (ours, theirs) = (tokenizer_of(source)?, tokenizer_of(of)?);
    let ids = target.blueprint().vocab.min(draft.blueprint().vocab) as u32;
    for id in 0..ids {
        let (here, there) = (ours.id_to_token(id), theirs.id_to_token(id));
        // Rows beyond a tokenizer's own tokens are padding.
        if here != there && here.is_some() {
            let shown =
                |token: Option<String>| token.map_or("nothing".to_owned(), |token| format!("`{token}`"));
            let (here, there) = (shown(here), shown(there));
            return refuse(&format!(
                "has another vocabulary: token {id} is {there}, and {here} in the target model"
            ));
        }
    }
    Ok(())
}

impl DraftModel {
    /// With a KV cache of so many blocks in each group.
    pub(super) fn new(model: Model, vocab: usize, blocks: usize, block_size: usize) -> mlx::Result<Self> {
        let cache = cache(&model, blocks, block_size, floats(&model))?;
        Ok(Self { model, cache, block_size, vocab })
    }

    /// Its layers, shapes and caches.
    pub(super) fn network(&self) -> &Model {
        &self.model
    }

    /// Drops the KV cache and allocates another.
    pub(super) fn reset(&mut self, blocks: usize) -> mlx::Result<()> {
        self.cache = cache(&self.model, 0, self.block_size, floats(&self.model))?;
        mlx::memory::clear_cache();
        self.cache = cache(&self.model, blocks, self.block_size, floats(&self.model))?;
        Ok(())
    }

    fn forward(
        &mut self,
        tokens: Array,
        segments: Vec<Segment>,
        logits_at: Vec<usize>,
    ) -> mlx::Result<Option<Array>> {
        let batch = Batch { tokens, segments, logits_at, multimodal: None, hidden: None };
        let pass = self.model.forward(&batch, &mut self.cache)?;
        pass.logits.map(|logits| self.in_target_vocabulary(logits.0)).transpose()
    }

    /// Logits of the target model's token ids: the rows behind a tokenizer's own tokens differ among models.
    fn in_target_vocabulary(&self, logits: Array) -> mlx::Result<Array> {
        let [rows, own] = logits.dims()?;
        let vocab = self.vocab as i32;
        match own.cmp(&vocab) {
            std::cmp::Ordering::Equal => Ok(logits),
            std::cmp::Ordering::Greater => logits.slice(&[0, 0], &[rows, vocab]),
            std::cmp::Ordering::Less => logits.pad(&[(0, 0), (0, vocab - own)], f32::NEG_INFINITY),
        }
    }
}

impl DraftPasses for DraftModel {
    fn written(&self) -> Vec<&Array> {
        self.cache.arrays().collect()
    }

    fn first_pass(&mut self, ordered: &[&DraftSegment], padding: Padding) -> mlx::Result<Option<Array>> {
        let FirstRows { tokens, segments, logits_at } =
            first_rows(ordered, self.cache.groups().len(), padding)?;
        self.forward(tokens, segments, logits_at)
    }

    fn later_pass(
        &mut self,
        drafting: &[&DraftSegment],
        round: usize,
        before: &Array,
        padding: Padding,
    ) -> mlx::Result<Option<Array>> {
        let rows = rows_of_round(drafting.len(), before, padding)?;
        let tokens = taken(before, rows.as_ref())?;
        let segments = later_segments(drafting, self.cache.groups().len(), round);
        self.forward(tokens, segments, (0..drafting.len()).collect())
    }
}

/// A KV cache of a network that drafts, with so many blocks in each group.
pub(super) fn cache(
    model: &Model,
    blocks: usize,
    block_size: usize,
    format: KvFormat,
) -> mlx::Result<KvCache> {
    let groups = model.blueprint().kv_cache_groups(format).len();
    KvCache::new(model.blueprint(), &vec![blocks; groups], block_size, format)
}
