//! The layers of a blueprint by what they cache: one cache spec a group.

use omnibus_kv::{CacheKind, FloatType, KvCacheSpec, KvFormat};

use crate::blueprint::Blueprint;
use crate::kv_format::KvStorage;
use crate::mixers::{Attention, Mixer, MixerCache};

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
    /// Their indices, ascending; none in a network that caches nothing.
    pub layers: Vec<usize>,
    /// Which of each layer's caches; most layers have one.
    pub parts: Vec<usize>,
    /// Which rows read them.
    pub visible_to: VisibleTo,
}

impl Blueprint {
    /// The layers by what they cache: full attention first, then windows, smallest first, then states; the groups of an
    /// unquantized prefix come last.
    pub fn kv_cache_groups(&self, storage: impl Into<KvStorage>) -> Vec<KvCacheGroup> {
        let KvStorage { format, unquantized_prefix } = storage.into();
        let visible_to = if unquantized_prefix.is_some() { VisibleTo::LaterRows } else { VisibleTo::All };
        let mut groups = self.groups_by(|cache| {
            let spec = cache.cache_spec(format);
            Some((spec, if spec.kind.is_state() { VisibleTo::All } else { visible_to }))
        });
        if groups.is_empty() {
            // Nothing is cached. A sequence has a place all the same, by which the scheduler counts it.
            let spec = KvCacheSpec::state(1);
            let (layers, parts) = (Vec::new(), Vec::new());
            groups.push(KvCacheGroup { spec, layers, parts, visible_to: VisibleTo::All });
        }
        if let Some(prefix) = unquantized_prefix {
            groups.extend(self.groups_by(|cache| {
                let spec = cache.cache_spec(KvFormat::Float(prefix.float));
                let kind = prefix_kind(spec.kind, prefix.tokens)?;
                Some((KvCacheSpec { kind, ..spec }, VisibleTo::PrefixRows))
            }));
        }
        groups
    }

    /// Groups of layers with the same kind of cache; `of` gives a cache's spec.
    fn groups_by(
        &self,
        of: impl Fn(&dyn MixerCache) -> Option<(KvCacheSpec, VisibleTo)>,
    ) -> Vec<KvCacheGroup> {
        let mut groups: Vec<KvCacheGroup> = Vec::new();
        let caches = self.layers.iter().enumerate().flat_map(|(index, layer)| {
            let caches = layer.mixer.spec().caches().into_iter().enumerate();
            caches.map(move |(part, cache)| (index, part, cache))
        });
        for (index, part, cache) in caches {
            let Some((spec, visible_to)) = of(cache) else { continue };
            match groups.iter_mut().find(|group| group.spec.kind == spec.kind) {
                Some(group) => {
                    group.layers.push(index);
                    group.parts.push(part);
                    group.spec.elements += spec.elements;
                }
                None => {
                    groups.push(KvCacheGroup { spec, layers: vec![index], parts: vec![part], visible_to });
                }
            }
        }
        groups.sort_by_key(|group| group.spec.kind);
        groups
    }

    /// True if some layer's cache of this kind is reached by MLX's operations alone.
    pub(crate) fn needs_mlx(&self, is_kind: impl Fn(CacheKind) -> bool) -> bool {
        let mut mixers = self.layers.iter().map(|layer| &layer.mixer);
        let needs = |mixer: &Mixer| mixer.attentions().into_iter().any(Attention::needs_mlx);
        if is_kind(CacheKind::Full) && mixers.any(needs) {
            return true;
        }
        let caches = self.layers.iter().flat_map(|layer| layer.mixer.spec().caches());
        let format = KvFormat::Float(FloatType::F32);
        caches.into_iter().any(|cache| !cache.has_kernel() && is_kind(cache.cache_spec(format).kind))
    }

    /// False when a cached key fits only the sequence it was computed for.
    pub fn shares_prefixes(&self) -> bool {
        let caches = self.layers.iter().flat_map(|layer| layer.mixer.spec().caches());
        caches.into_iter().all(MixerCache::shares_prefixes)
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
