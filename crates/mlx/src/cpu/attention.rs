//! [`PagedAttention`]: everything between the merged projection and the output projection, in one node.

use omnibus_cpu_kernels::{
    self as kernels, Ends, Kernel, Packing, Projected, RotaryAxes, RotaryPairing, Store,
};

use super::{Op, Output, node, size};
use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::Result;

/// RMS norm of each head.
#[derive(Clone, Copy, Debug)]
pub struct HeadNorm<'a> {
    /// `[head_dim]`
    pub weight: &'a Array,
    /// Added to the mean square.
    pub eps: f32,
}

/// Rotary positions.
#[derive(Clone, Copy, Debug)]
pub struct Rope<'a> {
    /// f32 `[dims / 2]`: a position's angle for pair `i` is `position * freqs[i]`.
    pub freqs: &'a Array,
    /// How many elements of a head rotate; the others stay.
    pub dims: i32,
    /// Which elements rotate together.
    pub pairs: RotaryPairing,
    /// Multiplies sine and cosine (yarn, longrope); 1 otherwise.
    pub magnitude: f32,
    /// i32 `[dims / 2]`: which of a row's three positions each pair turns by, 0 to 2; `None` where a row has one.
    pub axes: Option<&'a Array>,
}

/// Where the keys and values of each row's sequence are.
#[derive(Clone, Copy, Debug)]
pub struct AttentionMetadata<'a> {
    /// i32 `[rows]`: `block * block_size + offset` of a row's own key and value. A row whose slot is negative or beyond
    /// the pool is not written; no two rows have the same slot within it.
    pub slots: &'a Array,
    /// i32 `[n, 5]`: first row, length, first position, first entry in `tables`, and which logical block that
    /// entry is, or, with sink tokens, how many blocks are freed after their blocks. Rows of no segment give zeros.
    pub segments: &'a Array,
    /// i32 `[m]`: ids of blocks.
    pub tables: &'a Array,
    /// i32 `[rows]`: for rows that see later keys of their segment, the position after the last of them; at most their own
    /// for others. Then whether windows hide some of these keys.
    pub ends: Option<(&'a Array, Ends)>,
}

impl Rope<'_> {
    /// `width`: of what rotates.
    pub(super) fn check(&self, op: &Op, width: i32) -> Result<()> {
        let fits = self.dims % 2 == 0 && (0..=width).contains(&self.dims);
        op.require(fits, "an even number of elements rotates, no more than a head has")?;
        let freqs = self.freqs.shape() == [self.dims / 2] && self.freqs.dtype()? == Dtype::F32;
        op.require(freqs, "frequencies are float32, one per pair")?;
        let Some(axes) = self.axes else { return Ok(()) };
        let fits = axes.shape() == [self.dims / 2] && axes.dtype()? == Dtype::I32;
        op.require(fits, "axes are int32, one per pair")
    }

    pub(super) fn kernel(self) -> kernels::Rope {
        let axes = if self.axes.is_some() { RotaryAxes::Three } else { RotaryAxes::One };
        kernels::Rope { dims: self.dims as usize, pairs: self.pairs, magnitude: self.magnitude, axes }
    }

    /// The shape of positions of `rows` rows.
    fn positions_shape(&self, rows: i32) -> Vec<i32> {
        if self.axes.is_some() { vec![3, rows] } else { vec![rows] }
    }
}

impl AttentionMetadata<'_> {
    /// `positions`: by which `rope` turns; `rows`: how many there are.
    pub(super) fn check(
        &self,
        op: &Op,
        (positions, rope): (&Array, Option<Rope<'_>>),
        rows: i32,
    ) -> Result<()> {
        let AttentionMetadata { slots, segments, tables, ends } = *self;
        let ends = ends.map(|(ends, _)| ends);
        for numbers in [positions, slots, segments, tables].into_iter().chain(ends) {
            op.require(
                numbers.dtype()? == Dtype::I32,
                "positions, slots, segments, tables and ends are int32",
            )?;
        }
        let wanted = rope.map_or(vec![rows], |rope| rope.positions_shape(rows));
        op.require(positions.shape() == wanted, "a position per row, or three")?;
        op.require(
            std::iter::once(slots).chain(ends).all(|of_rows| of_rows.shape() == [rows]),
            "a slot and an end per row",
        )?;
        op.require(matches!(segments.shape(), [_, 5]), "segments have five numbers each")?;
        op.require(tables.ndim() == 1, "tables have one axis")
    }
}

