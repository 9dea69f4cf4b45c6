//! One layer of an encoder.

use mlx::{Array, fast};

use super::blueprint::{EncoderAttention, EncoderLayer, LayerScale};
use super::manifest::AFTER;
use super::rotary::Angles;
use crate::blocks::{Fused, Linear, MlpBlock, NormBlock};
use crate::norm::Norm;
use crate::ops::Ops;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// Rows that attend to each other: `count` groups of `len` rows each, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) count: usize,
    pub(super) len: usize,
}

/// Groups of these lengths, equal neighbours together.
pub(super) fn groups(lengths: impl IntoIterator<Item = usize>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for len in lengths {
        match groups.last_mut() {
            Some(last) if last.len == len => last.count += 1,
            _ => groups.push(Group { count: 1, len }),
        }
    }
    groups
}

/// Which rows attend to which.
#[derive(Clone, Copy)]
enum Attends<'a> {
    /// Rows of a group attend to each other.
    In(&'a [Group]),
    /// The first ones to all, the others to the first ones.
    Filled(i32),
}

/// Queries of a group that attend in one call, so that scores of a large picture need not all be in memory.
const QUERIES_MAX: i32 = 1024;

/// One layer.
pub(super) struct LayerBlock {
    ops: Ops,
    spec: EncoderAttention,
    norms: [NormBlock; 2],
    /// Of what attention and MLP add.
    after: Option<[NormBlock; 2]>,
    /// Of heads of queries and keys.
    qk_norms: Option<[NormBlock; 2]>,
    qkv: Fused,
    out: Linear,
    mlp: Box<dyn MlpBlock>,
    scales: Option<[Param; 2]>,
}

impl LayerBlock {
    pub(super) fn load(spec: &EncoderLayer, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let hidden = store.hidden();
        let mut norm = |name: &str| store.norm(&format!("{path}.{name}"), spec.norm, hidden);
        let norms = [norm("norm1")?, norm("norm2")?];
        let mut pair = |names: [&str; 2], norm: Option<Norm>, width: usize| -> Result<_, LoadError> {
            let Some(norm) = norm else { return Ok(None) };
            let [first, second] = names.map(|name| store.norm(&format!("{path}.{name}"), norm, width));
            Ok(Some([first?, second?]))
        };
        let after = pair(AFTER, spec.after, hidden)?;
        let head_dim = hidden / spec.attention.heads;
        let of_heads = spec.attention.qk_norm.map(|eps| Norm::Rms { eps });
        let qk_norms = pair(["attn.q_norm", "attn.k_norm"], of_heads, head_dim)?;
        let mut linear = |name: &str| store.linear(&format!("{path}.attn.{name}"));
        let qkv = Fused::new(vec![linear("q_proj")?, linear("k_proj")?, linear("v_proj")?])?;
        let out = linear("o_proj")?;
        let mlp = spec.mlp.load(store, &format!("{path}.mlp"))?;
        let scales = ["scale1", "scale2"].map(|name| format!("{path}.{name}"));
        let scales = match spec.scales {
            LayerScale::None => None,
            LayerScale::Vectors => Some([store.vector(&scales[0])?, store.vector(&scales[1])?]),
            LayerScale::Gates => Some([
                store.vector(&scales[0])?.map(Array::tanh)?,
                store.vector(&scales[1])?.map(Array::tanh)?,
            ]),
        };
        Ok(Self { ops: store.ops(), spec: spec.attention, norms, after, qk_norms, qkv, out, mlp, scales })
    }

    /// Whether it attends within windows.
    pub(super) fn is_windowed(&self) -> bool {
        self.spec.windowed
    }

    /// `x`: `[rows, hidden]`. `stages` gets what attention makes of it, then what the MLP makes of that.
    pub(super) fn forward(
        &self,
        x: &Array,
        groups: &[Group],
        angles: Option<&Angles>,
        stages: &mut Vec<Array>,
    ) -> mlx::Result<Array> {
        self.forward_as(x, Attends::In(groups), angles, stages)
    }

    /// The layer where all rows attend to each other, but those after the first `real` only to these.
    pub(super) fn forward_filled(
        &self,
        x: &Array,
        real: usize,
        stages: &mut Vec<Array>,
    ) -> mlx::Result<Array> {
        self.forward_as(x, Attends::Filled(real as i32), None, stages)
    }

    fn forward_as(
        &self,
        x: &Array,
        attends: Attends,
        angles: Option<&Angles>,
        stages: &mut Vec<Array>,
    ) -> mlx::Result<Array> {
        let [before, before_mlp] = &self.norms;
        let mixed = self.attend(&before.forward(x)?, attends, angles)?;
        let x = x + self.added(mixed, 0)?;
        stages.push(x.clone());
        let transformed = self.mlp.forward(&before_mlp.forward(&x)?)?;
        let x = &x + self.added(transformed, 1)?;
        stages.push(x.clone());
        Ok(x)
    }

