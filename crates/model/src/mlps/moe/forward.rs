//! The forward pass of a mixture of experts.

use mlx::Array;

use super::shared::SharedExpertBlock;
use super::{Expert, Moe};
use crate::blocks::{ExpertLinear, Linear, MlpBlock};
use crate::mlps::router::RouterBlock;
use crate::ops::{ChosenExperts, Ops};
use crate::weights::Store;
use crate::{Activation, LoadError, Weighs};

/// Routed experts.
pub(crate) struct MoeBlock {
    ops: &'static dyn Ops,
    router: RouterBlock,
    input: ExpertInput,
    down_proj: ExpertLinear,
    act: Activation,
    weighs: Weighs,
    shared: Option<SharedExpertBlock>,
    /// To the experts' narrower vector and back.
    latent: Option<[Linear; 2]>,
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

    fn forward(
        &self,
        ops: &dyn Ops,
        x: &Array,
        experts: &ChosenExperts,
        act: Activation,
    ) -> mlx::Result<Array> {
        match self {
            Self::Joined(joined) => ops.gated_act(&joined.forward(x, experts)?, act),
            Self::Apart([gate, up]) => {
                ops.gated_act_pair(&gate.forward(x, experts)?, &up.forward(x, experts)?, act)
            }
            Self::Plain(up) => ops.act(&up.forward(x, experts)?, act),
        }
    }

    fn parts(&self) -> Vec<&ExpertLinear> {
        match self {
            Self::Joined(one) | Self::Plain(one) => vec![one],
            Self::Apart(parts) => parts.iter().collect(),
        }
    }
}

impl MoeBlock {
    pub(crate) fn load(spec: &Moe, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let experts = format!("{path}.switch_mlp");
        let shared = spec.shared.map(|shared| SharedExpertBlock::load(shared, spec.expert, store, path));
        let mut linear = |name: &str| store.linear(&format!("{path}.{name}"));
        let latent = match spec.latent {
            Some(_) => Some([linear("fc1_latent_proj")?, linear("fc2_latent_proj")?]),
            None => None,
        };
        Ok(Self {
            latent,
            ops: store.ops(),
            input: ExpertInput::load(spec.expert, store, &experts)?,
            down_proj: store.expert_linear(&format!("{experts}.down_proj"))?,
            router: RouterBlock::load(spec.router, spec.top_k, store, path)?,
            act: spec.expert.act(),
            weighs: spec.router.weighs,
            shared: shared.transpose()?,
        })
    }
}

impl MlpBlock for MoeBlock {
    fn forward(&self, x: &Array) -> mlx::Result<Array> {
        let (experts, weights) = self.router.forward(x)?;
        let narrow = self.latent.as_ref().map(|[down, _]| down.forward(x)).transpose()?;
        let read = narrow.as_ref().unwrap_or(x);
        let y = match self.weighs {
            Weighs::Outputs => {
                let activated = self.input.forward(self.ops, read, &experts, self.act)?;
                self.ops.weighted_sum(&self.down_proj.forward(&activated, &experts)?, &weights)?
            }
            Weighs::Inputs => {
                let weights = weights.astype(read.dtype()?)?.expand_dims(&[-1])?;
                let weighed = read.expand_dims(&[1])? * weights;
                let activated = self.input.forward(self.ops, &weighed, &experts, self.act)?;
                self.down_proj.forward(&activated, &experts)?.sum(&[1])?
            }
        };
        let y = match &self.latent {
            Some([_, up]) => up.forward(&y)?,
            None => y,
        };
        match &self.shared {
            Some(shared) => shared.join(x, y),
            None => Ok(y),
        }
    }

    fn arrays(&self) -> Vec<&Array> {
        let experts = self.input.parts().into_iter().chain([&self.down_proj]).flat_map(ExpertLinear::arrays);
        let shared = self.shared.iter().flat_map(SharedExpertBlock::arrays);
        let latent = self.latent.iter().flatten().flat_map(Linear::arrays);
        self.router.arrays().into_iter().chain(experts).chain(shared).chain(latent).collect()
    }
}
