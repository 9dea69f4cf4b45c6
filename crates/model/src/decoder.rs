//! The one decoder: embeds rows, runs the layers over them, and yields logits where they are wanted.

mod parts;
mod slots;
mod step;

use mlx::{Array, Dtype};

use crate::blocks::{Embedding, Kernels, Linear, MixerBlock, MlpBlock, RmsNorm, Stream};
use crate::weights::Store;
use crate::{
    Batch, Blueprint, Error, Head, KvState, LayerSpec, LoadError, Mixer, Quantization, Source, Weights,
    Wiring, families,
};

pub(crate) use slots::SlotStep;
pub use step::Attending;
pub(crate) use step::{BlockStep, Gather, Rows, Step};

/// A network with its weights. Belongs to the thread that built it.
pub struct Model {
    blueprint: Blueprint,
    quantization: Quantization,
    kernels: Kernels,
    dtype: Dtype,
    embed: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Option<Linear>,
}

struct Layer {
    wiring: Wiring,
    norms: Vec<RmsNorm>,
    mixer: MixerBlock,
    mlp: Option<MlpBlock>,
}

/// Float32 logits of the rows a batch asked for, `[n, vocab]`.
pub struct RowLogits(pub Array);

impl Model {
    /// Reads the config and the weights of a checkpoint, checks one against the other, and makes the
    /// weights resident.
    pub fn load(source: &Source, kernels: Kernels) -> Result<Self, Error> {
        let config = source.json("config.json")?;
        let in_config = |error| Error::Config { file: source.path("config.json"), error: Box::new(error) };
        let blueprint = families::read(&config).map_err(in_config)?;
        let quantization = Quantization::read(&config).map_err(in_config)?;
        Self::build(blueprint, quantization, source.weights()?, kernels)
    }

    /// The network of a blueprint over the tensors of a checkpoint.
    pub fn build(
        mut blueprint: Blueprint,
        quantization: Quantization,
        weights: Weights,
        kernels: Kernels,
    ) -> Result<Self, Error> {
        let mut store = Store::new(&mut blueprint, quantization.clone(), weights, kernels)?;
        let root = blueprint.names.root;
        let embed_path = format!("{root}.{}", blueprint.names.embed);
        let dtype = store.activation_dtype(&embed_path)?;
        let embed = Embedding(store.linear(&embed_path)?);
        settle(embed.0.arrays())?;
        let load_layer = |(index, spec): (usize, &LayerSpec)| {
            let layer = Layer::load(spec, &mut store, &format!("{root}.layers.{index}"))?;
            settle(layer.arrays())?;
            Ok(layer)
        };
        let layers = blueprint.layers.iter().enumerate().map(load_layer).collect::<Result<_, LoadError>>()?;
        let norm = store.norm(&format!("{root}.{}", blueprint.names.final_norm), blueprint.final_norm)?;
        let head = match blueprint.head {
            Head::Own => Some(store.linear("lm_head")?),
            Head::Tied | Head::OwnIfPresent => None,
        };
        settle(head.iter().flat_map(Linear::arrays).chain([&norm.weight]).collect())?;
        assert!(store.is_empty(), "the check left only what the blocks take");
        Ok(Self { blueprint, quantization, kernels, dtype, embed, layers, norm, head })
    }

    /// Lets layers that attend to everything see the first `keep` positions and the last ones, `tokens` together, so
    /// that a sequence of any length takes the memory of so many. `tokens` is above `keep`.
    pub fn bound_reach(&mut self, tokens: usize, keep: usize) {
        self.blueprint.bound_reach(tokens, keep);
        for (layer, spec) in self.layers.iter_mut().zip(&self.blueprint.layers) {
            if let (MixerBlock::Attention(block), Mixer::Attention(spec)) = (&mut layer.mixer, &spec.mixer) {
                block.set_reach(spec.reach);
            }
        }
    }

    /// What the network is.
    pub fn blueprint(&self) -> &Blueprint {
        &self.blueprint
    }

    /// How its weights are packed.
    pub fn quantization(&self) -> &Quantization {
        &self.quantization
    }

    /// The dtype of activations, and of keys and values by default.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Who computes.
    pub fn kernels(&self) -> Kernels {
        self.kernels
    }

    /// How its rows reach what is remembered. A rotation that depends on a sequence's length is
    /// beyond the in-place kernel.
    pub fn attending(&self) -> Attending {
        match self.kernels {
            Kernels::Cpu if self.blueprint.shares_prefixes() => Attending::InPlace,
            Kernels::Cpu | Kernels::Reference => Attending::Gathered,
        }
    }

