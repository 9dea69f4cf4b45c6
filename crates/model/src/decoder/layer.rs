//! One layer: a mixer and an MLP around the residual stream, as the norm placement says.

use mlx::Array;

use crate::blocks::{
    AlternatingBlock, FinishBlock, HistoryBlock, HyperBlock, LaurelBlock, MixerBlock, MlpBlock, NormBlock,
    ResidualBlock, ResidualStream, TokenInputs,
};
use crate::blueprint::{
    BesideSum, HISTORY_PARTS, HYPER_PARTS, LayerSpec, NormPlacement, RESIDUAL_GATES, StreamKind,
};
use crate::ops::{LayerContext, Ops};
use crate::weights::{LoadError, Store};

/// One layer with its weights.
pub(super) struct Layer {
    ops: Ops,
    norm_placement: NormPlacement,
    /// Of the mixer and of the MLP.
    residual: [ResidualBlock; 2],
    norms: Vec<NormBlock>,
    pub(super) mixer: Box<dyn MixerBlock>,
    mlp: Option<Box<dyn MlpBlock>>,
    shortcut: Option<Box<dyn MlpBlock>>,
    laurel: Option<LaurelBlock>,
    stream: LayerStream,
    finish: Vec<FinishBlock>,
}

/// How a layer meets the stream.
enum LayerStream {
    /// It adds to a sum.
    Sum,
    Alternating(AlternatingBlock),
    /// Of the mixer and of the MLP.
    Hyper([HyperBlock; 2]),
    History(LayerHistory),
}

/// How the mixer and the MLP of a layer read the stream's history.
struct LayerHistory {
    begins_block: bool,
    parts: [HistoryBlock; 2],
}

impl LayerStream {
    /// Of the layer at `path`, the `index`-th of the network.
    fn load(
        (kind, index): (StreamKind, usize),
        eps: f32,
        store: &mut Store,
        path: &str,
    ) -> Result<Self, LoadError> {
        Ok(match kind {
            StreamKind::Plain | StreamKind::F32 => Self::Sum,
            StreamKind::Alternating(updates) => {
                Self::Alternating(AlternatingBlock::load(updates, store, path)?)
            }
            StreamKind::Hyper(hyper) => {
                let [mixer, mlp] =
                    HYPER_PARTS.map(|part| HyperBlock::load(hyper, store, &format!("{path}.{part}")));
                Self::Hyper([mixer?, mlp?])
            }
            StreamKind::History { block } => {
                let [mixer, mlp] =
                    HISTORY_PARTS.map(|part| HistoryBlock::load(store, &format!("{path}.{part}"), eps));
                Self::History(LayerHistory {
                    begins_block: index.is_multiple_of(block),
                    parts: [mixer?, mlp?],
                })
            }
        })
    }
}

impl Layer {
    /// `stream`: what it meets, and which layer of the network it is.
    pub(super) fn load(
        spec: &LayerSpec,
        stream: (StreamKind, usize),
        store: &mut Store,
        path: &str,
        hidden: usize,
    ) -> Result<Self, LoadError> {
        let norms = spec.norms().into_iter().map(|(name, norm)| (format!("{path}.{name}"), norm));
        let at = (path, spec.number);
        let finish = spec.finish.iter().map(|finish| FinishBlock::load(finish, store, at, hidden));
        let finish = finish.collect::<Result<_, _>>()?;
        let residual = |part: usize, store: &mut Store| {
            ResidualBlock::load(spec.residual, store, &format!("{path}.{}", RESIDUAL_GATES[part]))
        };
        Ok(Self {
            ops: store.ops(),
            finish,
            laurel: spec.laurel.map(|_| LaurelBlock::load(store, path, spec.norm)).transpose()?,
            stream: LayerStream::load(stream, spec.norm.eps(), store, path)?,
            shortcut: match &spec.shortcut {
                Some((name, mlp)) => Some(mlp.load(store, &format!("{path}.{name}"))?),
                None => None,
            },
            norm_placement: spec.norm_placement,
            residual: [residual(0, store)?, residual(1, store)?],
            norms: norms.map(|(path, norm)| store.norm(&path, norm, hidden)).collect::<Result<_, _>>()?,
            mixer: spec.mixer.load(store, &format!("{path}.{}", spec.mixer_name))?,
            mlp: match &spec.mlp {
                Some(mlp) => Some(mlp.load(store, &format!("{path}.{}", spec.mlp_name))?),
                None => None,
            },
        })
    }

    pub(super) fn forward(
        &self,
        x: &mut ResidualStream,
        inputs: &TokenInputs,
        layer: LayerContext,
    ) -> mlx::Result<()> {
        if self.mixer.attends_to_pictures() {
            return self.cross(x, layer);
        }
        match &self.stream {
            LayerStream::Alternating(alternating) => {
                return self.alternate(alternating, x, inputs, layer);
            }
            LayerStream::Sum => match (self.norm_placement, &self.mlp) {
                (NormPlacement::OfSums { .. } | NormPlacement::Unnormed { .. }, Some(mlp)) => {
                    self.compute_in_encoder(mlp.as_ref(), x, layer)?;
                }
                _ => self.compute(x, inputs, layer)?,
            },
            LayerStream::History(history) => self.compute_with_history(history, x, layer)?,
            LayerStream::Hyper(parts) => self.compute_with_copies(parts, x, layer)?,
        }
        if self.shortcut.is_none() {
            x.add_deferred()?;
        }
        self.finish.iter().try_for_each(|finish| finish.forward(x, inputs))
    }

