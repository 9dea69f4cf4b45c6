//! Attention of rows to all rows of their entry, by the kernel of paged attention: an entry is a sequence whose keys and
//! values are one block, and all its rows see its end.

use mlx::{Array, Dtype, cpu};

/// `[count, heads, len, head_dim]` each and together; `None` where queries and keys are of other rows, or of other dtypes.
pub(super) fn each_other([q, k, v]: [&Array; 3], scale: f32) -> mlx::Result<Option<Array>> {
    let [count, heads, len, head_dim] = q.dims()?;
    let same = [k, v].iter().all(|of| of.shape() == q.shape() && of.dtype().ok() == q.dtype().ok());
    if !same || !matches!(q.dtype()?, Dtype::F32 | Dtype::F16 | Dtype::Bf16) {
        return Ok(None);
    }
    let (rows, width) = (count * len, heads * head_dim);
    let by_row = |x: &Array| x.transpose(&[0, 2, 1, 3])?.reshape(&[rows, width]);
    let [q, k, v] = [by_row(q)?, by_row(k)?, by_row(v)?];
    let pool = |x: &Array| x.reshape(&[count, len, heads, head_dim])?.contiguous();
    let places = Array::arange(0..rows, Dtype::I32)?;
    let segments: Vec<i32> = (0..count).flat_map(|entry| [entry * len, len, 0, entry, 0]).collect();
    let ends = Array::from_slice(&vec![len; rows as usize], &[rows])?;
    let attended = cpu::PagedAttention {
        qkv: &mlx::concatenate(&[&q, &k, &v], 1)?,
        projected: cpu::Projected::QueriesKeysValues,
        heads,
        kv_heads: heads,
        head_dim,
        q_norm: None,
        k_norm: None,
        v_norm: None,
        positions: &places,
        rope: None,
        scale,
        softcap: None,
        window: None,
        sink_tokens: 0,
        sinks: None,
        // They get what they have.
        k_pool: pool(&k)?,
        v_pool: pool(&v)?,
        packing: None,
        metadata: cpu::AttentionMetadata {
            slots: &places,
            segments: &Array::from_slice(&segments, &[count, 5])?,
            tables: &Array::arange(0..count, Dtype::I32)?,
            ends: Some((&ends, cpu::Ends::Whole)),
        },
    };
    let out = attended.run()?.out.reshape(&[count, len, heads, head_dim])?;
    out.transpose(&[0, 2, 1, 3]).map(Some)
}
