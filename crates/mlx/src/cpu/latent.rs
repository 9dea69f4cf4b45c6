//! [`PagedLatentAttention`]: latent attention between the projections to and from each head's own width, in one node.

use omnibus_cpu_kernels::{self as kernels, Kernel, Latent, Packing, Projected, Store};

use super::attention::{AttentionMetadata, HeadNorm, Rope};
use super::{Op, Output, node, size};
use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::Result;

/// Norms latents, rotates queries and keys, writes latents and keys to their pools in place, and attends causally, as
/// [`PagedAttention`](super::PagedAttention) does. A score is the sum of two products: of the absorbed query with the
/// latent, and of the rotated query with the rotated key; what is read are latents.
///
/// Source: arXiv 2405.04434 §2.1.2.
#[derive(Debug)]
pub struct PagedLatentAttention<'a> {
    /// `[rows, heads, nope_dim + rope_dim]`: queries as projected, of which the last part rotates.
    pub queries: &'a Array,
    /// `[rows, heads, latent_dim]`: the first part of queries, times each head's projection from latents.
    pub absorbed: &'a Array,
    /// `[rows, latent_dim + rope_dim]`: latents and keys as projected.
    pub rows: &'a Array,
    /// Of latents; `[latent_dim]`.
    pub norm: HeadNorm<'a>,
    /// What normed latents are multiplied by.
    pub latent_scale: f32,
    /// i32 `[rows]`, for the rotation only.
    pub positions: &'a Array,
    /// Rotation of the last part of queries, and of keys.
    pub rope: Option<Rope<'a>>,
    /// Multiplies the scores.
    pub scale: f32,
    /// `[blocks, block_size, 1, latent_dim]`, of any float type; packed, uint32 words in place of the last axis.
    pub latent_pool: Array,
    /// `[blocks, block_size, 1, rope_dim]`, of the same type.
    pub key_pool: Array,
    /// How the pools are packed, if they are.
    pub packing: Option<Packing>,
    /// Where latents and keys are.
    pub metadata: AttentionMetadata<'a>,
}

/// What [`PagedLatentAttention::run`] gives.
#[derive(Debug)]
pub struct LatentOutput {
    /// `[rows, heads, latent_dim]`
    pub out: Array,
    /// The pool, with the rows' latents.
    pub latent_pool: Array,
    /// The pool, with the rows' keys.
    pub key_pool: Array,
}

impl PagedLatentAttention<'_> {
    /// Adds the node to the graph.
    pub fn run(self) -> Result<LatentOutput> {
        let AttentionMetadata { slots, segments, tables, .. } = self.metadata;
        let mut inputs =
            vec![self.queries, self.positions, slots, segments, tables, &self.key_pool, &self.latent_pool];
        inputs.extend(self.rope.map(|rope| rope.freqs));
        inputs.extend([self.absorbed, self.rows, self.norm.weight]);
        let op = Op { name: "cpu::paged_latent_attention", inputs: &inputs };
        let kernel = self.check(&op)?;
        let out = [size(kernel.rows)?, size(kernel.heads)?, size(kernel.v_dim)?];
        let dtype = self.key_pool.dtype()?;
        let pool = |i: usize| Output { shape: inputs[i].shape(), dtype, shares: Some(i) };
        let outputs = [Output { shape: &out, dtype: self.queries.dtype()?, shares: None }, pool(5), pool(6)];
        match <[Array; 3]>::try_from(node(&op, Kernel::Attention(kernel), &inputs, &outputs)?) {
            Ok([out, key_pool, latent_pool]) => Ok(LatentOutput { out, latent_pool, key_pool }),
            Err(_) => Err(op.fail("MLX did not make three arrays")),
        }
    }

    fn check(&self, op: &Op) -> Result<kernels::Attention> {
        let float = op.float(self.queries)?;
        let &[rows, heads, query_dim] = self.queries.shape() else {
            return Err(op.fail("queries have three axes"));
        };
        let &[latent_dim] = self.norm.weight.shape() else {
            return Err(op.fail("the norm has a weight for each element of a latent"));
        };
        let rope_dim = self.rows.dim(-1)? - latent_dim;
        op.require(self.absorbed.shape() == [rows, heads, latent_dim], "a latent for each query")?;
        op.require(self.rows.shape() == [rows, latent_dim + rope_dim], "a row for each query")?;
        op.require(heads > 0 && latent_dim > 0, "heads and latents hold something")?;
        op.require(rope_dim > 0 && query_dim >= rope_dim, "the last part of a query is as wide as a key")?;
        for other in [self.absorbed, self.rows] {
            op.require(op.float(other)? == float, "queries and rows have one dtype")?;
        }
        if let Some(rope) = self.rope {
            op.require(rope.axes.is_none(), "keys of latents turn by one position")?;
            rope.check(op, rope_dim)?;
        }
        self.metadata.check(op, (self.positions, self.rope), rows)?;
        op.require(self.metadata.ends.is_none(), "attention to latents is causal")?;
        let (blocks, block_size, store) = self.check_pools(op, latent_dim, rope_dim)?;
        let AttentionMetadata { segments, tables, .. } = self.metadata;
        Ok(kernels::Attention {
            float,
            pool: store,
            rows: rows as usize,
            heads: heads as usize,
            kv_heads: 1,
            head_dim: rope_dim as usize,
            v_dim: latent_dim as usize,
            projected: Projected::QueriesKeysValues,
            blocks: blocks as usize,
            block_size: block_size as usize,
            segments: segments.dim(0)? as usize,
            tables: tables.size(),
            q_norm: None,
            k_norm: None,
            v_norm: None,
            rope: self.rope.map(Rope::kernel),
            scale: self.scale,
            softcap: None,
            window: None,
            sink_tokens: 0,
            sinks: None,
            ends: None,
            latent: Some(Latent {
                nope_dim: (query_dim - rope_dim) as usize,
                norm: kernels::HeadNorm { weight: op.float(self.norm.weight)?, eps: self.norm.eps },
                scale: self.latent_scale,
            }),
        })
    }

    /// Blocks, tokens of a block, and how the pools hold latents and keys.
    fn check_pools(&self, op: &Op, latent_dim: i32, rope_dim: i32) -> Result<(i32, i32, Store)> {
        let &[blocks, block_size, ..] = self.key_pool.shape() else {
            return Err(op.fail("the pools have four axes"));
        };
        op.require(block_size > 0, "a block holds something")?;
        let (store, stored) = match self.packing {
            None => (Store::Float(op.float(&self.key_pool)?), [latent_dim, rope_dim]),
            Some(packing) => {
                let divides = |width: i32| (width as usize).is_multiple_of(packing.group);
                let fits = matches!(packing.bits, 4 | 8)
                    && packing.group > 0
                    && packing.group.is_multiple_of(8)
                    && divides(latent_dim)
                    && divides(rope_dim);
                op.require(fits, "4 or 8 bits, in groups of whole words that divide latents and keys")?;
                op.require(self.key_pool.dtype()? == Dtype::U32, "packed pools are uint32")?;
                let words = |width: i32| size(packing.words(width as usize));
                (Store::Packed(packing), [words(latent_dim)?, words(rope_dim)?])
            }
        };
        let [latent_stored, key_stored] = stored;
        let fits = self.latent_pool.shape() == [blocks, block_size, 1, latent_stored]
            && self.key_pool.shape() == [blocks, block_size, 1, key_stored]
            && self.latent_pool.dtype()? == self.key_pool.dtype()?;
        op.require(fits, "the pools are [blocks, block_size, 1, dim] of one dtype")?;
        Ok((blocks, block_size, store))
    }
}
