//! A few of many gated MLPs, chosen for each row.

use mlx::{Array, Dtype};

use super::gated::GatedBlock;
use super::{Linear, SwitchLinear};
use crate::weights::Store;
use crate::{Activation, Kernels, LoadError, Moe, Routing};

/// Routed experts.
pub(crate) struct MoeBlock {
    router: Linear,
    gate: SwitchLinear,
    up: SwitchLinear,
    down: SwitchLinear,
    act: Activation,
    top_k: usize,
    experts: usize,
    routing: Routing,
    shared: Option<SharedExpertBlock>,
}

/// The expert that computes every row, and the projection to its gate.
struct SharedExpertBlock {
    expert: GatedBlock,
    gate: Linear,
}

impl MoeBlock {
    pub(crate) fn load(spec: &Moe, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let mut switch = |name: &str| store.switch_linear(&format!("{path}.switch_mlp.{name}"));
        let (gate, up, down) = (switch("gate_proj")?, switch("up_proj")?, switch("down_proj")?);
        let router = store.linear(&format!("{path}.gate"))?;
        let (act, top_k, experts, routing) = (spec.expert.act, spec.top_k, spec.experts, spec.routing);
        let shared = match spec.shared {
            Some(shared) => Some(SharedExpertBlock {
                expert: GatedBlock::load(
                    &spec.expert.with_width(shared.width),
                    store,
                    &format!("{path}.{}", shared.name),
                )?,
                gate: store.linear(&format!("{path}.{}_gate", shared.name))?,
            }),
            None => None,
        };
        Ok(Self { router, gate, up, down, act, top_k, experts, routing, shared })
    }

    /// `[T, hidden]` → `[T, hidden]`.
    pub(crate) fn forward(&self, x: &Array, kernels: Kernels) -> mlx::Result<Array> {
        let (experts, weights) = self.choose(x, kernels)?;
        let gate = self.gate.forward(x, &experts, kernels)?;
        let up = self.up.forward(x, &experts, kernels)?;
        let y = self.down.forward(&self.act.gate_pair(&gate, &up, kernels)?, &experts, kernels)?;
        let y = (y * weights.expand_dims(&[-1])?.astype(x.dtype()?)?).sum(&[-2])?;
        let Some(shared) = &self.shared else { return Ok(y) };
        Ok(y + shared.gate.forward(x, kernels)?.sigmoid()? * shared.expert.forward(x, kernels)?)
    }

    /// The chosen experts of each row and what each counts, both `[T, top_k]`.
    fn choose(&self, x: &Array, kernels: Kernels) -> mlx::Result<(Array, Array)> {
        let logits = self.router.forward(x, kernels)?.astype(Dtype::F32)?;
        let scores = logits.softmax(-1)?;
        let rows = x.shape().first().copied().unwrap_or(0);
        let (top_k, experts) = (self.top_k as i32, self.experts as i32);
        let kth = experts - top_k;
        let order = scores.argpartition(kth, -1)?;
        let chosen = order.slice(&[0, kth], &[rows, experts])?.astype(Dtype::U32)?;
        let weights = scores.take_along_axis(&chosen, -1)?;
        let weights = match self.routing {
            Routing::Softmax => weights,
            Routing::SoftmaxRenormalized => &weights / weights.sum(&[-1])?.expand_dims(&[-1])?,
        };
        Ok((chosen, weights))
    }

    pub(crate) fn arrays(&self) -> Vec<&Array> {
        let switches = [&self.gate, &self.up, &self.down].into_iter().flat_map(|switch| switch.arrays());
        let shared = self
            .shared
            .iter()
            .flat_map(|shared| shared.expert.arrays().into_iter().chain(shared.gate.arrays()));
        self.router.arrays().into_iter().chain(switches).chain(shared).collect()
    }
}
