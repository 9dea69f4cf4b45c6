//! One layer's cache of a prompt, converted between mlx-lm's arrays and our blocks.

use std::collections::BTreeMap;

use mlx::{Array, Dtype};
use omnibus_kv::{CacheKind, FloatType, KvFormat};

use super::layout::File;
use crate::mixers::MixerCache;

/// One layer's cache.
#[derive(Debug)]
pub(super) enum LayerCache {
    /// Keys and values of the last tokens, in order, `[tokens, kv_heads, head_dim]` each. `len`: tokens of the prompt;
    /// `window`: how many of them the layer attends to, if not all.
    Attention { pair: [Array; 2], len: usize, window: Option<usize> },
    /// A convolution's last rows and a recurrence's state, `[1, …]` each.
    State([Array; 2]),
}

/// Files hold unquantized heads.
const FORMAT: KvFormat = KvFormat::Float(FloatType::F32);

/// One layer of a file.
pub(super) struct LayerOfFile<'a> {
    pub(super) index: usize,
    pub(super) arrays: &'a BTreeMap<String, Array>,
    pub(super) metadata: &'a BTreeMap<String, String>,
}

impl LayerOfFile<'_> {
    /// The layer's cache. Fails with what is wrong.
    pub(super) fn read(&self, spec: &dyn MixerCache) -> Result<LayerCache, String> {
        let class = self.metadata.get(&format!("1.{}", self.index)).ok_or("it is not in this file")?;
        match (spec.cache_spec(FORMAT).kind, class.as_str()) {
            (CacheKind::State, "ArraysCache" | "MambaCache") => self.state(spec),
            (CacheKind::State, other) => Err(unfit(other)),
            (kind, "KVCache") => self.attention(spec, kind, None),
            (kind, "RotatingKVCache") => {
                let ring = (self.number("3")?, self.number("4")?, self.number("5")?);
                self.attention(spec, kind, Some(ring))
            }
            (_, other) => Err(unfit(other)),
        }
    }

    fn state(&self, spec: &dyn MixerCache) -> Result<LayerCache, String> {
        let [first, second] = spec.pool_shapes(1, 1, FORMAT);
        let part = |place: &str, want: Vec<usize>| {
            let array = self.array(place)?;
            if array.shape().iter().map(|n| *n as usize).eq(want.iter().copied()) {
                return Ok(array.clone());
            }
            Err(format!("{:?} is not a state of this model, which is {want:?}", array.shape()))
        };
        Ok(LayerCache::State([part("0.0", first)?, part("0.1", second)?]))
    }

    /// `ring`: keep, size, and where the next row goes.
    fn attention(
        &self,
        spec: &dyn MixerCache,
        kind: CacheKind,
        ring: Option<(usize, usize, usize)>,
    ) -> Result<LayerCache, String> {
        let len = self.number("2")?;
        let [keys, values] = spec.pool_shapes(1, 1, FORMAT);
        let pair = [self.heads("0", &keys, len, ring)?, self.heads("1", &values, len, ring)?];
        let seen = match kind {
            // The next token counts as one of the window.
            CacheKind::SlidingWindow { tokens, sinks: 0 } => len.min(tokens.saturating_sub(1)),
            CacheKind::SlidingWindow { .. }
            | CacheKind::Full
            | CacheKind::Latent
            | CacheKind::UnquantizedPrefix { .. }
            | CacheKind::State => len,
        };
        if let Some(held) = pair.iter().map(rows).find(|held| *held < seen) {
            return Err(format!("it holds {held} tokens of {len}, and the layer attends to {seen}"));
        }
        Ok(LayerCache::Attention { pair, len, window: ring.map(|ring| ring.1) })
    }

    /// Keys or values in order, `[tokens, kv_heads, head_dim]`. `pool`: the shape of a pool of one token.
    fn heads(
        &self,
        place: &str,
        pool: &[usize],
        len: usize,
        ring: Option<(usize, usize, usize)>,
    ) -> Result<Array, String> {
        let array = self.array(place)?;
        let &[batch, heads, room, dim] = array.shape() else {
            return Err(format!("`{}.{place}` has {} axes, not 4", self.index, array.ndim()));
        };
        if [batch, 1, heads, dim].map(|n| n as usize) != *pool {
            return Err(format!("{:?} are not the keys and values of this model", array.shape()));
        }
        in_order(array, len, room as usize, ring)?
            .transpose(&[0, 2, 1, 3])
            .and_then(|array| array.squeeze(&[0]))
            .map_err(|error| error.to_string())
    }

    fn array(&self, place: &str) -> Result<&Array, String> {
        let name = format!("{}.{place}", self.index);
        self.arrays.get(&name).ok_or_else(|| format!("`{name}` is missing"))
    }

    fn number(&self, place: &str) -> Result<usize, String> {
        let numbers = self.array(place)?.astype(Dtype::I32).and_then(|array| array.to_vec::<i32>());
        let numbers = numbers.map_err(|error| error.to_string())?;
        let number = numbers.first().and_then(|n| usize::try_from(*n).ok());
        number.ok_or_else(|| format!("{place} is not a count"))
    }
}

fn unfit(class: &str) -> String {
    format!("a {class} does not fit this model")
}