/// Norms and rotates queries and keys, writes keys and values, if rows have them, to their pools in place, and attends causally:
/// a row at position p of its segment sees the keys 0..=p, or with a window of w the last w of them and the first
/// `sink_tokens`. With [ends](AttentionMetadata::ends) it sees later keys, too.
///
/// The pools are never copied, even if a step that reads them is still running, so only the arrays returned
/// may be used afterwards.
#[derive(Debug)]
pub struct PagedAttention<'a> {
    /// `[rows, (heads + kv_heads) * head_dim + kv_heads * v_dim]`: q, k and v as projected, those of them that there are.
    pub qkv: &'a Array,
    /// Which of them there are. Where they are queries alone, the pools stay as they are.
    pub projected: Projected,
    /// Query heads.
    pub heads: i32,
    /// Key and value heads, which divide `heads`.
    pub kv_heads: i32,
    /// Elements of a query's or key's head.
    pub head_dim: i32,
    /// Norm of the queries.
    pub q_norm: Option<HeadNorm<'a>>,
    /// Norm of the keys.
    pub k_norm: Option<HeadNorm<'a>>,
    /// RMS norm of each head of values, which has no weight: what is added to the mean square.
    pub v_norm: Option<f32>,
    /// i32 `[rows]`, or `[3, rows]` with [axes](Rope::axes), for the rotation only.
    pub positions: &'a Array,
    /// Rotation of queries and keys.
    pub rope: Option<Rope<'a>>,
    /// Multiplies the scores.
    pub scale: f32,
    /// Scores become `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// How many keys a query sees, its own included.
    pub window: Option<i32>,
    /// First keys of its sequence that a query with a window sees as well.
    pub sink_tokens: i32,
    /// `[heads]`: a score per head that takes part in the softmax but has no value.
    pub sinks: Option<&'a Array>,
    /// `[blocks, block_size, kv_heads, head_dim]`, of any float type; packed, uint32 words in place of the last
    /// axis.
    pub k_pool: Array,
    /// `[blocks, block_size, kv_heads, v_dim]`, of the same type; packed, values are as wide as keys.
    pub v_pool: Array,
    /// How the pools are packed, if they are.
    pub packing: Option<Packing>,
    /// Where keys and values are.
    pub metadata: AttentionMetadata<'a>,
}

/// What [`PagedAttention::run`] gives.
#[derive(Debug)]
pub struct AttentionOutput {
    /// `[rows, heads * v_dim]`
    pub out: Array,
    /// The pool, with the rows' keys.
    pub k_pool: Array,
    /// The pool, with the rows' values.
    pub v_pool: Array,
}

