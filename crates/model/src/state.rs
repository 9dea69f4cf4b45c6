//! What layers remember between steps: pools of fixed-size blocks, two arrays a layer.
//!
//! Layers that remember in the same way form a group and share block tables; `core` counts the
//! blocks of each group, this module owns the arrays. A recurrence remembers one state for a whole
//! sequence, whatever its length: its block is called a slot.
//!
//! Invariant: a pool array has one owner. Blocks take it out, write it, and put the new value back,
//! so that MLX can write in place.

mod transfer;

use mlx::{Array, Dtype};

use crate::{Blueprint, GatedDelta, KvFormat, KvStorage, Mamba2, Mixer, Reach};
pub use transfer::Outgoing;

/// How long a group's layers remember.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupKind {
    /// Every token.
    Full,
    /// The last `tokens` tokens, and the first `keep`.
    Window {
        /// The window, the token itself included.
        tokens: usize,
        /// Tokens of the sequence's beginning that stay.
        keep: usize,
    },
    /// The first tokens, for each other: later ones see none of them here.
    Opening {
        /// How many.
        tokens: usize,
    },
    /// One state of a fixed size. A block is a slot, and a sequence has one.
    State,
}

/// Which rows see the keys and values of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// All.
    ByAll,
    /// Those of a sequence's opening, see [`KvStorage`]. Only theirs are written.
    ByOpening,
    /// Those behind it. All rows' are written.
    Behind,
}

/// Layers that share block tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateGroup {
    /// How long they remember.
    pub kind: GroupKind,
    /// Which layers, ascending.
    pub layers: Vec<usize>,
    /// Elements that one token takes in all of them together; none in a recurrence.
    pub elements_per_token: usize,
    /// Elements that one slot takes in all of them together, float32; only a recurrence has slots.
    pub elements_per_slot: usize,
    /// How keys and values are stored.
    pub format: KvFormat,
    /// Which rows see them.
    pub seen: Seen,
}

impl StateGroup {
    /// Bytes of one block in all layers together, of `block_size` tokens' keys and values or of one slot.
    pub fn block_bytes(&self, block_size: usize) -> u64 {
        let tokens = self.format.bytes(self.elements_per_token * block_size);
        (tokens + self.elements_per_slot * STATE_DTYPE.size_of()) as u64
    }
}

/// What states are kept in, whatever the activations are: errors in them would add up.
const STATE_DTYPE: Dtype = Dtype::F32;

impl Blueprint {
    /// The layers by what they remember: full attention first, then windows, smallest first, then states; what an
    /// opening sees once more comes last.
    pub fn state_groups(&self, storage: impl Into<KvStorage>) -> Vec<StateGroup> {
        let storage = storage.into();
        let seen = if storage.opening.is_some() { Seen::Behind } else { Seen::ByAll };
        let mut groups = self.groups_by(|mixer| {
            let kind = mixer.remembers();
            let seen = if kind == GroupKind::State { Seen::ByAll } else { seen };
            Some((kind, storage.format, seen))
        });
        if let Some(opening) = storage.opening {
            groups.extend(self.groups_by(|mixer| {
                Some((mixer.remembers().of_opening(opening.tokens)?, opening.format, Seen::ByOpening))
            }));
        }
        groups
    }

    fn groups_by(&self, of: impl Fn(&Mixer) -> Option<(GroupKind, KvFormat, Seen)>) -> Vec<StateGroup> {
        let mut groups: Vec<StateGroup> = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            let Some((kind, format, seen)) = of(&layer.mixer) else { continue };
            let (token, slot) = match &layer.mixer {
                Mixer::Attention(attention) => (2 * attention.kv_heads * attention.head_dim, 0),
                Mixer::Mamba2(spec) => (0, elements(&spec.slot_shapes())),
                Mixer::GatedDelta(spec) => (0, elements(&spec.slot_shapes())),
            };
            match groups.iter_mut().find(|group| group.kind == kind) {
                Some(group) => {
                    group.layers.push(index);
                    group.elements_per_token += token;
                    group.elements_per_slot += slot;
                }
                None => groups.push(StateGroup {
                    kind,
                    layers: vec![index],
                    elements_per_token: token,
                    elements_per_slot: slot,
                    format,
                    seen,
                }),
            }
        }
        groups.sort_by_key(|group| group.kind);
        groups
    }

    /// False when a cached key fits only the sequence it was computed for.
    pub fn shares_prefixes(&self) -> bool {
        !self.layers.iter().any(|layer| match &layer.mixer {
            Mixer::Attention(attention) => {
                matches!(&attention.position, crate::Position::Rope(rope) if rope.depends_on_length())
            }
            Mixer::Mamba2(_) | Mixer::GatedDelta(_) => false,
        })
    }
}

