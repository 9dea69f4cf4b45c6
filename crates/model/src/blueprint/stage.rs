//! A part of a network: some of its layers one after the other. The first has the embedding, the last the head.
//!
//! Invariant: all that crosses from one part to the next is the residual stream, one row a token. Networks whose layers share
//! more are cut only where nothing of it crosses.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::blueprint::{Blueprint, DraftHeadInput, Finish, Head, LayerSpec, Passes, StreamKind, TokenTable};
use crate::config::ConfigError;
use crate::mixers::{Candidates, KeyReads, KeySource, Mixer};
use crate::rules::Broken;
use crate::weights::Weights;

/// Which part of a network a blueprint has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Stage {
    Whole,
    First,
    Middle {
        first_layer: usize,
    },
    Last {
        first_layer: usize,
    },
    /// No part, but a network of its own that reads the hidden states of another.
    DraftHead(DraftHeadInput),
}

impl Stage {
    /// Whether it begins with tokens, and not with the stream of the part before it.
    pub fn reads_tokens(self) -> bool {
        let has_table = |input: DraftHeadInput| input.table == TokenTable::Own;
        matches!(self, Self::Whole | Self::First) || self.draft_head().is_some_and(has_table)
    }

    /// Whether it ends with logits, and not with the stream that the next part begins with.
    pub fn gives_logits(self) -> bool {
        matches!(self, Self::Whole | Self::Last { .. } | Self::DraftHead(_))
    }

    /// What it reads, if it is a draft head.
    pub fn draft_head(self) -> Option<DraftHeadInput> {
        match self {
            Self::DraftHead(input) => Some(input),
            Self::Whole | Self::First | Self::Middle { .. } | Self::Last { .. } => None,
        }
    }

    /// The index of its first layer in the whole network.
    pub fn first_layer(self) -> usize {
        match self {
            Self::Whole | Self::First | Self::DraftHead(_) => 0,
            Self::Middle { first_layer } | Self::Last { first_layer } => first_layer,
        }
    }
}

impl Blueprint {
    /// The part of a whole network with these layers. Fails with every reason why it cannot be cut there.
    pub fn stage(&self, layers: Range<usize>) -> Result<Self, ConfigError> {
        let mut broken = Broken::default();
        self.check_stage(&layers, &mut broken);
        let rules = broken.into_rules();
        if !rules.is_empty() {
            return Err(ConfigError::Inconsistent { rules });
        }
        let stage = match (layers.start, layers.end == self.layers.len()) {
            (0, true) => Stage::Whole,
            (0, false) => Stage::First,
            (first_layer, false) => Stage::Middle { first_layer },
            (first_layer, true) => Stage::Last { first_layer },
        };
        let first = layers.start;
        let mut part = Self { stage, layers: self.layers[layers].to_vec(), ..self.clone() };
        for source in part.layers.iter_mut().flat_map(|layer| sources(&mut layer.mixer)) {
            *source -= first;
        }
        Ok(part)
    }

    /// Whether it has a table of embeddings: for tokens, or for logits.
    pub(crate) fn has_embeddings(&self) -> bool {
        self.stage.reads_tokens()
            || (self.stage.gives_logits() && !matches!(self.head, Head::Own | Head::Target | Head::Absent))
    }

    /// Leaves out the tensors of other parts, quantized or not.
    pub(crate) fn retain_tensors(&self, weights: &mut Weights) {
        if matches!(self.stage, Stage::Whole | Stage::DraftHead(_)) {
            return;
        }
        let modules = |blueprint: &Self| -> BTreeSet<String> {
            blueprint.manifest().0.keys().map(|name| module_of(name).to_owned()).collect()
        };
        let own = modules(self);
        let around = modules(&Self { stage: Stage::Whole, layers: Vec::new(), ..self.clone() });
        let numbers: BTreeSet<usize> = self.layers.iter().map(|layer| layer.number).collect();
        let layers = format!("{}.layers.", self.names.root);
        let number = |name: &str| name.strip_prefix(&layers)?.split('.').next()?.parse::<usize>().ok();
        weights.retain(|name, _| match number(name) {
            Some(number) => numbers.contains(&number),
            None => own.contains(module_of(name)) || !around.contains(module_of(name)),
        });
    }

