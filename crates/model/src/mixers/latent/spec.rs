//! Multi-head latent attention: what a layer computes, and its rules.

use super::Indexer;
use crate::mixers::{OutputGate, Temperature};
use crate::rope::Position;
use crate::rules::Broken;
use crate::spec::Rules;

/// Multi-head latent attention. Keys and values of all heads come from one vector of `latent_dim` a position; a further
/// key of `rope_dim`, the same for all heads, carries the position.
#[derive(Debug, Clone, PartialEq)]
pub struct LatentAttention {
    /// Query heads.
    pub heads: usize,
    /// Width of a head's query and key without a position.
    pub nope_dim: usize,
    /// Width of the query and key that rotate.
    pub rope_dim: usize,
    /// Width of a head's value.
    pub v_head_dim: usize,
    /// Width of what is cached (`kv_lora_rank`).
    pub latent_dim: usize,
    /// Queries come from a vector this wide (`q_lora_rank`), if not from the stream.
    pub query_dim: Option<usize>,
    /// Scores are multiplied by this before the softmax.
    pub scale: f32,
    /// How the rotating part rotates.
    pub position: Position,
    /// Of the norms on the latent and on the queries' vector.
    pub norm_eps: f32,
    /// Latents and query vectors are multiplied by these after their norms.
    pub latent_scales: [f32; 2],
    /// Bias on the projections to and from narrow vectors.
    pub bias: bool,
    /// Queries grow with their position.
    pub temperature: Option<Temperature>,
    /// What the heads' output is multiplied by.
    pub out_gate: Option<OutputGate>,
    /// Which keys a row reads.
    pub reads: KeyReads,
}

/// Which keys a row reads.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyReads {
    /// All that it sees.
    All,
    /// Keys that an indexer chooses; needs `query_dim`.
    Chosen(Indexer),
    /// Keys that the indexer of an earlier layer chose, by its index in the blueprint (GLM-5.2).
    AsLayer(usize),
}

impl LatentAttention {
    pub(super) fn indexer(&self) -> Option<&Indexer> {
        match &self.reads {
            KeyReads::Chosen(indexer) => Some(indexer),
            KeyReads::All | KeyReads::AsLayer(_) => None,
        }
    }

    /// Width of a head's whole query.
    pub fn query_head_dim(&self) -> usize {
        self.nope_dim + self.rope_dim
    }
}

impl Rules for LatentAttention {
    fn check_rules(&self, broken: &mut Broken) {
        let heads = ("num_attention_heads", self.heads);
        broken.size(&[heads, ("qk_nope_head_dim", self.nope_dim)]);
        broken.size(&[heads, ("qk_rope_head_dim", self.rope_dim)]);
        broken.size(&[heads, ("v_head_dim", self.v_head_dim)]);
        broken.size(&[("kv_lora_rank", self.latent_dim)]);
        broken.size(&[("q_lora_rank", self.query_dim.unwrap_or(1))]);
        if let Some(indexer) = self.indexer() {
            indexer.check_rules(broken);
            broken.check(self.query_dim.is_some(), || "an indexer reads what `q_lora_rank` makes".to_owned());
        }
        broken.check(self.scale.is_finite() && self.scale > 0.0, || {
            format!("the scale of attention ({}) is positive", self.scale)
        });
        if let Position::Rope(rope) = &self.position {
            broken.check(
                rope.dims == self.rope_dim && rope.dims.is_multiple_of(2) && rope.is_sound(),
                || {
                    format!(
                        "`qk_rope_head_dim` ({}) is even, `rope_theta` and rope factors are positive",
                        self.rope_dim
                    )
                },
            );
        }
    }
}