    /// Builds the graph of one pass. Keys, values and states of every segment's rows go into `state`.
    /// Nothing is computed before the result is evaluated, but that the reference path reads the states
    /// where recurrences begin.
    ///
    /// Logits come for the rows `batch.logits_at` names, in that order; `None` if it names none. After
    /// an error `state` may have lost pools ([`KvState::is_whole`]).
    pub fn forward(&self, batch: &Batch, state: &mut KvState) -> mlx::Result<Option<RowLogits>> {
        let step = Step::new(batch, state, self.attending(), self.kernels)?;
        let x = self.embed.forward(&batch.tokens, self.dtype, self.kernels)?;
        let x = if self.blueprint.embed_scale == 1.0 {
            x
        } else {
            // Gemma was trained with the scale in bfloat16, whatever it runs in.
            let scale = Array::scalar(self.blueprint.embed_scale, Dtype::Bf16)?.astype(self.dtype)?;
            x * scale
        };
        let mut stream = Stream::new(x, self.kernels);
        for (index, layer) in self.layers.iter().enumerate() {
            layer.forward(&mut stream, &step, index, state, self.kernels)?;
        }
        let Some(rows) = &step.logits_at else { return Ok(None) };
        stream.take_rows(rows)?;
        let x = stream.norm(&self.norm)?;
        let logits =
            self.head.as_ref().unwrap_or(&self.embed.0).forward(&x, self.kernels)?.astype(Dtype::F32)?;
        Ok(Some(RowLogits(match self.blueprint.logit_softcap {
            Some(cap) => (logits / cap).tanh()? * cap,
            None => logits,
        })))
    }
}

impl Layer {
    fn load(spec: &LayerSpec, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let norm = |name: &&str| (format!("{path}.{name}"), spec.norm);
        let norms: Vec<_> = spec.wiring.norms().iter().map(norm).collect();
        Ok(Self {
            wiring: spec.wiring,
            norms: norms.into_iter().map(|(path, norm)| store.norm(&path, norm)).collect::<Result<_, _>>()?,
            mixer: MixerBlock::load(&spec.mixer, store, &format!("{path}.{}", spec.mixer_name))?,
            mlp: match &spec.mlp {
                Some(mlp) => Some(MlpBlock::load(mlp, store, &format!("{path}.mlp"))?),
                None => None,
            },
        })
    }

    /// The only place that matches on [`Wiring`].
    fn forward(
        &self,
        x: &mut Stream,
        step: &Step,
        index: usize,
        state: &mut KvState,
        kernels: Kernels,
    ) -> mlx::Result<()> {
        let mut mixer = |x: &Array| self.mixer.forward(x, step, index, state, kernels);
        match (&self.wiring, self.norms.as_slice(), &self.mlp) {
            (Wiring::Alone { .. }, [before], None) => {
                let mixed = mixer(&x.norm(before)?)?;
                x.add(mixed);
            }
            (Wiring::Pre { .. }, [before, before_mlp], Some(mlp)) => {
                let mixed = mixer(&x.norm(before)?)?;
                x.add(mixed);
                let transformed = mlp.forward(&x.norm(before_mlp)?, kernels)?;
                x.add(transformed);
            }
            (Wiring::Sandwich { .. }, [before, after, before_mlp, after_mlp], Some(mlp)) => {
                let mixed = mixer(&x.norm(before)?)?;
                x.add(after.forward(&mixed, kernels)?);
                let transformed = mlp.forward(&x.norm(before_mlp)?, kernels)?;
                x.add(after_mlp.forward(&transformed, kernels)?);
            }
            (Wiring::Alone { .. } | Wiring::Pre { .. } | Wiring::Sandwich { .. }, _, _) => {
                return Err(mlx::Error::new("the norms and the MLP that the wiring names"));
            }
        }
        Ok(())
    }

    fn arrays(&self) -> Vec<&Array> {
        let norms = self.norms.iter().map(|norm| &norm.weight);
        norms.chain(self.mixer.arrays()).chain(self.mlp.iter().flat_map(MlpBlock::arrays)).collect()
    }
}

/// Makes weights resident, and lets go of what they were computed from.
fn settle(arrays: Vec<&Array>) -> Result<(), LoadError> {
    Ok(mlx::eval(arrays)?)
}
