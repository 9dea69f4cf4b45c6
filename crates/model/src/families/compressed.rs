//! Configs of attention to compressed entries, as DeepSeek-V4.1 spells them: which layers make entries and choose among them.

use omnibus_kv::CacheKind;

use crate::*;

/// Attention to a window, and beyond it to what a layer reads.
pub(super) fn compressed_attention(
    cfg: &Config,
    dims: &Dims,
    entries: Option<EntryReads>,
) -> Result<CompressedAttention, ConfigError> {
    let window = CacheKind::SlidingWindow { tokens: cfg.or("sliding_window", 128)?, sinks: 0 };
    let theta = cfg.or("rope_theta", 10_000.0)?;
    let compressed_theta = cfg.or("compress_rope_theta", 160_000.0)?;
    let scaling = Rope::read_scaling(cfg)?.without_magnitude();
    let (base, scaling) =
        if entries.is_some() { (compressed_theta, scaling) } else { (theta, Scaling::None) };
    Ok(CompressedAttention {
        heads: dims.heads,
        window: RowCache { width: dims.head_dim, kind: window },
        query_dim: cfg.req("q_lora_rank")?,
        rope: Rope { scaling, ..Rope::new(cfg.req("qk_rope_head_dim")?, base).interleaved() },
        out_groups: cfg.or("o_groups", 8)?,
        out_rank: cfg.req("o_lora_rank")?,
        norm_eps: dims.norm.eps(),
        entries,
    })
}

/// Which layers make entries and choose among them; the others read what the last of those made and chose.
pub(super) struct EntrySources {
    ratios: Vec<usize>,
    compressors: Vec<usize>,
    choosers: Vec<usize>,
    entry_width: usize,
    indexer: EntryIndexer,
    /// The layer that nominates candidates, with the blocks that it keeps and their size.
    nominator: Option<(usize, usize, usize)>,
}

impl EntrySources {
    pub(super) fn read(cfg: &Config) -> Result<Self, ConfigError> {
        // −1 is none.
        let nominator = cfg.opt::<usize>("candidate_source_layer_id").unwrap_or(None);
        let (blocks, size) = (cfg.or("candidate_topk_blocks", 2048)?, cfg.or("candidate_block_size", 8)?);
        Ok(Self {
            ratios: cfg.or("compress_ratios", Vec::new())?,
            compressors: cfg.or("kv_source_layer_ids", Vec::new())?,
            choosers: cfg.or("index_source_layer_ids", Vec::new())?,
            entry_width: cfg.req("head_dim")?,
            indexer: EntryIndexer {
                heads: cfg.or("index_n_heads", 32)?,
                width: cfg.or("index_head_dim", 128)?,
                kept: cfg.or("index_topk", 512)?,
                candidates: Candidates::All,
            },
            nominator: nominator.filter(|_| blocks > 0).map(|layer| (layer, blocks, size)),
        })
    }

    /// What a layer reads beyond its window.
    pub(super) fn reads(&self, layer: usize) -> Result<Option<EntryReads>, ConfigError> {
        let ratio = self.ratios.get(layer).copied().unwrap_or(0);
        if ratio == 0 {
            return Ok(None);
        }
        let chooser =
            last(&self.choosers, layer).ok_or_else(|| unsourced("index_source_layer_ids", layer))?;
        let source = last(&self.compressors, layer).ok_or_else(|| unsourced("kv_source_layer_ids", layer))?;
        // Keys of entries are made with the entries.
        let shared = |at: usize| last(&self.compressors, at) == Some(source);
        if !shared(chooser) || !self.choosers.contains(&source) || self.ratios.get(source) != Some(&ratio) {
            return Err(unsourced("kv_source_layer_ids", layer));
        }
        let candidates = match self.nominator {
            Some((nominator, blocks, size)) if nominator == layer => Candidates::Nominates { blocks, size },
            Some((nominator, ..)) if nominator < layer && shared(nominator) => Candidates::Of(nominator),
            Some(_) | None => Candidates::All,
        };
        let rows = |width: usize| RowCache { width, kind: CacheKind::Latent };
        Ok(Some(EntryReads {
            ratio,
            source,
            compressor: (source == layer).then(|| Compressor {
                open: (ratio > 1).then_some(OpenGroup { ratio, width: self.entry_width }),
                entries: rows(self.entry_width),
                keys: Some(rows(self.indexer.width)),
            }),
            chooser,
            indexer: (chooser == layer).then(|| EntryIndexer { candidates, ..self.indexer.clone() }),
        }))
    }
}

/// The last of these layers up to one.
fn last(layers: &[usize], layer: usize) -> Option<usize> {
    layers.iter().copied().filter(|source| *source <= layer).max()
}

fn unsourced(field: &str, layer: usize) -> ConfigError {
    let rule =
        format!("`{field}` names the layer whose entries, keys of entries and choices layer {layer} reads");
    ConfigError::Inconsistent { rules: vec![rule] }
}