    /// A layer of cross attention: rows without a picture or a sound pass it by.
    fn cross(&self, x: &mut ResidualStream, layer: LayerContext) -> mlx::Result<()> {
        let Some(crossing) = &layer.ctx.cross else { return Ok(()) };
        let [mixed_joins, transformed_joins] = &self.residual;
        let [before, rest @ ..] = self.norms.as_slice() else {
            return Err(mlx::Error::new("a norm before cross attention"));
        };
        let normed = x.norm(before)?;
        let mask = crossing.mask.astype(normed.dtype()?)?;
        let mixed = self.mixer.forward(&normed, layer)?;
        mixed_joins.add(x, mixed * &mask)?;
        match (rest, &self.mlp) {
            ([], None) => {}
            ([before_mlp], Some(mlp)) => {
                let transformed = mlp.forward(&x.norm(before_mlp)?)?;
                transformed_joins.add(x, transformed * mask)?;
            }
            _ => return Err(mlx::Error::new("a norm for the MLP of a layer of cross attention")),
        }
        Ok(())
    }

    /// Computes one copy of the stream, and corrects the others, which its own embeddings join.
    fn alternate(
        &self,
        alternating: &AlternatingBlock,
        x: &mut ResidualStream,
        inputs: &TokenInputs,
        layer: LayerContext,
    ) -> mlx::Result<()> {
        let predicted = alternating.predict(&x.copies)?;
        let mut active = alternating.active(&predicted)?;
        self.compute(&mut active, inputs, layer)?;
        x.copies = alternating.correct(&predicted, active.value()?)?;
        let read = alternating.scaled(&x.copies)?;
        for finish in &self.finish {
            let FinishBlock::PerLayerInput(block) = finish else { continue };
            let term = block.forward(&read, inputs)?;
            x.copies.iter_mut().skip(1).for_each(|copy| *copy = &*copy + &term);
        }
        Ok(())
    }

    /// Mixer and MLP, each with what it reads of the stream's history.
    fn compute_with_history(
        &self,
        LayerHistory { begins_block, parts: [of_mixer, of_mlp] }: &LayerHistory,
        x: &mut ResidualStream,
        layer: LayerContext,
    ) -> mlx::Result<()> {
        let [before, before_mlp] = self.norm_pair()?;
        let read = of_mixer.read(x)?;
        if *begins_block {
            x.begin_block()?;
        }
        x.add(self.mixer.forward(&before.forward(&read)?, layer)?)?;
        let read = of_mlp.read(x)?;
        if let Some(mlp) = &self.mlp {
            x.add(mlp.forward(&before_mlp.forward(&read)?)?)?;
        }
        Ok(())
    }

    /// Mixer and MLP, each of a mix of the stream's copies: the mixer by the last layer's shares, the MLP by the mixer's.
    fn compute_with_copies(
        &self,
        [of_mixer, of_mlp]: &[HyperBlock; 2],
        x: &mut ResidualStream,
        layer: LayerContext,
    ) -> mlx::Result<()> {
        let [before, before_mlp] = self.norm_pair()?;
        let shares = x.read_shares.take().ok_or_else(|| mlx::Error::new("shares of the copies"))?;
        let mix = of_mixer.mix(x)?;
        let mixed = self.mixer.forward(&before.forward(&x.of_copies(&shares)?)?, layer)?;
        x.mix_copies(&mix, &mixed)?;
        let next = of_mlp.mix(x)?;
        if let Some(mlp) = &self.mlp {
            let transformed = mlp.forward(&before_mlp.forward(&x.of_copies(&mix.read)?)?)?;
            x.mix_copies(&next, &transformed)?;
        }
        x.read_shares = Some(next.read);
        Ok(())
    }

    /// The norms before mixer and MLP.
    fn norm_pair(&self) -> mlx::Result<[&NormBlock; 2]> {
        match self.norms.as_slice() {
            [before, before_mlp] => Ok([before, before_mlp]),
            _ => Err(mlx::Error::new("a norm before the mixer and one before the MLP")),
        }
    }

    /// The mixer of embeddings beside the normed stream, which is then what the result is added to.
    fn mix_beside(
        &self,
        inputs: &TokenInputs,
        [of_embeddings, before]: [&NormBlock; 2],
        adds_to: BesideSum,
        x: &mut ResidualStream,
        layer: LayerContext,
    ) -> mlx::Result<Array> {
        let (embedded, normed) = (of_embeddings.forward(&inputs.embedded)?, x.norm(before)?);
        let mixed = self.mixer.forward(&self.ops.join(&embedded, &normed)?, layer)?;
        if adds_to == BesideSum::Normed {
            x.set(normed);
        }
        Ok(mixed)
    }

