//! A mixture of experts: a few of many gated MLPs, chosen for each row.

mod forward;

use super::{GatedMlp, Router};
use crate::manifest::Scope;
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};
pub(super) use forward::MoeBlock;

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

impl Rules for Moe {
    fn check_rules(&self, broken: &mut Broken) {
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
}

impl Tensors for Moe {
    fn name_tensors(&self, at: &mut Scope) {
        let (experts, width, hidden) = (self.experts, self.expert.width, at.hidden);
        self.router.name_tensors(at, experts);
        let mut routed = at.at("switch_mlp");
        routed.tensor("gate_proj.weight", &[experts, width, hidden]);
        routed.tensor("up_proj.weight", &[experts, width, hidden]);
        routed.tensor("down_proj.weight", &[experts, hidden, width]);
        if let Some(shared) = self.shared {
            self.expert.with_width(shared.width).name_tensors(&mut at.at(shared.name));
            at.linear(&format!("{}_gate", shared.name), hidden, 1, false);
        }
    }
}

impl Footprint for Moe {
    fn row_elements(&self, hidden: usize) -> usize {
        let shared = self.shared.as_ref().map_or(0, |shared| 3 * shared.width + hidden);
        let routed = self.top_k * self.expert.row_elements(hidden);
        routed + self.router.row_elements(self.experts) + hidden + shared
    }
}
