//! The forward pass of a mixture of experts.

use mlx::{Array, Dtype};

use super::shared::SharedExpertBlock;
use super::{Expert, Latent, Moe};
use crate::Activation;
use crate::blocks::{ExpertLinear, Linear, MlpBlock, NormBlock};
use crate::mlps::Weighs;
use crate::mlps::router::RouterBlock;
use crate::ops::{ChosenExperts, Ops};
use crate::params::Param;
use crate::shard::Shard;
use crate::weights::{LoadError, Store};

/// Routed experts.
pub(crate) struct MoeBlock {
    ops: Ops,
    router: RouterBlock,
    input: ExpertInput,
    down_proj: ExpertLinear,
    act: Activation,
    weighs: Weighs,
    /// Experts that compute, and those that give back what they read.
    experts: usize,
    identities: usize,
    shared: Option<SharedExpertBlock>,
    /// To the experts' narrower vector and back.
    latent: Option<[Linear; 2]>,
    latent_norms: [Option<NormBlock>; 3],
    /// `[hidden]`
    sum_bias: Option<Param>,
    /// Where each rank computes a part of every expert's width.
    shard: Option<Shard>,
}

/// The projections into an expert.
enum ExpertInput {
    /// Gate and up in one product, the gate first.
    Joined(ExpertLinear),
    /// Gate and up, stored differently.
    Apart([ExpertLinear; 2]),
    /// Up alone.
    Plain(ExpertLinear),
}

impl ExpertInput {
    fn load(expert: Expert, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let mut input = |name: &str| store.expert_linear(&format!("{path}.{name}"));
        match expert {
            Expert::Plain(_) => Ok(Self::Plain(input("up_proj")?)),
            Expert::Gated(_) => {
                let (gate, up) = (input("gate_proj")?, input("up_proj")?);
                Ok(match ExpertLinear::join(&gate, &up)? {
                    Some(joined) => Self::Joined(joined),
                    None => Self::Apart([gate, up]),
                })
            }
        }
    }

    fn forward(&self, ops: &Ops, x: &Array, experts: &ChosenExperts, act: Activation) -> mlx::Result<Array> {
        match self {
            Self::Joined(joined) => ops.gated_act(&joined.forward(x, experts)?, act),
            Self::Apart([gate, up]) => {
                ops.gated_act_pair(&gate.forward(x, experts)?, &up.forward(x, experts)?, act)
            }
            Self::Plain(up) => ops.act(&up.forward(x, experts)?, act),
        }
    }
}

impl MoeBlock {
    pub(crate) fn load(spec: &Moe, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let experts = format!("{path}.switch_mlp");
        let shared = spec.shared.map(|shared| SharedExpertBlock::load(shared, spec.expert, store, path));
        let latent_norms = Self::latent_norms(spec, store, path)?;
        let sum_bias = spec.sum_bias.then(|| store.vector(&format!("{path}.experts_bias"))).transpose()?;
        let mut linear = |name: &str| store.linear(&format!("{path}.{name}"));
        let latent = match spec.latent {
            Some(_) => Some([linear("fc1_latent_proj")?, linear("fc2_latent_proj")?]),
            None => None,
        };
        Ok(Self {
            latent,
            latent_norms,
            sum_bias,
            shard: store.sum_of(&format!("{experts}.down_proj")),
            ops: store.ops(),
            input: ExpertInput::load(spec.expert, store, &experts)?,
            down_proj: store.expert_linear(&format!("{experts}.down_proj"))?,
            router: RouterBlock::load(spec.router, spec.top_k, store, path)?,
            act: spec.expert.act(),
            weighs: spec.router.weighs,
            experts: spec.experts,
            identities: spec.router.identities,
            shared: shared.transpose()?,
        })
    }

    fn latent_norms(spec: &Moe, store: &mut Store, path: &str) -> Result<[Option<NormBlock>; 3], LoadError> {
        let Some(Latent { width, norms }) = spec.latent else { return Ok([None, None, None]) };
        let [before, of_each, of_sum] = norms.named().map(|(name, norm)| {
            norm.map(|norm| store.norm(&format!("{path}.{name}"), norm, width)).transpose()
        });
        Ok([before?, of_each?, of_sum?])
    }
}

impl MoeBlock {
    /// What the experts that `route` chooses make of `x`, `[T, hidden]` both.
    pub(crate) fn routed_by(&self, route: &Array, x: &Array) -> mlx::Result<Array> {
        let (chosen, weights) = self.router.forward(route)?;
        let (experts, weights, identity) = match self.identities {
            0 => (chosen, weights, None),
            _ => self.without_identities(chosen, weights)?,
        };
        let [norm_before, norm_of_each, norm_of_sum] = &self.latent_norms;
        let narrow = match &self.latent {
            Some([down, _]) => Some(normed(norm_before, down.forward(x)?)?),
            None => None,
        };
        let read = narrow.as_ref().unwrap_or(x);
        let y = match self.weighs {
            Weighs::Outputs => {
                let activated = self.input.forward(&self.ops, read, &experts, self.act)?;
                let computed = normed(norm_of_each, self.down_proj.forward(&activated, &experts)?)?;
                self.ops.weighted_sum(&computed, &weights)?
            }
            Weighs::Inputs => {
                let weights = weights.astype(read.dtype()?)?.expand_dims(&[-1])?;
                let weighed = read.expand_dims(&[1])? * weights;
                let activated = self.input.forward(&self.ops, &weighed, &experts, self.act)?;
                self.down_proj.forward(&activated, &experts)?.sum(&[1])?
            }
        };
        let y = match &self.shard {
            Some(shard) => shard.sum(&y)?,
            None => y,
        };
        let y = normed(norm_of_sum, y)?;
        let y = match &self.latent {
            Some([_, up]) => up.forward(&y)?,
            None => y,
        };
        let y = match &self.sum_bias {
            Some(bias) => y + bias,
            None => y,
        };
        let y = match identity {
            Some(weight) => y + x * weight.astype(x.dtype()?)?,
            None => y,
        };
        match &self.shared {
            Some(shared) => shared.join(x, y),
            None => Ok(y),
        }
    }

    /// The chosen experts that compute, with no weight in the places of others, and the weight of those, `[T, 1]`.
    fn without_identities(
        &self,
        chosen: ChosenExperts,
        weights: Array,
    ) -> mlx::Result<(ChosenExperts, Array, Option<Array>)> {
        let computing = Array::from_slice(&[self.experts as u32], &[1])?;
        let computes = chosen.indices.less(&computing)?;
        let (zero, first) = (Array::scalar(0.0, Dtype::F32)?, Array::zeros(&[1], Dtype::U32)?);
        let identity = mlx::where_(&computes, &zero, &weights)?.sum(&[-1])?.expand_dims(&[-1])?;
        let indices = mlx::where_(&computes, &chosen.indices, &first)?;
        Ok((ChosenExperts::new(indices), mlx::where_(&computes, &weights, &zero)?, Some(identity)))
    }
}

fn normed(norm: &Option<NormBlock>, x: Array) -> mlx::Result<Array> {
    norm.as_ref().map_or(Ok(x.clone()), |norm| norm.forward(&x))
}

impl MlpBlock for MoeBlock {
    fn forward(&self, x: &Array) -> mlx::Result<Array> {
        self.routed_by(x, x)
    }
}
