//! One layer's cache of a prompt, converted between mlx-lm's arrays and our blocks.

use std::collections::BTreeMap;

use mlx::{Array, Dtype};
use omnibus_kv::CacheKind;

use super::layout::File;
use crate::{AttentionSpan, Mixer};

/// One layer's cache.
#[derive(Debug)]
pub(super) enum LayerCache {
    /// Keys and values of the last tokens, in order, `[tokens, kv_heads, head_dim]` each. `len`: tokens of the prompt;
    /// `window`: how many of them the layer attends to, if not all.
    Attention { pair: [Array; 2], len: usize, window: Option<usize> },
    /// A convolution's last rows and a recurrence's state, `[1, …]` each.
    State([Array; 2]),
}

type Arrays = BTreeMap<String, Array>;
type Metadata = BTreeMap<String, String>;

impl LayerCache {
    /// Reads a layer. Fails with what is wrong.
    pub(super) fn read(
        index: usize,
        mixer: &Mixer,
        arrays: &Arrays,
        metadata: &Metadata,
    ) -> Result<Self, String> {
        let class = metadata.get(&format!("1.{index}")).ok_or("it is not in this file")?;
        let array = |place: &str| {
            let name = format!("{index}.{place}");
            arrays.get(&name).ok_or_else(|| format!("`{name}` is missing"))
        };
        let number = |place: &str| {
            let numbers = array(place)?.astype(Dtype::I32).and_then(|array| array.to_vec::<i32>());
            let numbers = numbers.map_err(|error| error.to_string())?;
            numbers
                .first()
                .and_then(|n| usize::try_from(*n).ok())
                .ok_or_else(|| format!("{place} is no count"))
        };
        match (mixer, class.as_str()) {
            (Mixer::Attention(attention), "KVCache" | "RotatingKVCache") => {
                let len = number("2")?;
                let ring = match class.as_str() {
                    "RotatingKVCache" => Some((number("3")?, number("4")?, number("5")?)),
                    _ => None,
                };
                let want = [1, attention.kv_heads as i32, attention.head_dim as i32];
                let part = |place: &str| -> Result<Array, String> {
                    let array = array(place)?;
                    let &[batch, heads, room, dim] = array.shape() else {
                        return Err(format!("`{index}.{place}` has {} axes, not 4", array.ndim()));
                    };
                    if [batch, heads, dim] != want {
                        return Err(format!("{:?} are not the keys and values of this model", array.shape()));
                    }
                    in_order(array, len, room as usize, ring)?
                        .transpose(&[0, 2, 1, 3])
                        .and_then(|array| array.squeeze(&[0]))
                        .map_err(|error| error.to_string())
                };
                let pair = [part("0")?, part("1")?];
                let seen = match attention.span {
                    AttentionSpan::Full | AttentionSpan::Sinks { .. } => len,
                    // The next token counts as one of the window.
                    AttentionSpan::Window(tokens) => len.min(tokens.saturating_sub(1)),
                };
                if let Some(held) = pair.iter().map(rows).find(|held| *held < seen) {
                    return Err(format!("it holds {held} tokens of {len}, and the layer attends to {seen}"));
                }
                Ok(Self::Attention { pair, len, window: ring.map(|ring| ring.1) })
            }
            (Mixer::Mamba2(_) | Mixer::GatedDelta(_), "ArraysCache" | "MambaCache") => {
                Ok(Self::State([array("0.0")?.clone(), array("0.1")?.clone()]))
            }
            (_, other) => Err(format!("a {other} does not fit this model")),
        }
    }

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