impl PagedAttention<'_> {
    /// Adds the node to the graph.
    pub fn run(self) -> Result<AttentionOutput> {
        let AttentionMetadata { slots, segments, tables, ends } = self.metadata;
        let mut inputs = vec![self.qkv, self.positions, slots, segments, tables, &self.k_pool, &self.v_pool];
        inputs.extend(self.q_norm.map(|norm| norm.weight));
        inputs.extend(self.k_norm.map(|norm| norm.weight));
        inputs.extend(self.rope.map(|rope| rope.freqs));
        inputs.extend(self.rope.and_then(|rope| rope.axes));
        inputs.extend(self.sinks);
        inputs.extend(ends.map(|(ends, _)| ends));
        let op = Op { name: "cpu::paged_attention", inputs: &inputs };
        let kernel = self.check(&op)?;
        let out = [size(kernel.rows)?, size(kernel.heads * kernel.v_dim)?];
        let dtype = self.k_pool.dtype()?;
        let pool = |i: usize| Output { shape: inputs[i].shape(), dtype, shares: Some(i) };
        let outputs = [Output { shape: &out, dtype: self.qkv.dtype()?, shares: None }, pool(5), pool(6)];
        match <[Array; 3]>::try_from(node(&op, Kernel::Attention(kernel), &inputs, &outputs)?) {
            Ok([out, k_pool, v_pool]) => Ok(AttentionOutput { out, k_pool, v_pool }),
            Err(_) => Err(op.fail("MLX did not make three arrays")),
        }
    }

    fn check(&self, op: &Op) -> Result<kernels::Attention> {
        let pools = self.check_pools(op)?;
        let rows = self.check_rows(op, &pools)?;
        self.check_options(op)?;
        let AttentionMetadata { segments, tables, .. } = self.metadata;
        let norm = |norm: Option<HeadNorm>| -> Result<_> {
            let Some(HeadNorm { weight, eps }) = norm else { return Ok(None) };
            Ok(Some(kernels::HeadNorm { weight: op.float(weight)?, eps }))
        };
        Ok(kernels::Attention {
            float: op.float(self.qkv)?,
            pool: pools.store,
            rows,
            heads: self.heads as usize,
            kv_heads: self.kv_heads as usize,
            head_dim: self.head_dim as usize,
            v_dim: pools.v_dim as usize,
            projected: self.projected,
            blocks: pools.blocks as usize,
            block_size: pools.block_size as usize,
            segments: segments.dim(0)? as usize,
            tables: tables.size(),
            q_norm: norm(self.q_norm)?,
            k_norm: norm(self.k_norm)?,
            v_norm: self.v_norm,
            rope: self.rope.map(Rope::kernel),
            scale: self.scale,
            softcap: self.softcap,
            window: self.window.map(|window| window as usize),
            sink_tokens: self.sink_tokens as usize,
            sinks: self.sinks.map(|sinks| op.float(sinks)).transpose()?,
            ends: self.metadata.ends.map(|(_, reach)| reach),
            latent: None,
        })
    }

    fn check_pools(&self, op: &Op) -> Result<Pools> {
        let (heads, kv_heads, head_dim) = (self.heads, self.kv_heads, self.head_dim);
        op.require(
            heads > 0 && kv_heads > 0 && head_dim > 0 && heads % kv_heads == 0,
            "kv heads divide heads",
        )?;
        let &[blocks, block_size, v_heads, v_stored] = self.v_pool.shape() else {
            return Err(op.fail("the pools have four axes"));
        };
        let (v_dim, k_stored, store) = match self.packing {
            None => (v_stored, head_dim, Store::Float(op.float(&self.k_pool)?)),
            Some(packing) => {
                let fits = matches!(packing.bits, 4 | 8)
                    && packing.group > 0
                    && packing.group.is_multiple_of(8)
                    && (head_dim as usize).is_multiple_of(packing.group);
                op.require(fits, "4 or 8 bits, in groups of whole words that divide a head")?;
                op.require(self.k_pool.dtype()? == Dtype::U32, "packed pools are uint32")?;
                let words = size(packing.words(head_dim as usize))?;
                op.require(v_stored == words, "a packed head has its words")?;
                (head_dim, words, Store::Packed(packing))
            }
        };
        op.require(block_size > 0 && v_dim > 0, "a block holds something")?;
        let pools = self.k_pool.shape() == [blocks, block_size, kv_heads, k_stored]
            && v_heads == kv_heads
            && self.k_pool.dtype()? == self.v_pool.dtype()?;
        op.require(pools, "the pools are [blocks, block_size, kv_heads, dim] of one dtype")?;
        Ok(Pools { blocks, block_size, v_dim, store })
    }

    /// How many rows there are.
    fn check_rows(&self, op: &Op, pools: &Pools) -> Result<usize> {
        let (heads, kv_heads) = (i64::from(self.heads), i64::from(self.kv_heads));
        let &[rows, width] = self.qkv.shape() else { return Err(op.fail("qkv has two axes")) };
        let (head_dim, v_dim) = (i64::from(self.head_dim), i64::from(pools.v_dim));
        let of_keys = match self.projected {
            Projected::QueriesKeysValues => head_dim + v_dim,
            Projected::QueriesAndKeys => {
                op.require(head_dim == v_dim, "keys that are values are as wide")?;
                head_dim
            }
            Projected::Queries => 0,
        };
        let want = heads * head_dim + kv_heads * of_keys;
        op.require(i64::from(width) == want, "a row of qkv holds the heads that are projected")?;
        self.metadata.check(op, (self.positions, self.rope), rows)?;
        Ok(rows as usize)
    }

    fn check_options(&self, op: &Op) -> Result<()> {
        for norm in [self.q_norm, self.k_norm].into_iter().flatten() {
            op.require(norm.weight.shape() == [self.head_dim], "norms have the length of a head")?;
        }
        if let Some(rope) = self.rope {
            rope.check(op, self.head_dim)?;
        }
        if let Some(sinks) = self.sinks {
            op.require(sinks.shape() == [self.heads], "a sink per head")?;
        }
        op.require(self.window.is_none_or(|window| window > 0), "a window holds a key")?;
        op.require(
            self.sink_tokens >= 0 && (self.sink_tokens == 0 || self.window.is_some()),
            "sink tokens need a window",
        )
    }
}

/// Sizes of the pools, and how they hold keys and values.
struct Pools {
    blocks: i32,
    block_size: i32,
    v_dim: i32,
    store: Store,
}