    /// Mixer and MLP of encoders, with norms of sums, or in a first layer without a norm before the mixer.
    fn compute_in_encoder(
        &self,
        mlp: &dyn MlpBlock,
        x: &mut ResidualStream,
        layer: LayerContext,
    ) -> mlx::Result<()> {
        let [mixed_joins, transformed_joins] = &self.residual;
        let mixed = self.mixer.forward(x.value()?, layer)?;
        mixed_joins.add(x, mixed)?;
        match self.norms.as_slice() {
            [before_mlp] => {
                let transformed = mlp.forward(&x.norm(before_mlp)?)?;
                transformed_joins.add(x, transformed)
            }
            [after, after_mlp] => {
                let normed = x.norm(after)?;
                x.set(normed.clone());
                transformed_joins.add(x, mlp.forward(&normed)?)?;
                let normed = x.norm(after_mlp)?;
                x.set(normed);
                Ok(())
            }
            _ => Err(mlx::Error::new("one norm or two in a layer of an encoder")),
        }
    }

    /// Mixer and MLP, as [`NormPlacement`] has them.
    fn compute(&self, x: &mut ResidualStream, inputs: &TokenInputs, layer: LayerContext) -> mlx::Result<()> {
        let [mixed_joins, transformed_joins] = &self.residual;
        match (&self.norm_placement, self.norms.as_slice(), &self.mlp) {
            (NormPlacement::Bare, [], None) => {
                let mixed = self.mixer.forward(x.value()?, layer)?;
                mixed_joins.add(x, mixed)?;
            }
            (NormPlacement::Alone { .. }, [before], None) => {
                let mixed = self.mixer.forward(&x.norm(before)?, layer)?;
                mixed_joins.add(x, mixed)?;
            }
            (NormPlacement::MlpAlone { .. }, [before], Some(mlp)) => {
                let transformed = mlp.forward(&x.norm(before)?)?;
                transformed_joins.add(x, transformed)?;
            }
            (NormPlacement::Nothing, [], None) => {}
            (NormPlacement::Pre { .. }, [before, before_mlp], Some(mlp)) => {
                let mixed = self.mixer.forward(&x.norm(before)?, layer)?;
                mixed_joins.add(x, mixed)?;
                let normed = x.norm(before_mlp)?;
                if let Some(shortcut) = &self.shortcut {
                    x.defer(shortcut.forward(&normed)?);
                }
                transformed_joins.add(x, mlp.forward(&normed)?)?;
            }
            (NormPlacement::Parallel { .. }, [before], Some(mlp)) => {
                let normed = x.norm(before)?;
                let (mixed, transformed) = (self.mixer.forward(&normed, layer)?, mlp.forward(&normed)?);
                let both = self.ops.add_term(&mixed, &transformed, None)?;
                mixed_joins.add(x, both)?;
            }
            (NormPlacement::ParallelPair { .. }, [before, before_mlp], Some(mlp)) => {
                let mixed = self.mixer.forward(&x.norm(before)?, layer)?;
                let transformed = mlp.forward(&x.norm(before_mlp)?)?;
                mixed_joins.add(x, self.ops.add_term(&mixed, &transformed, None)?)?;
            }
            (NormPlacement::Post { .. }, [after, after_mlp], Some(mlp)) => {
                let mixed = self.mixer.forward(x.value()?, layer)?;
                mixed_joins.add_normed(x, mixed, after)?;
                let transformed = mlp.forward(x.value()?)?;
                transformed_joins.add_normed(x, transformed, after_mlp)?;
            }
            (NormPlacement::Sandwich { .. }, [before, after, before_mlp, after_mlp], Some(mlp)) => {
                let normed = x.norm(before)?;
                let mixed = self.mixer.forward(&normed, layer)?;
                mixed_joins.add_normed(x, mixed, after)?;
                if let Some(laurel) = &self.laurel {
                    // The sum of two is as large as one.
                    let both = (x.value()? + laurel.forward(&normed)?) * 0.5f32.sqrt();
                    x.set(both);
                }
                let transformed = mlp.forward(&x.norm(before_mlp)?)?;
                transformed_joins.add_normed(x, transformed, after_mlp)?;
            }
            (NormPlacement::Beside { adds_to, .. }, [of_embeddings, before, before_mlp], Some(mlp)) => {
                let mixed = self.mix_beside(inputs, [of_embeddings, before], *adds_to, x, layer)?;
                mixed_joins.add(x, mixed)?;
                let transformed = mlp.forward(&x.norm(before_mlp)?)?;
                transformed_joins.add(x, transformed)?;
            }
            (NormPlacement::OpenSandwich { .. }, [before, after, after_mlp], Some(mlp)) => {
                let mixed = self.mixer.forward(&x.norm(before)?, layer)?;
                mixed_joins.add_normed(x, mixed, after)?;
                let transformed = mlp.forward(x.value()?)?;
                transformed_joins.add_normed(x, transformed, after_mlp)?;
            }
            _ => return Err(mlx::Error::new("the norms and the MLP that the norm placement names")),
        }
        Ok(())
    }
}
