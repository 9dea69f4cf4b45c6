//! The forward pass of a mixture of experts.

use mlx::Array;

use super::{Moe, SharedExpert};
use crate::blocks::{ExpertLinear, Linear, MlpBlock};
use crate::mlps::gated::GatedBlock;
use crate::mlps::router::RouterBlock;
use crate::ops::Ops;
use crate::weights::Store;
use crate::{Activation, LoadError};

/// Routed experts.
pub(crate) struct MoeBlock {
    ops: &'static dyn Ops,
    router: RouterBlock,
    gate_up: ExpertGateUp,
    down_proj: ExpertLinear,
    act: Activation,
    shared: Option<SharedExpertBlock>,
}

/// The two projections into an expert.
enum ExpertGateUp {
    /// In one product, the gate first.
    Joined(ExpertLinear),
    /// Stored differently.
    Apart([ExpertLinear; 2]),
}

/// The expert that computes every row, and the projection to its gate.
struct SharedExpertBlock {
    expert: GatedBlock,
    gate: Linear,
}

impl MoeBlock {
    pub(crate) fn load(spec: &Moe, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let mut experts = |name: &str| store.expert_linear(&format!("{path}.switch_mlp.{name}"));
        let (gate, up, down_proj) = (experts("gate_proj")?, experts("up_proj")?, experts("down_proj")?);
        let gate_up = match ExpertLinear::join(&gate, &up)? {
            Some(joined) => ExpertGateUp::Joined(joined),
            None => ExpertGateUp::Apart([gate, up]),
        };
        let router = RouterBlock::load(spec.router, spec.top_k, store, path)?;
        let shared = match spec.shared {
            Some(SharedExpert { name, width }) => Some(SharedExpertBlock {
                expert: GatedBlock::load(&spec.expert.with_width(width), store, &format!("{path}.{name}"))?,
                gate: store.linear(&format!("{path}.{name}_gate"))?,
            }),
            None => None,
        };
        let act = spec.expert.act;
        Ok(Self { ops: store.ops(), router, gate_up, down_proj, act, shared })
    }
}

impl MlpBlock for MoeBlock {
    fn forward(&self, x: &Array) -> mlx::Result<Array> {
        let (experts, weights) = self.router.forward(x)?;
        let activated = match &self.gate_up {
            ExpertGateUp::Joined(joined) => self.ops.gated_act(&joined.forward(x, &experts)?, self.act)?,
            ExpertGateUp::Apart([gate, up]) => {
                self.ops.gated_act_pair(&gate.forward(x, &experts)?, &up.forward(x, &experts)?, self.act)?
            }
        };
        let y = self.ops.weighted_sum(&self.down_proj.forward(&activated, &experts)?, &weights)?;
        let Some(shared) = &self.shared else { return Ok(y) };
        Ok(y + shared.gate.forward(x)?.sigmoid()? * shared.expert.forward(x)?)
    }

    fn arrays(&self) -> Vec<&Array> {
        let gate_up = match &self.gate_up {
            ExpertGateUp::Joined(joined) => vec![joined],
            ExpertGateUp::Apart(parts) => parts.iter().collect(),
        };
        let shared = self
            .shared
            .iter()
            .flat_map(|shared| shared.expert.arrays().into_iter().chain(shared.gate.arrays()));
        let routed = gate_up.into_iter().chain([&self.down_proj]).flat_map(ExpertLinear::arrays);
        self.router.arrays().into_iter().chain(routed).chain(shared).collect()
    }
}
