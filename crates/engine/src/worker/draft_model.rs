//! The device's side of a draft model: a smaller model with the same vocabulary, whose tokens the target model verifies.
//!
//! Its KV cache has as many blocks as the target model's, by the same numbers: a sequence's table serves both. It draws
//! tokens as the target model does, with the same parameters and random numbers, which accepts more of them than
//! independent draws.
//!
//! Invariant: it never writes what the target model reads, so what it computes costs time and changes no token.

use mlx::Array;
use omnibus_core::SequenceId;
use omnibus_kv::{BlockTable, CacheKind, KvFormat};
use omnibus_model::{Batch, Blueprint, KvCache, KvCacheGroup, Model, Segment, Source, take_rows};
use serde::{Deserialize, Serialize};

use super::padding::Padding;
use crate::error::StartError;
use crate::front::tokenizer_of;
use crate::sampler::{SampleRow, Sampler};

/// A draft model with its KV cache.
pub(super) struct DraftModel {
    model: Model,
    cache: KvCache,
    block_size: usize,
    /// Token ids of the target model.
    vocab: usize,
}

/// What a sequence's draft tokens follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DraftSegment {
    pub(super) sequence: SequenceId,
    /// Tokens that the draft model has not seen, the newest last. At least one.
    pub(super) tokens: Vec<u32>,
    /// Position of the first of them.
    pub(super) context: usize,
    /// Tokens of the prompt.
    pub(super) prompt: usize,
    /// Blocks of all positions that are computed, those of draft tokens included.
    pub(super) table: BlockTable,
    /// How many draft tokens; none only shows the model the tokens.
    pub(super) count: usize,
}

/// The group of the target model whose tables hold every position of a sequence.
pub(super) fn full_attention_group(groups: &[KvCacheGroup]) -> Option<usize> {
    groups.iter().position(|group| matches!(group.spec.kind, CacheKind::Full | CacheKind::Latent))
}

/// How a draft model stores keys and values.
pub(super) fn groups(model: &Model) -> Vec<KvCacheGroup> {
    model.blueprint().kv_cache_groups(KvFormat::Float(model.kv_float()))
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
        let cache = cache(&model, blocks, block_size)?;
        Ok(Self { model, cache, block_size, vocab })
    }

    /// The model.
    pub(super) fn blueprint(&self) -> &Blueprint {
        self.model.blueprint()
    }

    /// Drops the KV cache and allocates another.
    pub(super) fn reset(&mut self, blocks: usize) -> mlx::Result<()> {
        self.cache = cache(&self.model, 0, self.block_size)?;
        mlx::memory::clear_cache();
        self.cache = cache(&self.model, blocks, self.block_size)?;
        Ok(())
    }

    /// Shows the model the tokens of all segments, and computes their draft tokens: one of each segment a round. All rounds
    /// are one graph.
    pub(super) fn draft(
        &mut self,
        segments: &[DraftSegment],
        sampler: &Sampler,
        padding: Padding,
    ) -> mlx::Result<Vec<Vec<u32>>> {
        // Segments that a later round computes are the first rows of the one before.
        let mut order: Vec<usize> = (0..segments.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(segments[*at].count));
        let ordered: Vec<&DraftSegment> = order.iter().map(|at| &segments[*at]).collect();
        let mut rounds: Vec<Array> = Vec::new();
        let mut drafting = ordered.len();
        loop {
            let pass = match rounds.last() {
                None => self.first_pass(&ordered, padding)?,
                Some(before) => self.later_pass(
                    ordered.get(..drafting).unwrap_or_default(),
                    rounds.len(),
                    before,
                    padding,
                )?,
            };
            drafting = ordered.iter().filter(|of| of.count > rounds.len()).count();
            let Some(logits) = pass else { break };
            let logits = self.in_target_vocabulary(logits)?;
            let rows = ordered.iter().take(drafting).enumerate().map(|(row, of)| SampleRow {
                sequence: of.sequence,
                position: of.context + of.tokens.len() + rounds.len(),
                logits: row,
            });
            rounds.push(sampler.draft(&logits, &rows.collect::<Vec<_>>())?);
            drafting = ordered.iter().filter(|of| of.count > rounds.len()).count();
            if drafting == 0 {
                break;
            }
        }
        if rounds.is_empty() {
            // No step waits for tokens that are only shown.
            mlx::async_eval(self.cache.arrays())?;
            return Ok(vec![Vec::new(); segments.len()]);
        }
        mlx::eval(rounds.iter().chain(self.cache.arrays()))?;
        let mut drafts = vec![Vec::new(); segments.len()];
        for round in rounds {
            let tokens = round.to_vec::<i32>()?;
            for (at, token) in order.iter().zip(tokens) {
                drafts[*at].push(token.max(0) as u32);
            }
        }
        Ok(drafts)
    }

    /// The tokens of all segments. Gives the logits of the last row of each segment with draft tokens.
    fn first_pass(&mut self, ordered: &[&DraftSegment], padding: Padding) -> mlx::Result<Option<Array>> {
        let (mut tokens, mut segments, mut logits_at) = (Vec::new(), Vec::new(), Vec::new());
        for of in ordered {
            let samples = usize::from(of.count > 0);
            segments.push(self.segment(of, (tokens.len(), of.tokens.len()), of.context, samples));
            tokens.extend(of.tokens.iter().map(|token| *token as i32));
            logits_at.extend((of.count > 0).then(|| tokens.len() - 1));
        }
        tokens.resize(padding.of(tokens.len()), 0);
        let tokens = Array::from_slice(&tokens, &[tokens.len() as i32])?;
        self.forward(tokens, segments, logits_at)
    }

    /// One more row of each of these segments: its token is that of the same row of the round before.
    fn later_pass(
        &mut self,
        drafting: &[&DraftSegment],
        round: usize,
        before: &Array,
        padding: Padding,
    ) -> mlx::Result<Option<Array>> {
        let rows = drafting.len();
        let place = |row: usize| if row < rows { row as i32 } else { 0 };
        let places: Vec<i32> = (0..padding.of(rows)).map(place).collect();
        let tokens = match places.len() == before.size() {
            true => before.clone(),
            false => take_rows(before, &Array::from_slice(&places, &[places.len() as i32])?)?,
        };
        let context = |of: &DraftSegment| of.context + of.tokens.len() + round - 1;
        let segments = drafting.iter().enumerate();
        let segments = segments.map(|(row, of)| self.segment(of, (row, 1), context(of), 1)).collect();
        self.forward(tokens, segments, (0..rows).collect())
    }

    fn segment(
        &self,
        of: &DraftSegment,
        (first, len): (usize, usize),
        context: usize,
        samples: usize,
    ) -> Segment {
        let tables = vec![of.table.clone(); self.cache.groups().len()];
        Segment { first, len, context, prompt: of.prompt, samples, adapter: None, tables }
    }

    fn forward(
        &mut self,
        tokens: Array,
        segments: Vec<Segment>,
        logits_at: Vec<usize>,
    ) -> mlx::Result<Option<Array>> {
        let batch = Batch { tokens, segments, logits_at, multimodal: None, hidden: None };
        let pass = self.model.forward(&batch, &mut self.cache)?;
        Ok(pass.logits.map(|logits| logits.0))
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

fn cache(model: &Model, blocks: usize, block_size: usize) -> mlx::Result<KvCache> {
    let groups = groups(model).len();
    KvCache::new(model.blueprint(), &vec![blocks; groups], block_size, KvFormat::Float(model.kv_float()))
}
