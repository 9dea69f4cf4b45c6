//! The KV cache: pools of fixed-size blocks, two arrays a layer.
//!
//! Layers of one kind form a group and share block tables; `core` does the accounting of each group's blocks, this
//! module owns the arrays. A recurrent layer has one state per sequence, whatever its length: its block is a slot.
//!
//! Invariant: a pool array has one owner. Blocks take it out, write it, and put the new value back, so that MLX can
//! write in place.

mod transfer;

use mlx::{Array, Dtype};

use crate::{AttentionSpan, Blueprint, GatedDelta, KvFormat, KvStorage, Mamba2, Mixer};
pub use transfer::BlockExport;

/// Which tokens a group's layers cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupKind {
    /// Every token.
    Full,
    /// The last `tokens` tokens, and the first `sink_tokens`.
    Window {
        /// The window, the token itself included.
        tokens: usize,
        /// Tokens of the sequence's beginning that stay.
        sink_tokens: usize,
    },
    /// The first tokens, read by rows at their positions only.
    UnquantizedPrefix {
        /// Their number.
        tokens: usize,
    },
    /// One state of a fixed size. A block is a slot, and a sequence has one.
    State,
}

/// Which rows read the keys and values of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisibleTo {
    /// All.
    All,
    /// Rows of the unquantized prefix, see [`KvStorage`]. Only their keys and values are written.
    PrefixRows,
    /// Rows after the prefix. The keys and values of all rows are written.
    LaterRows,
}

/// Layers that share block tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvCacheGroup {
    /// Which tokens they cache.
    pub kind: GroupKind,
    /// Their indices, ascending.
    pub layers: Vec<usize>,
    /// Elements that one token takes in all of them together; none in a recurrence.
    pub elements_per_token: usize,
    /// Elements that one slot takes in all of them together, float32; only a recurrence has slots.
    pub elements_per_slot: usize,
    /// How keys and values are stored.
    pub format: KvFormat,
    /// Which rows read them.
    pub visible_to: VisibleTo,
}

impl KvCacheGroup {
    /// Bytes of one block in all layers together, of `block_size` tokens' keys and values or of one slot.
    pub fn block_bytes(&self, block_size: usize) -> u64 {
        let tokens = self.format.bytes(self.elements_per_token * block_size);
        (tokens + self.elements_per_slot * STATE_DTYPE.size_of()) as u64
    }
}

/// The dtype of states, whatever the activations' dtype is: rounding errors in them would add up.
const STATE_DTYPE: Dtype = Dtype::F32;

impl Blueprint {
    /// The layers by what they cache: full attention first, then windows, smallest first, then states; the groups of an
    /// unquantized prefix come last.
    pub fn kv_cache_groups(&self, storage: impl Into<KvStorage>) -> Vec<KvCacheGroup> {
        let storage = storage.into();
        let visible_to =
            if storage.unquantized_prefix.is_some() { VisibleTo::LaterRows } else { VisibleTo::All };
        let mut groups = self.groups_by(|mixer| {
            let kind = mixer.group_kind();
            let visible_to = if kind == GroupKind::State { VisibleTo::All } else { visible_to };
            Some((kind, storage.format, visible_to))
        });
        if let Some(prefix) = storage.unquantized_prefix {
            groups.extend(self.groups_by(|mixer| {
                Some((mixer.group_kind().of_prefix(prefix.tokens)?, prefix.format, VisibleTo::PrefixRows))
            }));
        }
        groups
    }

