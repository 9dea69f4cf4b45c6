//! The delta rule over rows of a sequence, in MLX's operations.
//!
//! Source: arXiv 2412.06464 §3.

use mlx::{Array, fast};

/// Added to the square of a key's or query's length.
const LENGTH_EPS: f32 = 1e-6;

/// Heads of a delta rule.
#[derive(Clone, Copy)]
pub(crate) struct DeltaRule {
    pub(crate) k_heads: i32,
    pub(crate) k_dim: i32,
    pub(crate) v_heads: i32,
    pub(crate) v_dim: i32,
}

impl DeltaRule {
    /// `mixed`: queries, keys and values, `[n, len, channels]`; decays `[n, len, v_heads]` or one for each channel of a
    /// key, `[n, len, v_heads · k_dim]`; how much is written, `[n, len, v_heads]`; `memory`: `[n, v_heads, v_dim, k_dim]`
    /// → `[n, len, values]` and the memory after it.
    pub(crate) fn scan(
        self,
        mixed: &Array,
        [decays, write]: [&Array; 2],
        memory: &Array,
    ) -> mlx::Result<(Array, Array)> {
        let Self { k_heads, k_dim, v_heads, v_dim } = self;
        let [count, len, _] = mixed.dims()?;
        let keys = k_heads * k_dim;
        let parts = mixed.split(&[keys, 2 * keys], -1)?;
        let [q, k, v] = parts.as_slice() else { return Err(mlx::Error::new("queries, keys and values")) };
        let unit = |x: &Array| -> mlx::Result<Array> {
            let x = x.reshape(&[count, len, k_heads, k_dim])?;
            // A mean square is the length's square over the width.
            fast::rms_norm(&x, None, LENGTH_EPS / k_dim as f32)
        };
        let length = (k_dim as f32).sqrt();
        let (q, k) = (unit(q)? / (length * length), unit(k)? / length);
        let v = v.reshape(&[count, len, v_heads, v_dim])?;
        let gates = match decays.dim(-1)? {
            width if width == v_heads => decays.clone(),
            _ => decays.reshape(&[count, len, v_heads, k_dim])?,
        };
        let (y, memory) = fast::gated_delta_update(&fast::GatedDelta {
            q: &q,
            k: &k,
            v: &v,
            gates: &gates,
            beta: write,
            state: Some(memory),
            mask: None,
        })?;
        Ok((y.reshape(&[count, len, v_heads * v_dim])?, memory))
    }
}
