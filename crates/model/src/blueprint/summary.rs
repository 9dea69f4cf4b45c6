//! What a list of architectures says of a blueprint: the kinds of its blocks, and what they cache.

use omnibus_kv::{CacheKind, FloatType, KvFormat};

use crate::blueprint::{Blueprint, LayerSpec, StreamKind};
use crate::mixers::{Attention, KeySource, Mixer, Parallel};
use crate::mlps::{Mlp, SharedGate};

impl Blueprint {
    /// The kinds of its blocks, each once, in order of use.
    pub fn blocks(&self) -> Vec<&'static str> {
        let mut blocks = Vec::new();
        let of_layers = self.layers.iter().flat_map(LayerSpec::blocks).chain(self.of_stream());
        for block in of_layers {
            if !blocks.contains(&block) {
                blocks.push(block);
            }
        }
        blocks
    }

    /// What its layers cache, each kind once.
    pub fn caches(&self) -> Vec<&'static str> {
        let name = |kind| match kind {
            CacheKind::Full => "keys and values",
            CacheKind::Latent => "latents",
            CacheKind::SlidingWindow { .. } => "windows",
            CacheKind::UnquantizedPrefix { .. } => "prefixes",
            CacheKind::State => "states",
        };
        let groups = self.kv_cache_groups(KvFormat::Float(FloatType::F32));
        let groups = groups.into_iter().filter(|group| !group.layers.is_empty());
        let mut caches: Vec<&str> = groups.map(|group| name(group.spec.kind)).collect();
        caches.dedup();
        caches
    }

    /// What happens to the stream outside and between layers.
    fn of_stream(&self) -> impl Iterator<Item = &'static str> {
        let of_stream = match self.stream {
            StreamKind::Plain => None,
            StreamKind::F32 => Some("a stream in float32"),
            StreamKind::Alternating(_) => Some("alternating updates"),
            StreamKind::Hyper(_) => Some("hyper-connections"),
            StreamKind::History { .. } => Some("attention to the stream's history"),
        };
        let all = [
            (self.learned_positions.is_some(), "learned positions"),
            (self.per_layer_inputs.is_some(), "per-layer embeddings"),
            (of_stream.is_some(), of_stream.unwrap_or_default()),
            (self.passes.count() > 1, "several passes"),
            (!self.rotated.is_empty(), "rotated weights"),
            (self.masked_head.is_some(), "a masked language model's head"),
            (self.layers.is_empty(), "a table of vectors"),
        ];
        all.into_iter().filter_map(|(has, name)| has.then_some(name))
    }
}

impl LayerSpec {
    fn blocks(&self) -> Vec<&'static str> {
        let mut blocks = self.mixer.blocks();
        blocks.extend(self.mlp.iter().flat_map(Mlp::blocks));
        blocks.extend(self.shortcut.iter().flat_map(|(_, mlp)| mlp.blocks()));
        blocks.extend(self.laurel.map(|_| "a low-rank layer beside the mixer"));
        blocks
    }
}

impl Mixer {
    pub(super) fn blocks(&self) -> Vec<&'static str> {
        let name = match self {
            Self::Attention(spec) => return spec.blocks(),
            Self::Parallel(Parallel(parts)) => {
                return parts.iter().flat_map(|(_, part)| part.blocks()).collect();
            }
            Self::Absent(_) => return Vec::new(),
            Self::Latent(_) => "latent attention",
            Self::Mamba1(_) => "Mamba",
            Self::Mamba2(_) => "Mamba-2",
            Self::SelectiveMamba2(_) => "Mamba-2 with selected steps",
            Self::GatedDelta(_) => "gated delta net",
            Self::DeltaAttention(_) => "delta attention",
            Self::Lightning(_) => "lightning attention",
            Self::RgLru(_) => "RG-LRU",
            Self::ShortConv(_) => "short convolution",
            Self::ConvGate(_) => "gates of convolved keys",
            Self::ConvAttention(_) => "attention with convolved keys",
            Self::LoopAttention(_) => "attention of two passes",
            Self::IndexedAttention(_) => "attention to chosen blocks",
            Self::NgramEmbedding(_) => "n-gram embeddings",
            Self::TimeMix(_) => "RWKV-7 time mixing",
            Self::ChannelMix(_) => "channel mixing",
            Self::Compressed(_) => "attention to compressed entries",
            Self::CrossAttention(_) => "cross attention",
            Self::PerPosition(_) => "MLP in the place of attention",
        };
        vec![name]
    }
}

impl Attention {
    fn blocks(&self) -> Vec<&'static str> {
        let all = [
            (true, "attention"),
            (self.sink_logits, "sinks"),
            (self.softcap.is_some(), "soft caps"),
            (self.out_gate.is_some(), "gated outputs"),
            (self.block_sparse.is_some(), "sparse blocks"),
            (matches!(self.keys, KeySource::Layer(_)), "shared keys"),
            (self.distances.is_some(), "scores by distance"),
        ];
        all.into_iter().filter_map(|(has, name)| has.then_some(name)).collect()
    }
}

impl Mlp {
    fn blocks(&self) -> Vec<&'static str> {
        match self {
            Self::Gated(_) => vec!["gated MLP"],
            Self::Plain(_) => vec!["MLP"],
            Self::Linear(_) => vec!["linear layer"],
            Self::Normed(_) => vec!["gated MLP with a norm"],
            Self::DenseAndRouted(_) => vec!["gated MLP", "routed experts"],
            Self::Moe(moe) => {
                let shared = moe.shared.map(|shared| match shared.gate {
                    SharedGate::None => "shared experts",
                    SharedGate::Sigmoid | SharedGate::Mix => "gated shared experts",
                });
                ["routed experts"].into_iter().chain(shared).collect()
            }
        }
    }
}
