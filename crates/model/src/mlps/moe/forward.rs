//! The forward pass of a mixture of experts.

use mlx::Array;

use super::{Moe, SharedExpert};
use crate::blocks::{ExpertLinear, Linear, MlpBlock};
use crate::mlps::gated::GatedBlock;
use crate::mlps::router::RouterBlock;
use crate::ops::{ChosenExperts, Ops};
use crate::weights::Store;
use crate::{Activation, LoadError};

/// Routed experts.
pub(crate) struct MoeBlock {
    ops: &'static dyn Ops,
    router: RouterBlock,
    gate_proj: ExpertLinear,
    up_proj: ExpertLinear,
    down_proj: ExpertLinear,
    act: Activation,
    shared: Option<SharedExpertBlock>,
}

/// The expert that computes every row, and the projection to its gate.
struct SharedExpertBlock {
    expert: GatedBlock,
    gate: Linear,
}

impl MoeBlock {
    pub(crate) fn load(spec: &Moe, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let mut experts = |name: &str| store.expert_linear(&format!("{path}.switch_mlp.{name}"));
        let (gate_proj, up_proj, down_proj) =
            (experts("gate_proj")?, experts("up_proj")?, experts("down_proj")?);
        let router = RouterBlock::load(spec.router, spec.top_k, store, path)?;
        let shared = match spec.shared {
            Some(SharedExpert { name, width }) => Some(SharedExpertBlock {
                expert: GatedBlock::load(&spec.expert.with_width(width), store, &format!("{path}.{name}"))?,
                gate: store.linear(&format!("{path}.{name}_gate"))?,
            }),
            None => None,
        };
        let act = spec.expert.act;
        Ok(Self { ops: store.ops(), router, gate_proj, up_proj, down_proj, act, shared })
    }
}

impl MlpBlock for MoeBlock {
    fn forward(&self, x: &Array) -> mlx::Result<Array> {
        let (experts, weights) = self.router.forward(x)?;
        let experts = ChosenExperts::new(experts);
        let gate = self.gate_proj.forward(x, &experts)?;
        let up = self.up_proj.forward(x, &experts)?;
        let y = self.down_proj.forward(&self.ops.gated_act_pair(&gate, &up, self.act)?, &experts)?;
        let y = (y * weights.expand_dims(&[-1])?.astype(x.dtype()?)?).sum(&[-2])?;
        let Some(shared) = &self.shared else { return Ok(y) };
        Ok(y + shared.gate.forward(x)?.sigmoid()? * shared.expert.forward(x)?)
    }

    fn arrays(&self) -> Vec<&Array> {
        let experts = [&self.gate_proj, &self.up_proj, &self.down_proj];
        let shared = self
            .shared
            .iter()
            .flat_map(|shared| shared.expert.arrays().into_iter().chain(shared.gate.arrays()));
        let routed = experts.into_iter().flat_map(ExpertLinear::arrays);
        self.router.arrays().into_iter().chain(routed).chain(shared).collect()
    }
}
