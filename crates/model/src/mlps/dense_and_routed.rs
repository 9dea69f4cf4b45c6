//! A dense MLP and routed experts beside each other, with norms of their own (Gemma 4).

use mlx::Array;

use super::gated::GatedBlock;
use super::moe::MoeBlock;
use super::{GatedMlp, Moe};
use crate::blocks::{MlpBlock, NormBlock};
use crate::manifest::Scope;
use crate::norm::Norm;
use crate::ops::Ops;
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};
use crate::weights::{LoadError, Store};

/// `norm(dense(norm(x))) + norm(experts(norm(x)))` of the stream `x` itself, with a further norm before the router.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct DenseAndRouted {
    pub dense: GatedMlp,
    pub routed: Moe,
    pub norm: Norm,
}

/// Before and after the dense MLP, before and after the experts, before the router.
const NORMS: [&str; 5] =
    ["dense_norm", "dense_norm_after", "routed_norm", "routed_norm_after", "router_norm"];

impl Rules for DenseAndRouted {
    fn check_rules(&self, broken: &mut Broken) {
        self.dense.check_rules(broken);
        self.routed.check_rules(broken);
    }
}

impl Tensors for DenseAndRouted {
    fn name_tensors(&self, at: &mut Scope) {
        let hidden = at.hidden;
        NORMS.into_iter().for_each(|name| at.norm(name, self.norm, hidden));
        self.dense.name_tensors(&mut at.at("dense"));
        self.routed.name_tensors(at);
    }
}

impl Footprint for DenseAndRouted {
    fn row_elements(&self, hidden: usize) -> usize {
        self.dense.row_elements(hidden) + self.routed.row_elements(hidden) + 5 * hidden
    }
}

/// Both, with their weights.
pub(super) struct DenseAndRoutedBlock {
    ops: Ops,
    dense: GatedBlock,
    routed: MoeBlock,
    norms: [NormBlock; 5],
}

impl DenseAndRoutedBlock {
    pub(super) fn load(spec: &DenseAndRouted, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let hidden = store.hidden();
        let norms = NORMS.map(|name| store.norm(&format!("{path}.{name}"), spec.norm, hidden));
        let [before, after, routed, routed_after, router] = norms;
        Ok(Self {
            ops: store.ops(),
            norms: [before?, after?, routed?, routed_after?, router?],
            dense: GatedBlock::load(&spec.dense, store, &format!("{path}.dense"))?,
            routed: MoeBlock::load(&spec.routed, store, path)?,
        })
    }
}

impl MlpBlock for DenseAndRoutedBlock {
    fn forward(&self, x: &Array) -> mlx::Result<Array> {
        let [before, after, routed, routed_after, router] = &self.norms;
        let dense = after.forward(&self.dense.forward(&before.forward(x)?)?)?;
        let routed = self.routed.routed_by(&router.forward(x)?, &routed.forward(x)?)?;
        self.ops.add_term(&dense, &routed_after.forward(&routed)?, None)
    }
}
