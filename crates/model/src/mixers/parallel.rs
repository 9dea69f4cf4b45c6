//! Several mixers beside each other: the sum of what each makes of the same rows (Falcon-H1).

use mlx::Array;

use super::{Mixer, MixerCache, MixerSpec};
use crate::blocks::MixerBlock;
use crate::manifest::Scope;
use crate::mixers::AttentionSpan;
use crate::ops::{LayerContext, Ops};
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};
use crate::weights::{LoadError, Store};

/// Mixers beside each other, each with its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Parallel(pub Vec<(&'static str, Mixer)>);

impl Rules for Parallel {
    fn check_rules(&self, broken: &mut Broken) {
        self.0.iter().for_each(|(_, mixer)| mixer.spec().check_rules(broken));
    }
}

impl Tensors for Parallel {
    fn name_tensors(&self, at: &mut Scope) {
        for (name, mixer) in &self.0 {
            mixer.spec().name_tensors(&mut at.at(name));
        }
    }
}

impl Footprint for Parallel {
    fn row_elements(&self, hidden: usize) -> usize {
        self.0.iter().map(|(_, mixer)| mixer.spec().row_elements(hidden)).sum()
    }
}

impl MixerSpec for Parallel {
    fn caches(&self) -> Vec<&dyn MixerCache> {
        self.0.iter().flat_map(|(_, mixer)| mixer.spec().caches()).collect()
    }
}

/// Mixers beside each other, with their weights.
pub(super) struct ParallelBlock {
    ops: Ops,
    /// Each with the number of its caches.
    parts: Vec<(Box<dyn MixerBlock>, usize)>,
}

impl ParallelBlock {
    pub(super) fn load(spec: &Parallel, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let load = |(name, mixer): &(&'static str, Mixer)| {
            Ok((mixer.load(store, &format!("{path}.{name}"))?, mixer.spec().caches().len()))
        };
        let parts = spec.0.iter().map(load).collect::<Result<_, LoadError>>()?;
        Ok(Self { ops: store.ops(), parts })
    }
}

impl MixerBlock for ParallelBlock {
    fn forward(&self, x: &Array, mut layer: LayerContext) -> mlx::Result<Array> {
        let (mut sum, mut first): (Option<Array>, usize) = (None, 0);
        for (part, caches) in &self.parts {
            let mixed = part.forward(x, layer.part(first))?;
            first += caches;
            sum = Some(match sum {
                Some(sum) => self.ops.add_term(&sum, &mixed, None)?,
                None => mixed,
            });
        }
        sum.ok_or_else(|| mlx::Error::new("at least one mixer"))
    }

    fn set_span(&mut self, span: AttentionSpan) {
        self.parts.iter_mut().for_each(|(part, _)| part.set_span(span));
    }
}