impl GroupKind {
    /// What rows at the first `tokens` positions see of a group of this kind. None of states.
    fn of_opening(self, tokens: usize) -> Option<Self> {
        match self {
            Self::Window { tokens: window, .. } if window < tokens => Some(self),
            Self::Full | Self::Window { .. } | Self::Opening { .. } => Some(Self::Opening { tokens }),
            Self::State => None,
        }
    }
}

impl Mixer {
    fn remembers(&self) -> GroupKind {
        match self {
            Self::Attention(attention) => match attention.reach {
                Reach::Full => GroupKind::Full,
                Reach::Window(tokens) => GroupKind::Window { tokens, keep: 0 },
                Reach::Sinks { tokens, keep } => GroupKind::Window { tokens, keep },
            },
            Self::Mamba2(_) | Self::GatedDelta(_) => GroupKind::State,
        }
    }

    /// Shapes of the pool's arrays with `blocks` blocks.
    fn pool_shapes(&self, blocks: usize, block_size: usize, format: KvFormat) -> [Vec<usize>; 2] {
        let slots = |shapes: [Vec<usize>; 2]| shapes.map(|shape| [vec![blocks], shape].concat());
        match self {
            Self::Attention(attention) => {
                let width = format.width(attention.head_dim);
                let half = || vec![blocks, block_size, attention.kv_heads, width];
                [half(), half()]
            }
            Self::Mamba2(spec) => slots(spec.slot_shapes()),
            Self::GatedDelta(spec) => slots(spec.slot_shapes()),
        }
    }
}

impl Mamba2 {
    /// The convolution's last rows, `[taps − 1, channels]`, and the state, `[heads, head_dim, state_dim]`.
    fn slot_shapes(&self) -> [Vec<usize>; 2] {
        [vec![self.taps - 1, self.conv_channels()], vec![self.heads, self.head_dim, self.state_dim]]
    }
}

impl GatedDelta {
    /// The convolution's last rows, `[taps − 1, channels]`, and the state, `[v_heads, v_dim, k_dim]`.
    fn slot_shapes(&self) -> [Vec<usize>; 2] {
        [vec![self.taps - 1, self.conv_channels()], vec![self.v_heads, self.v_dim, self.k_dim]]
    }
}

fn elements(shapes: &[Vec<usize>]) -> usize {
    shapes.iter().map(|shape| shape.iter().product::<usize>()).sum()
}

/// What every layer remembers, in blocks.
pub struct KvState {
    /// Tokens of a block.
    pub(crate) block_size: usize,
    pub(crate) storage: KvStorage,
    pub(crate) groups: Vec<StateGroup>,
    /// Blocks of each group, the scratch block that follows them not counted.
    pub(crate) blocks: Vec<usize>,
    /// One for each layer, in order, and behind them those of openings.
    pub(crate) pools: Vec<Pool>,
}

/// What one layer has in one group.
pub(crate) struct Pool {
    pub(crate) layer: usize,
    pub(crate) group: usize,
    /// Both `[blocks + 1, …]`: keys and values, `[_, block_size, kv_heads, head_dim]` each (packed, a head is a row of
    /// words, see [`KvFormat`]), or what a recurrence's convolution saw last and its state. `None` only while a step is
    /// being built, or after building one failed half-way.
    arrays: Option<[Array; 2]>,
}

impl Pool {
    /// The arrays, to be written and put back.
    pub(crate) fn take(&mut self) -> mlx::Result<[Array; 2]> {
        self.arrays.take().ok_or_else(lost)
    }

    pub(crate) fn put(&mut self, arrays: [Array; 2]) {
        self.arrays = Some(arrays);
    }

    /// The arrays, only to be read.
    pub(crate) fn arrays(&self) -> &[Array] {
        self.arrays.as_ref().map_or(&[], |arrays| arrays.as_slice())
    }
}

