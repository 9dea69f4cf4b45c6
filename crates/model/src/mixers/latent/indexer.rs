//! The indexer of sparse latent attention, as data: each row reads the keys with the best scores.
//!
//! Source: DeepSeek-V3.2-Exp, §1.

use crate::manifest::Scope;
use crate::mixers::row_cache::RowCache;
use crate::norm::Norm;
use crate::rope::Rope;
use crate::rules::Broken;

/// Of its norm on keys.
pub(super) const NORM: Norm = Norm::Layer { eps: 1e-5, bias: true };

/// Scores of keys are sums over heads of `relu(query · key)`, each times a weight of the row.
#[derive(Debug, Clone, PartialEq)]
pub struct Indexer {
    /// Its heads.
    pub heads: usize,
    /// What is cached.
    pub keys: RowCache,
    /// Rotates the first part of queries and keys.
    pub rope: Rope,
    /// A row reads this many keys.
    pub kept: usize,
}

impl Indexer {
    pub(super) fn check_rules(&self, broken: &mut Broken) {
        broken.size(&[("index_n_heads", self.heads), ("index_head_dim", self.keys.width / 2)]);
        broken.size(&[("index_topk", self.kept)]);
        broken.position(&crate::rope::Position::Rope(self.rope.clone()), self.keys.width);
    }

    pub(super) fn name_tensors(&self, at: &mut Scope, query_dim: usize) {
        let (hidden, width) = (at.hidden, self.keys.width);
        at.replicated("wq_b", query_dim, self.heads * width, false);
        at.replicated("wk", hidden, width, false);
        at.norm("k_norm", NORM, width);
        at.replicated("weights_proj", hidden, self.heads, false);
    }
}