    fn groups_by(
        &self,
        of: impl Fn(&Mixer) -> Option<(GroupKind, KvFormat, VisibleTo)>,
    ) -> Vec<KvCacheGroup> {
        let mut groups: Vec<KvCacheGroup> = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            let Some((kind, format, visible_to)) = of(&layer.mixer) else { continue };
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
                None => groups.push(KvCacheGroup {
                    kind,
                    layers: vec![index],
                    elements_per_token: token,
                    elements_per_slot: slot,
                    format,
                    visible_to,
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
    /// The group that rows at the first `tokens` positions read in place of one of this kind; states have none.
    fn of_prefix(self, tokens: usize) -> Option<Self> {
        match self {
            Self::Window { tokens: window, .. } if window < tokens => Some(self),
            Self::Full | Self::Window { .. } | Self::UnquantizedPrefix { .. } => {
                Some(Self::UnquantizedPrefix { tokens })
            }
            Self::State => None,
        }
    }
}

impl Mixer {
    fn group_kind(&self) -> GroupKind {
        match self {
            Self::Attention(attention) => match attention.span {
                AttentionSpan::Full => GroupKind::Full,
                AttentionSpan::Window(tokens) => GroupKind::Window { tokens, sink_tokens: 0 },
                AttentionSpan::Sinks { tokens, sink_tokens } => GroupKind::Window { tokens, sink_tokens },
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
    /// The convolution's last rows, `[conv_kernel_size − 1, channels]`, and the state, `[heads, head_dim, state_dim]`.
    fn slot_shapes(&self) -> [Vec<usize>; 2] {
        [
            vec![self.conv_kernel_size - 1, self.conv_channels()],
            vec![self.heads, self.head_dim, self.state_dim],
        ]
    }
}

impl GatedDelta {
    /// The convolution's last rows, `[conv_kernel_size − 1, channels]`, and the state, `[v_heads, v_dim, k_dim]`.
    fn slot_shapes(&self) -> [Vec<usize>; 2] {
        [vec![self.conv_kernel_size - 1, self.conv_channels()], vec![self.v_heads, self.v_dim, self.k_dim]]
    }
}

fn elements(shapes: &[Vec<usize>]) -> usize {
    shapes.iter().map(|shape| shape.iter().product::<usize>()).sum()
}

/// The cached keys, values and states of all layers, in blocks.
pub struct KvCache {
    /// Tokens of a block.
    pub(crate) block_size: usize,
    pub(crate) storage: KvStorage,
    pub(crate) groups: Vec<KvCacheGroup>,
    /// Blocks of each group, the scratch block that follows them not counted.
    pub(crate) blocks: Vec<usize>,
    /// One for each layer, in order, and after them those of the unquantized prefix.
    pub(crate) pools: Vec<Pool>,
}

/// One layer's arrays in one group.
pub(crate) struct Pool {
    pub(crate) layer: usize,
    pub(crate) group: usize,
    /// Both `[blocks + 1, …]`: keys and values, `[_, block_size, kv_heads, head_dim]` each (packed, a head is a row of
    /// words, see [`KvFormat`]), or a recurrence's convolution state and its state. `None` only while a step is
    /// being built, or after building one failed half-way.
    arrays: Option<[Array; 2]>,
}

impl Pool {
    /// Takes the arrays, to be written and put back.
    pub(crate) fn take(&mut self) -> mlx::Result<[Array; 2]> {
        self.arrays.take().ok_or_else(poisoned)
    }

    pub(crate) fn put(&mut self, arrays: [Array; 2]) {
        self.arrays = Some(arrays);
    }

    /// The arrays, for reading.
    pub(crate) fn arrays(&self) -> &[Array] {
        self.arrays.as_ref().map_or(&[], |arrays| arrays.as_slice())
    }
}

impl KvCache {
    /// Zeroed pools with `blocks[g]` blocks for group `g` of [`Blueprint::kv_cache_groups`] with this storage.
    pub fn new(
        blueprint: &Blueprint,
        blocks: &[usize],
        block_size: usize,
        storage: impl Into<KvStorage>,
    ) -> mlx::Result<Self> {
        let storage = storage.into();
        let groups = blueprint.kv_cache_groups(storage);
        let pool = |layer: usize, group: usize| -> mlx::Result<Pool> {
            let KvCacheGroup { kind, format, .. } = groups[group];
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
        places.sort_by_key(|(layer, group)| (groups[*group].visible_to == VisibleTo::PrefixRows, *layer));
        let pools = places.into_iter().map(|(layer, group)| pool(layer, group));
        let pools = pools.collect::<mlx::Result<_>>()?;
        Ok(Self { block_size, storage, blocks: blocks.to_vec(), groups, pools })
    }

    /// Its groups.
    pub fn groups(&self) -> &[KvCacheGroup] {
        &self.groups
    }

    /// The pools of a layer: its own, and that of the unquantized prefix.
    pub(crate) fn pools_of_layer(&self, layer: usize) -> impl Iterator<Item = usize> + use<> {
        let prefix = self.pools.iter().rposition(|pool| pool.layer == layer).filter(|at| *at != layer);
        std::iter::once(layer).chain(prefix)
    }

    /// The kind of a group.
    pub(crate) fn kind(&self, group: usize) -> Option<GroupKind> {
        self.groups.get(group).map(|group| group.kind)
    }

    /// Blocks of a group that hold sink tokens.
    pub(crate) fn kept_blocks(&self, group: usize) -> usize {
        match self.kind(group) {
            Some(GroupKind::Window { sink_tokens, .. }) => sink_tokens.div_ceil(self.block_size),
            Some(GroupKind::Full | GroupKind::UnquantizedPrefix { .. } | GroupKind::State) | None => 0,
        }
    }

    /// True if the token at `position` attends to the one at `key`, in a group of keys and values.
    pub(crate) fn sees(&self, group: usize, position: usize, key: usize) -> bool {
        let window = match self.kind(group) {
            Some(GroupKind::Window { tokens, sink_tokens }) => key + tokens > position || key < sink_tokens,
            Some(GroupKind::Full | GroupKind::UnquantizedPrefix { .. } | GroupKind::State) | None => true,
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
                moved.eval()?; // Evaluated before the pool is written, so that the write is in place.
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

    /// False after a step failed while it was built; the pools must then be allocated again.
    pub fn is_whole(&self) -> bool {
        self.pools.iter().all(|pool| pool.arrays.is_some())
    }
}

pub(crate) fn poisoned() -> mlx::Error {
    mlx::Error::new("an earlier failure left no pool")
}