impl KvState {
    /// Zeroed pools with `blocks[g]` blocks for group `g` of [`Blueprint::state_groups`] with this storage.
    pub fn new(
        blueprint: &Blueprint,
        blocks: &[usize],
        block_size: usize,
        storage: impl Into<KvStorage>,
    ) -> mlx::Result<Self> {
        let storage = storage.into();
        let groups = blueprint.state_groups(storage);
        let pool = |layer: usize, group: usize| -> mlx::Result<Pool> {
            let StateGroup { kind, format, .. } = groups[group];
            let dtype = if kind == GroupKind::State { STATE_DTYPE } else { format.dtype() };
            let zeros = |shape: &[usize]| -> mlx::Result<Array> {
                let shape: Vec<i32> = shape.iter().map(|n| *n as i32).collect();
                let zeros = Array::zeros(&shape, dtype)?;
                zeros.eval()?;
                Ok(zeros)
            };
            let mixer = &blueprint.layers[layer].mixer;
            let [first, second] = mixer.pool_shapes(blocks[group] + 1, block_size, format);
            Ok(Pool { layer, group, arrays: Some([zeros(&first)?, zeros(&second)?]) })
        };
        let mut places: Vec<(usize, usize)> = (groups.iter().enumerate())
            .flat_map(|(group, of)| of.layers.iter().map(move |layer| (*layer, group)))
            .collect();
        places.sort_by_key(|(layer, group)| (groups[*group].seen == Seen::ByOpening, *layer));
        let pools = places.into_iter().map(|(layer, group)| pool(layer, group));
        let pools = pools.collect::<mlx::Result<_>>()?;
        Ok(Self { block_size, storage, blocks: blocks.to_vec(), groups, pools })
    }

    /// What its groups are.
    pub fn groups(&self) -> &[StateGroup] {
        &self.groups
    }

    /// The pools of a layer: its own, and that of the opening.
    pub(crate) fn pools_of_layer(&self, layer: usize) -> impl Iterator<Item = usize> + use<> {
        let opening = self.pools.iter().rposition(|pool| pool.layer == layer).filter(|at| *at != layer);
        std::iter::once(layer).chain(opening)
    }

    /// The kind of a group.
    pub(crate) fn kind(&self, group: usize) -> Option<GroupKind> {
        self.groups.get(group).map(|group| group.kind)
    }

    /// Leading blocks of a sequence that a group's window keeps.
    pub(crate) fn kept_blocks(&self, group: usize) -> usize {
        match self.kind(group) {
            Some(GroupKind::Window { keep, .. }) => keep.div_ceil(self.block_size),
            Some(GroupKind::Full | GroupKind::Opening { .. } | GroupKind::State) | None => 0,
        }
    }

    /// True if the token at `position` sees the one at `key`, in a group of keys and values.
    pub(crate) fn sees(&self, group: usize, position: usize, key: usize) -> bool {
        let window = match self.kind(group) {
            Some(GroupKind::Window { tokens, keep }) => key + tokens > position || key < keep,
            Some(GroupKind::Full | GroupKind::Opening { .. } | GroupKind::State) | None => true,
        };
        key <= position && window
    }

    /// Tokens of a block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Copies whole blocks (of a recurrence, slots) within a group, `(from, to)`; all are read before any is written.
    pub fn copy_blocks(&mut self, group: usize, copies: &[(u32, u32)]) -> mlx::Result<()> {
        if copies.is_empty() {
            return Ok(());
        }
        if mlx::cpu::available() {
            for pool in self.pools.iter_mut().filter(|pool| pool.group == group) {
                let [first, second] = pool.take()?;
                pool.put([mlx::cpu::copy_blocks(first, copies)?, mlx::cpu::copy_blocks(second, copies)?]);
            }
            return Ok(());
        }
        let indices = |pick: fn(&(u32, u32)) -> u32| -> mlx::Result<Array> {
            let indices: Vec<i32> = copies.iter().map(|copy| pick(copy) as i32).collect();
            Array::from_slice(&indices, &[indices.len() as i32])
        };
        let (from, to) = (indices(|copy| copy.0)?, indices(|copy| copy.1)?);
        for pool in self.pools.iter_mut().filter(|pool| pool.group == group) {
            let copied = |array: Array| -> mlx::Result<Array> {
                let moved = array.take(&from, 0)?;
                moved.eval()?; // Copied out before it is written, so that the write is in place.
                array.scatter_rows(&to, &moved)
            };
            let [first, second] = pool.take()?;
            pool.put([copied(first)?, copied(second)?]);
        }
        Ok(())
    }

    /// Every array, to be evaluated with a step's results.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.pools.iter().flat_map(Pool::arrays)
    }

    /// False after a step failed while it was built; the pools must then be made anew.
    pub fn is_whole(&self) -> bool {
        self.pools.iter().all(|pool| pool.arrays.is_some())
    }
}

pub(crate) fn lost() -> mlx::Error {
    mlx::Error::new("a pool was lost to an earlier failure")
}
