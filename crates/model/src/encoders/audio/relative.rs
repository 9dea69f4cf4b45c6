//! Attention of chunks of rows to the rows around them, with positions relative to the query.
//!
//! Source: arXiv 1901.02860 §3.3 for the positions; transformers `models/gemma3n/modeling_gemma3n.py` for the chunks.

use mlx::{Array, Dtype};

use super::blueprint::LocalAttention;
use crate::blocks::Linear;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// Longest wavelength of the positions' sines, over 2π.
const TIMESCALE_MAX: f64 = 10_000.0;

/// Logits of keys that a query does not see: finite, so that a row that sees none has no NaN.
const UNSEEN: f32 = -1e9;

/// The attention with its weights.
pub(super) struct LocalAttentionBlock {
    spec: LocalAttention,
    /// Of queries, keys and values.
    inputs: [Linear; 3],
    out: Linear,
    /// `[head_dim]`, float32: what queries are multiplied by.
    query_scale: Param,
    /// Keys of the positions from the furthest in the past to the furthest in the future, `[heads, head_dim, positions]`,
    /// float32.
    position_keys: Param,
}

impl LocalAttentionBlock {
    pub(super) fn load(spec: LocalAttention, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let hidden = store.hidden();
        let head_dim = hidden / spec.heads;
        let mut linear = |name: &str| store.linear(&format!("{path}.{name}"));
        let inputs = [linear("q_proj")?, linear("k_proj")?, linear("v_proj")?];
        let (out, relative) = (linear("o_proj")?, linear("relative_k_proj")?);
        let scale = (head_dim as f32).powf(-0.5) / std::f32::consts::LN_2;
        let learned = store.float(&format!("{path}.per_dim_scale"))?;
        let query_scale = learned.map(|learned| Ok(learned.softplus()? * scale))?;
        let sines = sines(&spec, hidden)?.astype(store.activations())?;
        let shape = [-1, spec.heads as i32, head_dim as i32];
        let keys = relative.forward(&sines)?.astype(Dtype::F32)?.reshape(&shape)?;
        let position_keys = store.params().hold(keys.transpose(&[1, 2, 0])?.contiguous()?);
        Ok(Self { spec, inputs, out, query_scale, position_keys })
    }

    /// `[rows, hidden]` → the same.
    pub(super) fn forward(&self, x: &Array) -> mlx::Result<Array> {
        let [rows, hidden] = x.dims()?;
        let heads = self.spec.heads as i32;
        let [q, k, v] = &self.inputs;
        let by_head = |linear: &Linear| -> mlx::Result<Array> {
            linear.forward(x)?.astype(Dtype::F32)?.reshape(&[rows, heads, hidden / heads])
        };
        let [q, k, v] = [by_head(q)? * &self.query_scale, by_head(k)? * self.spec.key_scale, by_head(v)?];
        let chunk = self.spec.chunk as i32;
        let chunks = (rows + chunk - 1) / chunk;
        let filled = q.pad(&[(0, chunks * chunk - rows), (0, 0), (0, 0)], 0.0)?;
        let q = filled.reshape(&[chunks, chunk, heads, -1])?.transpose(&[0, 2, 1, 3])?;
        let [k, v] = [self.around(&k, chunks)?, self.around(&v, chunks)?];
        let logits = q.matmul(&k.swapaxes(-1, -2)?)? + self.of_positions(&q)?;
        let logits = (logits / self.spec.logit_cap).tanh()? * self.spec.logit_cap;
        let unseen = Array::scalar(UNSEEN, Dtype::F32)?;
        let logits = mlx::where_(&self.seen(rows, chunks)?, &logits, &unseen)?;
        let mixed = logits.softmax(-1)?.matmul(&v)?;
        let mixed = mixed.transpose(&[0, 2, 1, 3])?.reshape(&[chunks * chunk, hidden])?;
        self.out.forward(&mixed.slice(&[0, 0], &[rows, hidden])?.astype(x.dtype()?)?)
    }

    /// Rows before the first of a chunk that are in its context.
    fn before(&self) -> i32 {
        self.spec.past as i32 - 1
    }