impl LayerCache {
    /// Tokens of the prompt, if the layer's arrays say.
    pub(super) fn len(&self) -> Option<usize> {
        match self {
            Self::Attention { len, .. } => Some(*len),
            Self::State(_) => None,
        }
    }

    /// These blocks of the prompt, `[blocks, …]`. Positions out of the window are zero.
    pub(super) fn blocks(&self, logical: &[usize], block_size: usize, len: usize) -> mlx::Result<[Array; 2]> {
        let Self::Attention { pair, .. } = self else {
            let Self::State(pair) = self else { return Err(mlx::Error::new("a layer is one or the other")) };
            return Ok(pair.clone());
        };
        let blocks = |array: &Array| -> mlx::Result<Array> {
            let [kept, heads, dim] = array.dims()?;
            let first = len - (kept as usize).min(len);
            let rows = logical.iter().flat_map(|block| block * block_size..(block + 1) * block_size);
            // Row 0 of the padded array stands for what is not there.
            let rows: Vec<i32> =
                rows.map(|row| row.checked_sub(first).map_or(0, |row| row as i32 + 1)).collect();
            let padded = array.pad(&[(1, 0), (0, 0), (0, 0)], 0.0)?;
            let rows = Array::from_slice(&rows, &[rows.len() as i32])?;
            padded.take(&rows, 0)?.reshape(&[logical.len() as i32, block_size as i32, heads, dim])
        };
        let [keys, values] = pair;
        Ok([blocks(keys)?, blocks(values)?])
    }

    /// A layer from its blocks that end with the prompt's last token, `[blocks, block_size, kv_heads, head_dim]`, or
    /// from its slot.
    pub(super) fn of_blocks(kind: CacheKind, pair: [&Array; 2], len: usize) -> mlx::Result<Self> {
        let window = match kind {
            CacheKind::State => return Ok(Self::State(pair.map(Array::clone))),
            CacheKind::Full | CacheKind::Latent | CacheKind::UnquantizedPrefix { .. } => None,
            CacheKind::SlidingWindow { tokens, .. } => Some(tokens),
        };
        let wanted = window.map_or(len, |tokens| tokens.min(len));
        let part = |array: &Array| -> mlx::Result<Array> {
            let [blocks, size, heads, dim] = array.dims()?;
            let there = (blocks * size) as usize;
            let rows = array.reshape(&[blocks * size, heads, dim])?;
            let last =
                rows.slice(&[there.saturating_sub(wanted) as i32, 0, 0], &[blocks * size, heads, dim])?;
            // A full ring has a place for the token that the next one replaces; it is never read.
            last.pad(&[(wanted.saturating_sub(there) as i32, 0), (0, 0), (0, 0)], 0.0)
        };
        let [keys, values] = pair;
        Ok(Self::Attention { pair: [part(keys)?, part(values)?], len, window })
    }

    /// Adds the layer to a file.
    pub(super) fn put(&self, layer: usize, file: &mut File) -> mlx::Result<()> {
        match self {
            Self::State([convolution, state]) => {
                file.class(layer, "ArraysCache");
                file.array(format!("{layer}.0.0"), convolution.clone());
                file.array(format!("{layer}.0.1"), state.clone());
                file.nothing(format!("{layer}.1"))?;
                file.nothing(format!("{layer}.2"))
            }
            Self::Attention { pair, len, window } => {
                let mut there = 0;
                for (place, array) in pair.iter().enumerate() {
                    there = array.dim(0)? as usize;
                    let array = array.expand_dims(&[0])?.transpose(&[0, 2, 1, 3])?.contiguous()?;
                    file.array(format!("{layer}.{place}"), array);
                }
                file.number(format!("{layer}.2"), *len)?;
                let Some(window) = window else {
                    file.class(layer, "KVCache");
                    return Ok(());
                };
                file.class(layer, "RotatingKVCache");
                file.number(format!("{layer}.3"), 0)?;
                file.number(format!("{layer}.4"), *window)?;
                file.number(format!("{layer}.5"), there)
            }
        }
    }
}

/// Tokens of `[tokens, kv_heads, head_dim]`.
fn rows(array: &Array) -> usize {
    array.shape().first().map_or(0, |rows| *rows as usize)
}

/// The rows of a buffer that hold tokens, oldest first. `ring`: keep, size, and where the next row goes.
fn in_order(
    array: &Array,
    len: usize,
    room: usize,
    ring: Option<(usize, usize, usize)>,
) -> Result<Array, String> {
    let rows = |from: usize, to: usize| {
        let [batch, heads, _, dim] = array.dims()?;
        array.slice(&[0, 0, from as i32, 0], &[batch, heads, to as i32, dim])
    };
    let ordered = match ring {
        None if len <= room => rows(0, len),
        None => return Err(format!("{len} tokens in room for {room}")),
        Some((0, _, next)) if next == room => rows(0, room),
        Some((0, _, next)) if next < room && next < len => {
            rows(next, room).and_then(|older| mlx::concatenate(&[&older, &rows(0, next)?], 2))
        }
        Some((0, _, next)) if next <= room => rows(0, next),
        Some((0, _, next)) => return Err(format!("a ring of {room} rows is at row {next}")),
        Some(_) => return Err("a ring that keeps first tokens needs --max-kv-size, not a file".to_owned()),
    };
    ordered.map_err(|error| error.to_string())
}