    fn check_stage(&self, layers: &Range<usize>, broken: &mut Broken) {
        let Range { start, end } = *layers;
        let count = self.layers.len();
        let is_inside = self.stage == Stage::Whole && start < end && end <= count;
        broken.check(is_inside, || format!("layers {start}..{end} are some of a whole network's {count}"));
        if !is_inside || (start, end) == (0, count) {
            return;
        }
        let one_stage = match self.stream {
            StreamKind::Plain | StreamKind::F32 => None,
            StreamKind::Alternating(_) => Some("with several copies of the stream (altup)"),
            StreamKind::Hyper(_) => Some("with several copies of the stream (hyper-connections)"),
            StreamKind::History { .. } => Some("that read the stream's history"),
        };
        let shared = [
            (self.passes != Passes::One, "computed several times"),
            (self.per_layer_inputs.is_some(), "with embeddings of their own"),
            (one_stage.is_some(), one_stage.unwrap_or_default()),
            (self.has_cross_attention(), "that attend to pictures beside the sequence"),
        ];
        for (is_there, what) in shared {
            broken.check(!is_there, || format!("layers {what} are one stage"));
        }
        for (index, layer) in self.layers.iter().enumerate().take(end).skip(start) {
            check_layer(layer, (index, start), broken);
        }
        let cuts = [start, end].into_iter().filter(|cut| (1..count).contains(cut));
        for cut in cuts {
            let number = |layer: usize| self.layers.get(layer).map(|layer| layer.number);
            broken.check(number(cut - 1) != number(cut), || {
                format!("layers {} and {cut} are parts of one layer, in one stage", cut - 1)
            });
            let defers = self.layers.get(cut - 1).is_some_and(|layer| layer.shortcut.is_some());
            broken.check(!defers, || {
                format!("layer {cut} is in one stage with the one before, whose MLP joins behind it")
            });
        }
    }
}

/// What layer `index` of a stage from layer `start` on reads is in the stage.
fn check_layer(layer: &LayerSpec, (index, start): (usize, usize), broken: &mut Broken) {
    let mut mixer = layer.mixer.clone();
    for source in sources(&mut mixer).into_iter().map(|source| *source).filter(|source| *source < start) {
        broken.check(false, || {
            format!("layer {index} is in one stage with layer {source}, whose keys or choices it reads")
        });
    }
    let mixes_first = matches!(&layer.mixer, Mixer::TimeMix(time) if time.mixes_first_values);
    broken.check(start == 0 || !mixes_first, || {
        format!("layer {index} is in one stage with layer 0, whose values it reads")
    });
    broken.check(start == 0 || !layer.finish.contains(&Finish::AddEmbeddings), || {
        format!("layer {index} is in one stage with the embeddings, which it adds")
    });
}

/// The layers that a mixer reads keys or choices of, by their index in the blueprint.
fn sources(mixer: &mut Mixer) -> Vec<&mut usize> {
    match mixer {
        Mixer::Latent(latent) => match &mut latent.reads {
            KeyReads::AsLayer(source) => vec![source],
            KeyReads::All | KeyReads::Chosen(_) => Vec::new(),
        },
        Mixer::Compressed(compressed) => {
            let Some(reads) = &mut compressed.entries else { return Vec::new() };
            let nominator = reads.indexer.as_mut().and_then(|indexer| match &mut indexer.candidates {
                Candidates::Of(source) => Some(source),
                Candidates::All | Candidates::Nominates { .. } => None,
            });
            [&mut reads.source, &mut reads.chooser].into_iter().chain(nominator).collect()
        }
        other => {
            let keys = other.attentions_mut().into_iter().map(|attention| &mut attention.keys);
            keys.filter_map(|keys| match keys {
                KeySource::Layer(source) => Some(source),
                KeySource::Own | KeySource::OwnAsValues => None,
            })
            .collect()
        }
    }
}

/// The path of a tensor's module.
fn module_of(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(path, _)| path)
}