    /// Rows of a chunk's context.
    fn context(&self) -> i32 {
        self.before() + self.spec.chunk as i32 + self.spec.future as i32
    }

    /// The context of each chunk, `[rows, heads, head_dim]` → `[chunks, heads, context, head_dim]`.
    fn around(&self, x: &Array, chunks: i32) -> mlx::Result<Array> {
        let [rows, heads, width] = x.dims()?;
        let (chunk, context) = (self.spec.chunk as i32, self.context());
        let behind = (chunks - 1) * chunk + context - self.before() - rows;
        let padded = x.pad(&[(self.before(), behind), (0, 0), (0, 0)], 0.0)?;
        let places = (0..chunks).flat_map(|at| at * chunk..at * chunk + context);
        let places: Vec<i32> = places.collect();
        let gathered = padded.take(&Array::from_slice(&places, &[chunks * context])?, 0)?;
        gathered.reshape(&[chunks, context, heads, width])?.transpose(&[0, 2, 1, 3])
    }

    /// What positions add to the logits of queries, `[chunks, heads, chunk, head_dim]` → `[chunks, heads, chunk, context]`.
    fn of_positions(&self, q: &Array) -> mlx::Result<Array> {
        let [chunks, heads, chunk, _] = q.dims()?;
        let (context, positions) = (self.context(), self.position_keys.dim(-1)?);
        let by_position = q.matmul(&self.position_keys)?;
        // The first position of a query is one further with each query: rows one longer than the context shift so when
        // they are read as rows of the context.
        let longer = by_position.pad(&[(0, 0), (0, 0), (0, 0), (0, context + 1 - positions)], 0.0)?;
        let flat = longer.reshape(&[chunks, heads, chunk * (context + 1)])?;
        let cut = flat.slice(&[0; 3], &[chunks, heads, chunk * context])?;
        cut.reshape(&[chunks, heads, chunk, context])
    }

    /// Which rows of its context a query sees, `[chunks, 1, chunk, context]`.
    fn seen(&self, rows: i32, chunks: i32) -> mlx::Result<Array> {
        let (chunk, context, before) = (self.spec.chunk as i32, self.context(), self.before());
        let [past, future] = self.spec.seen.map(|rows| rows as i32);
        let mut seen = Vec::with_capacity((chunks * chunk * context).max(0) as usize);
        for at in 0..chunks {
            for query in 0..chunk {
                seen.extend((0..context).map(|place| {
                    let (key, distance) = (at * chunk + place - before, query + before - place);
                    let is_near = if distance >= 0 { distance < past } else { -distance <= future };
                    is_near && (0..rows).contains(&key)
                }));
            }
        }
        Array::from_slice(&seen, &[chunks, 1, chunk, context])
    }
}

/// Sines, then cosines, of the distances from queries, furthest in the past first: `[positions, hidden]`, float32.
fn sines(spec: &LocalAttention, hidden: usize) -> mlx::Result<Array> {
    let distances: Vec<f64> =
        (0..spec.past + spec.future).map(|at| spec.past as f64 - 1.0 - at as f64).collect();
    sinusoids(&distances, hidden)
}

/// Sines, then cosines, of positions at frequencies that fall from 1 to 1/10000: `[positions, width]`, float32.
pub(super) fn sinusoids(positions: &[f64], width: usize) -> mlx::Result<Array> {
    let half = width / 2;
    let step = TIMESCALE_MAX.ln() / (half.max(2) - 1) as f64;
    let frequencies: Vec<f64> = (0..half).map(|at| (-(at as f64) * step).exp()).collect();
    let row = |position: &f64| {
        let angle = |frequency: &f64| position * frequency;
        let sines: Vec<f32> = frequencies.iter().map(|of| angle(of).sin() as f32).collect();
        let cosines: Vec<f32> = frequencies.iter().map(|of| angle(of).cos() as f32).collect();
        [sines, cosines].concat()
    };
    let values: Vec<f32> = positions.iter().flat_map(row).collect();
    Array::from_slice(&values, &[positions.len() as i32, 2 * half as i32])
}
