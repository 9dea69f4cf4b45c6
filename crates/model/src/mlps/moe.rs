//! A mixture of experts: a few of many gated MLPs, chosen for each row.

use mlx::Array;

use super::gated::GatedBlock;
use super::{Activation, GatedMlp, MlpBlock, MlpSpec, Router};
use crate::LoadError;
use crate::blocks::{ExpertLinear, Linear};
use crate::manifest::Scope;
use crate::ops::Ops;
use crate::validate::Broken;
use crate::weights::Store;

/// A mixture of gated experts.
#[derive(Debug, Clone, PartialEq)]
pub struct Moe {
    /// Number of routed experts.
    pub experts: usize,
    /// Routed experts per token.
    pub top_k: usize,
    /// Each routed expert.
    pub expert: GatedMlp,
    /// How a token's experts are chosen and weighed.
    pub router: Router,
    /// An expert that computes every token.
    pub shared: Option<SharedExpert>,
}

/// An expert that computes every token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedExpert {
    /// What it is called (`shared_expert`). Its output is multiplied by the sigmoid of one learned logit,
    /// `<name>_gate`.
    pub name: &'static str,
    /// Hidden width.
    pub width: usize,
}

impl MlpSpec for Moe {
    fn check(&self, broken: &mut Broken) {
        let (experts, top_k) = (self.experts, self.top_k);
        broken.check((1..=experts).contains(&top_k), || {
            format!("`num_experts_per_tok` ({top_k}) is from 1 to the number of experts ({experts})")
        });
        broken.check(experts <= 1 << 16, || format!("the number of experts ({experts}) is at most 65536"));
        broken.size(&[("moe_intermediate_size", self.expert.width)]);
        if let Some(shared) = self.shared {
            broken.size(&[("shared_expert_intermediate_size", shared.width)]);
        }
    }

    fn tensors(&self, at: &mut Scope) {
        let (experts, width, hidden) = (self.experts, self.expert.width, at.hidden);
        at.linear("gate", hidden, experts, false);
        let mut routed = at.at("switch_mlp");
        routed.tensor("gate_proj.weight", &[experts, width, hidden]);
        routed.tensor("up_proj.weight", &[experts, width, hidden]);
        routed.tensor("down_proj.weight", &[experts, hidden, width]);
        if let Some(shared) = self.shared {
            self.expert.with_width(shared.width).tensors(&mut at.at(shared.name));
            at.linear(&format!("{}_gate", shared.name), hidden, 1, false);
        }
    }

    fn load(&self, store: &mut Store, path: &str) -> Result<Box<dyn MlpBlock>, LoadError> {
        Ok(Box::new(MoeBlock::load(self, store, path)?))
    }

    fn row_elements(&self, hidden: usize) -> usize {
        let shared = self.shared.as_ref().map_or(0, |shared| 3 * shared.width + hidden);
        self.top_k * self.expert.row_elements(hidden) + 2 * self.experts + hidden + shared
    }
}

/// Routed experts.
struct MoeBlock {
    ops: &'static dyn Ops,
    gate: Linear,
    gate_proj: ExpertLinear,
    up_proj: ExpertLinear,
    down_proj: ExpertLinear,
    act: Activation,
    top_k: usize,
    router: Router,
    shared: Option<SharedExpertBlock>,
}

/// The expert that computes every row, and the projection to its gate.
struct SharedExpertBlock {
    expert: GatedBlock,
    gate: Linear,
}

impl MoeBlock {
    fn load(spec: &Moe, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let mut experts = |name: &str| store.expert_linear(&format!("{path}.switch_mlp.{name}"));
        let (gate_proj, up_proj, down_proj) =
            (experts("gate_proj")?, experts("up_proj")?, experts("down_proj")?);
        let gate = store.linear(&format!("{path}.gate"))?;
        let shared = match spec.shared {
            Some(SharedExpert { name, width }) => Some(SharedExpertBlock {
                expert: GatedBlock::load(&spec.expert.with_width(width), store, &format!("{path}.{name}"))?,
                gate: store.linear(&format!("{path}.{name}_gate"))?,
            }),
            None => None,
        };
        let (act, top_k, router) = (spec.expert.act, spec.top_k, spec.router);
        Ok(Self { ops: store.ops(), gate, gate_proj, up_proj, down_proj, act, top_k, router, shared })
    }
}

impl MlpBlock for MoeBlock {
    fn forward(&self, x: &Array) -> mlx::Result<Array> {
        let (experts, weights) = self.router.choose(&self.gate.forward(x)?, self.top_k)?;
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
        self.gate.arrays().into_iter().chain(routed).chain(shared).collect()
    }
}
