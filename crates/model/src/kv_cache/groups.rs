//! The layers of a blueprint by what they cache: one cache spec a group.

use omnibus_kv::{CacheKind, KvCacheSpec, KvFormat};

use crate::{Attention, AttentionSpan, Blueprint, GatedDelta, KvStorage, Mamba2, Mixer, Position};

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
    /// What they cache, and in which format.
    pub spec: KvCacheSpec,
    /// Their indices, ascending.
    pub layers: Vec<usize>,
    /// Which rows read them.
    pub visible_to: VisibleTo,
}

impl Blueprint {
    /// The layers by what they cache: full attention first, then windows, smallest first, then states; the groups of an
    /// unquantized prefix come last.
    pub fn kv_cache_groups(&self, storage: impl Into<KvStorage>) -> Vec<KvCacheGroup> {
        let KvStorage { format, unquantized_prefix } = storage.into();
        let visible_to = if unquantized_prefix.is_some() { VisibleTo::LaterRows } else { VisibleTo::All };
        let mut groups = self.groups_by(|mixer| {
            let spec = mixer.cache_spec(format);
            Some((spec, if spec.kind.is_state() { VisibleTo::All } else { visible_to }))
        });
        if let Some(prefix) = unquantized_prefix {
            groups.extend(self.groups_by(|mixer| {
                let spec = mixer.cache_spec(KvFormat::Float(prefix.float));
                let kind = prefix_kind(spec.kind, prefix.tokens)?;
                Some((KvCacheSpec { kind, ..spec }, VisibleTo::PrefixRows))
            }));
        }
        groups
    }

    /// Groups of layers with the same kind of cache; `of` gives a layer's spec.
    fn groups_by(&self, of: impl Fn(&Mixer) -> Option<(KvCacheSpec, VisibleTo)>) -> Vec<KvCacheGroup> {
        let mut groups: Vec<KvCacheGroup> = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            let Some((spec, visible_to)) = of(&layer.mixer) else { continue };
            match groups.iter_mut().find(|group| group.spec.kind == spec.kind) {
                Some(group) => {
                    group.layers.push(index);
                    group.spec.elements += spec.elements;
                }
                None => groups.push(KvCacheGroup { spec, layers: vec![index], visible_to }),
            }
        }
        groups.sort_by_key(|group| group.spec.kind);
        groups
    }

    /// False when a cached key fits only the sequence it was computed for.
    pub fn shares_prefixes(&self) -> bool {
        !self.layers.iter().any(|layer| match &layer.mixer {
            Mixer::Attention(attention) => {
                matches!(&attention.position, Position::Rope(rope) if rope.depends_on_length())
            }
            Mixer::Mamba2(_) | Mixer::GatedDelta(_) => false,
        })
    }
}

/// What rows at the first `tokens` positions read in place of a group of this kind; states have no such rows.
fn prefix_kind(kind: CacheKind, tokens: usize) -> Option<CacheKind> {
    match kind {
        CacheKind::SlidingWindow { tokens: window, .. } if window < tokens => Some(kind),
        CacheKind::Full
        | CacheKind::Latent
        | CacheKind::SlidingWindow { .. }
        | CacheKind::UnquantizedPrefix { .. } => Some(CacheKind::UnquantizedPrefix { tokens }),
        CacheKind::State => None,
    }
}

impl Mixer {
    /// What one layer caches, keys and values in `format`.
    fn cache_spec(&self, format: KvFormat) -> KvCacheSpec {
        match self {
            Self::Attention(spec) => spec.cache_spec(format),
            Self::Mamba2(spec) => KvCacheSpec::state(elements(&spec.slot_shapes())),
            Self::GatedDelta(spec) => KvCacheSpec::state(elements(&spec.slot_shapes())),
        }
    }

    /// Shapes of the pool's arrays with `blocks` blocks.
    pub(super) fn pool_shapes(&self, blocks: usize, block_size: usize, format: KvFormat) -> [Vec<usize>; 2] {
        let slots = |shapes: [Vec<usize>; 2]| shapes.map(|shape| [vec![blocks], shape].concat());
        match self {
            Self::Attention(attention) => {
                let shape = vec![blocks, block_size, attention.kv_heads, format.width(attention.head_dim)];
                [shape.clone(), shape]
            }
            Self::Mamba2(spec) => slots(spec.slot_shapes()),
            Self::GatedDelta(spec) => slots(spec.slot_shapes()),
        }
    }
}

impl Attention {
    fn cache_spec(&self, format: KvFormat) -> KvCacheSpec {
        let kind = match self.span {
            AttentionSpan::Full => CacheKind::Full,
            AttentionSpan::Window(tokens) => CacheKind::SlidingWindow { tokens, sinks: 0 },
            AttentionSpan::Sinks { tokens, sink_tokens } => {
                CacheKind::SlidingWindow { tokens, sinks: sink_tokens }
            }
        };
        KvCacheSpec { kind, format, elements: 2 * self.kv_heads * self.head_dim }
    }
}

impl Mamba2 {
    /// The convolution's last rows, `[conv_kernel_size − 1, channels]`, and the state, `[heads, head_dim, state_dim]`.
    fn slot_shapes(&self) -> [Vec<usize>; 2] {
        let conv = vec![self.conv_kernel_size - 1, self.conv_channels()];
        [conv, vec![self.heads, self.head_dim, self.state_dim]]
    }
}

impl GatedDelta {
    /// The convolution's last rows, `[conv_kernel_size − 1, channels]`, and the state, `[v_heads, v_dim, k_dim]`.
    fn slot_shapes(&self) -> [Vec<usize>; 2] {
        let conv = vec![self.conv_kernel_size - 1, self.conv_channels()];
        [conv, vec![self.v_heads, self.v_dim, self.k_dim]]
    }
}

fn elements(shapes: &[Vec<usize>]) -> usize {
    shapes.iter().map(|shape| shape.iter().product::<usize>()).sum()
}
