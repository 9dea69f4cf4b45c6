//! What layers remember between steps: pools of fixed-size blocks, one pair a layer.
//!
//! Layers that remember in the same way form a group and share block tables; `core` counts the
//! blocks of each group, this module owns the arrays.
//!
//! Invariant: a pool array has one owner. Blocks take it out, write it, and put the new value back,
//! so that MLX can write in place.

use mlx::{Array, Dtype};

use crate::{Blueprint, Mixer, Reach};

/// How long a group's layers remember.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupKind {
    /// Every token.
    Full,
    /// The last `tokens` tokens.
    Window {
        /// The window, the token itself included.
        tokens: usize,
    },
}

/// Layers that share block tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateGroup {
    /// How long they remember.
    pub kind: GroupKind,
    /// Which layers, ascending.
    pub layers: Vec<usize>,
    /// Elements that one token takes in all of them together.
    pub elements_per_token: usize,
}

impl Blueprint {
    /// The layers by what they remember: full attention first, then windows, smallest first.
    pub fn state_groups(&self) -> Vec<StateGroup> {
        let mut groups: Vec<StateGroup> = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            let Mixer::Attention(attention) = &layer.mixer;
            let kind = match attention.reach {
                Reach::Full => GroupKind::Full,
                Reach::Window(tokens) => GroupKind::Window { tokens },
            };
            let elements = 2 * attention.kv_heads * attention.head_dim;
            match groups.iter_mut().find(|group| group.kind == kind) {
                Some(group) => {
                    group.layers.push(index);
                    group.elements_per_token += elements;
                }
                None => groups.push(StateGroup { kind, layers: vec![index], elements_per_token: elements }),
            }
        }
        groups.sort_by_key(|group| group.kind);
        groups
    }

    /// False when a cached key fits only the sequence it was computed for.
    pub fn shares_prefixes(&self) -> bool {
        !self.layers.iter().any(|layer| {
            let Mixer::Attention(attention) = &layer.mixer;
            matches!(&attention.position, crate::Position::Rope(rope) if rope.depends_on_length())
        })
    }
}

/// Keys and values of every layer, in blocks.
pub struct KvState {
    /// Tokens of a block.
    pub(crate) block_size: usize,
    /// Blocks of each group, the scratch block that follows them not counted.
    pub(crate) blocks: Vec<usize>,
    /// Window of each group, in tokens; `None` remembers all.
    pub(crate) windows: Vec<Option<usize>>,
    /// Group of each layer.
    pub(crate) group_of: Vec<usize>,
    pub(crate) pools: Vec<Pool>,
}

/// One layer's keys and values, `[blocks + 1, block_size, kv_heads, head_dim]` each. `None` only
/// while a step is being built, or after building one failed half-way.
pub(crate) struct Pool {
    pub(crate) keys: Option<Array>,
    pub(crate) values: Option<Array>,
}

impl KvState {
    /// Zeroed pools with `blocks[g]` blocks for group `g` of [`Blueprint::state_groups`].
    pub fn new(
        blueprint: &Blueprint,
        blocks: &[usize],
        block_size: usize,
        dtype: Dtype,
    ) -> mlx::Result<Self> {
        let groups = blueprint.state_groups();
        let group_of: Vec<usize> = (0..blueprint.layers.len())
            .map(|layer| groups.iter().position(|group| group.layers.contains(&layer)).unwrap_or_default())
            .collect();
        let pool = |(layer, group): (usize, &usize)| -> mlx::Result<Pool> {
            let Mixer::Attention(attention) = &blueprint.layers[layer].mixer;
            let shape =
                [blocks[*group] + 1, block_size, attention.kv_heads, attention.head_dim].map(|n| n as i32);
            let zeros = || -> mlx::Result<Array> {
                let zeros = Array::zeros(&shape, dtype)?;
                zeros.eval()?;
                Ok(zeros)
            };
            Ok(Pool { keys: Some(zeros()?), values: Some(zeros()?) })
        };
        let windows = groups.iter().map(|group| match group.kind {
            GroupKind::Full => None,
            GroupKind::Window { tokens } => Some(tokens),
        });
        let pools = group_of.iter().enumerate().map(pool).collect::<mlx::Result<_>>()?;
        Ok(Self { block_size, blocks: blocks.to_vec(), windows: windows.collect(), group_of, pools })
    }

    /// Tokens of a block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Copies whole blocks within a group, `(from, to)`; all are read before any is written.
    pub fn copy_blocks(&mut self, group: usize, copies: &[(u32, u32)]) -> mlx::Result<()> {
        if copies.is_empty() {
            return Ok(());
        }
        let indices = |pick: fn(&(u32, u32)) -> u32| -> mlx::Result<Array> {
            let indices: Vec<i32> = copies.iter().map(|copy| pick(copy) as i32).collect();
            Array::from_slice(&indices, &[indices.len() as i32])
        };
        let (from, to) = (indices(|copy| copy.0)?, indices(|copy| copy.1)?);
        for (pool, _) in self.pools.iter_mut().zip(&self.group_of).filter(|(_, of)| **of == group) {
            for half in [&mut pool.keys, &mut pool.values] {
                let array = half.take().ok_or_else(lost)?;
                let moved = array.take(&from, 0)?;
                moved.eval()?; // Copied out before it is written, so that the write is in place.
                *half = Some(array.scatter_rows(&to, &moved)?);
            }
        }
        Ok(())
    }

    /// Every array, to be evaluated with a step's results.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.pools.iter().flat_map(|pool| pool.keys.iter().chain(&pool.values))
    }

    /// False after a step failed while it was built; the pools must then be made anew.
    pub fn is_whole(&self) -> bool {
        self.pools.iter().all(|pool| pool.keys.is_some() && pool.values.is_some())
    }
}

pub(crate) fn lost() -> mlx::Error {
    mlx::Error::new("a pool was lost to an earlier failure")
}