    /// What joins the stream: of attention, then of the MLP.
    fn added(&self, x: Array, which: usize) -> mlx::Result<Array> {
        let x = match self.after.as_ref().and_then(|norms| norms.get(which)) {
            Some(norm) => norm.forward(&x)?,
            None => x,
        };
        Ok(match self.scales.as_ref().and_then(|scales| scales.get(which)) {
            Some(scale) => x * scale,
            None => x,
        })
    }

    fn attend(&self, x: &Array, attends: Attends, angles: Option<&Angles>) -> mlx::Result<Array> {
        let [rows, hidden] = x.dims()?;
        let heads = self.spec.heads as i32;
        let parts = self.qkv.forward(x)?.split(&[hidden, 2 * hidden], -1)?;
        let [q, k, v] = parts.as_slice() else { return Err(mlx::Error::new("queries, keys and values")) };
        let by_head = |x: &Array| x.reshape(&[rows, heads, hidden / heads]);
        let turned = |x: &Array, which: usize| -> mlx::Result<Array> {
            let x = by_head(x)?;
            let x = match self.qk_norms.as_ref().and_then(|norms| norms.get(which)) {
                Some(norm) => norm.forward(&x)?,
                None => x,
            };
            angles.filter(|_| self.spec.rotary.is_some()).map_or(Ok(x.clone()), |angles| angles.rotate(&x))
        };
        let (q, k, v) = (turned(q, 0)?, turned(k, 1)?, by_head(v)?);
        let v = match self.spec.value_norm {
            Some(eps) => fast::rms_norm(&v, None, eps)?,
            None => v,
        };
        let scale = self.spec.scale.unwrap_or(((hidden / heads) as f32).powf(-0.5));
        let groups = match attends {
            Attends::In(groups) => groups,
            Attends::Filled(real) => return self.out.forward(&self.filled([&q, &k, &v], real, scale)?),
        };
        let mut first = 0;
        let mut attended = Vec::with_capacity(groups.len());
        for group in groups {
            let after = first + (group.count * group.len) as i32;
            let of_group = |x: &Array| -> mlx::Result<Array> {
                let part = x.slice(&[first, 0, 0], &[after, heads, hidden / heads])?;
                let shape = [group.count as i32, group.len as i32, heads, hidden / heads];
                part.reshape(&shape)?.transpose(&[0, 2, 1, 3])
            };
            let [q, k, v] = [of_group(&q)?, of_group(&k)?, of_group(&v)?];
            let seen = attention(&self.ops, [&q, &k, &v], scale, QUERIES_MAX)?.transpose(&[0, 2, 1, 3])?;
            attended.push(seen.reshape(&[after - first, hidden])?);
            first = after;
        }
        let attended = match attended.as_slice() {
            [one] => one.clone(),
            several => mlx::concatenate(&several.iter().collect::<Vec<_>>(), 0)?,
        };
        self.out.forward(&attended)
    }

    /// All `[rows, heads, head_dim]` → `[rows, heads · head_dim]`.
    fn filled(&self, qkv: [&Array; 3], real: i32, scale: f32) -> mlx::Result<Array> {
        let [rows, heads, width] = qkv[0].dims()?;
        let part = |x: &Array, from: i32, to: i32| -> mlx::Result<Array> {
            x.slice(&[from, 0, 0], &[to, heads, width])?.transpose(&[1, 0, 2])?.expand_dims(&[0])
        };
        let [q, k, v] = qkv;
        let seen = |from: i32, to: i32, keys: i32| -> mlx::Result<Array> {
            let (q, k, v) = (part(q, from, to)?, part(k, 0, keys)?, part(v, 0, keys)?);
            let seen = attention(&self.ops, [&q, &k, &v], scale, QUERIES_MAX)?
                .squeeze(&[0])?
                .transpose(&[1, 0, 2])?;
            seen.reshape(&[to - from, heads * width])
        };
        match rows - real {
            0 => seen(0, rows, rows),
            _ => mlx::concatenate(&[&seen(0, real, rows)?, &seen(real, rows, real)?], 0),
        }
    }
}

/// All `[count, heads, len, head_dim]`; keys may be fewer or more than queries, of which at most so many attend in one
/// call.
pub(super) fn attention(
    ops: &Ops,
    [q, k, v]: [&Array; 3],
    scale: f32,
    queries_max: i32,
) -> mlx::Result<Array> {
    if let Some(seen) = ops.attend_each_other([q, k, v], scale)? {
        return Ok(seen);
    }
    let [count, heads, len, width] = q.dims()?;
    let part = |first: i32| {
        let q = q.slice(&[0, 0, first, 0], &[count, heads, (first + queries_max).min(len), width])?;
        ops.attend_all([&q, k, v], scale)
    };
    let parts = (0..len).step_by(queries_max as usize).map(part).collect::<mlx::Result<Vec<_>>>()?;
    match parts.as_slice() {
        [one] => Ok(one.clone()),
        several => mlx::concatenate(&several.iter().collect::<Vec<_>>(), 2),
    }
}

#[test]
fn equal_neighbours_attend_in_one_call() {
    assert_eq!(groups([4, 4, 2, 4]), [(2, 4), (1, 2), (1, 4)].map(|(count, len)| Group { count, len }));
}
