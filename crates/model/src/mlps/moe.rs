//! A mixture of experts: a few of many MLPs, chosen for each row.

mod forward;
mod shared;

use super::{GatedMlp, PlainMlp, Router};
use crate::Activation;
use crate::manifest::{Scope, TensorRole};
use crate::norm::Norm;
use crate::rules::Broken;
use crate::spec::{Footprint, Rules, Tensors};
pub(super) use forward::MoeBlock;
pub use shared::{SharedExpert, SharedGate};

/// A mixture of experts.
#[derive(Debug, Clone, PartialEq)]
pub struct Moe {
    /// Number of routed experts.
    pub experts: usize,
    /// Routed experts per token.
    pub top_k: usize,
    /// Each routed expert.
    pub expert: Expert,
    /// How a token's experts are chosen and weighed.
    pub router: Router,
    /// An expert that computes every token.
    pub shared: Option<SharedExpert>,
    /// Routed experts compute a narrower vector, `fc1_latent_proj` to `fc2_latent_proj` (Nemotron 3).
    pub latent: Option<Latent>,
    /// A bias on the weighted sum of what routed experts compute, `experts_bias` (Nomic Embed 2).
    pub sum_bias: bool,
}

impl Moe {
    /// Routed experts alone.
    pub fn new(experts: usize, top_k: usize, expert: impl Into<Expert>, router: Router) -> Self {
        Self { experts, top_k, expert: expert.into(), router, shared: None, latent: None, sum_bias: false }
    }

    /// These experts beside an expert that computes every token.
    pub fn with_shared(self, shared: SharedExpert) -> Self {
        Self { shared: Some(shared), ..self }
    }
}

/// The narrower vector of routed experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latent {
    /// Its width.
    pub width: usize,
    /// Around the experts.
    pub norms: LatentNorms,
}

/// Norms of the narrower vector.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LatentNorms {
    /// Of what experts read, `fc1_latent_norm` (Muse Spark).
    pub before: Option<Norm>,
    /// Of what each expert computes, `expert_norm` (Muse Spark).
    pub of_each: Option<Norm>,
    /// Of the sum of what they compute, `latent_norm` (Kimi K3).
    pub of_sum: Option<Norm>,
}

impl LatentNorms {
    /// With their names.
    fn named(self) -> [(&'static str, Option<Norm>); 3] {
        [("fc1_latent_norm", self.before), ("expert_norm", self.of_each), ("latent_norm", self.of_sum)]
    }
}

/// One of the routed experts.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub enum Expert {
    Gated(GatedMlp),
    Plain(PlainMlp),
}

impl Expert {
    /// Its hidden width.
    pub fn width(self) -> usize {
        match self {
            Self::Gated(GatedMlp { width, .. }) | Self::Plain(PlainMlp { width, .. }) => width,
        }
    }

    pub(crate) fn act(self) -> Activation {
        match self {
            Self::Gated(GatedMlp { act, .. }) | Self::Plain(PlainMlp { act, .. }) => act,
        }
    }

    pub(crate) fn bias(self) -> bool {
        match self {
            Self::Gated(GatedMlp { bias, .. }) | Self::Plain(PlainMlp { bias, .. }) => bias,
        }
    }

    /// This expert at another width, with another activation.
    fn with(self, width: usize, act: Activation) -> Self {
        match self {
            Self::Gated(mlp) => Self::Gated(GatedMlp { width, act, ..mlp }),
            Self::Plain(mlp) => Self::Plain(PlainMlp { width, act, ..mlp }),
        }
    }

    fn spec(&self) -> &dyn super::MlpSpec {
        match self {
            Self::Gated(mlp) => mlp,
            Self::Plain(mlp) => mlp,
        }
    }

    /// Projections into its hidden width.
    fn inputs(self) -> &'static [&'static str] {
        match self {
            Self::Gated(_) => &["gate_proj", "up_proj"],
            Self::Plain(_) => &["up_proj"],
        }
    }
}

impl From<GatedMlp> for Expert {
    fn from(mlp: GatedMlp) -> Self {
        Self::Gated(mlp)
    }
}

impl From<PlainMlp> for Expert {
    fn from(mlp: PlainMlp) -> Self {
        Self::Plain(mlp)
    }
}

impl Rules for Moe {
    fn check_rules(&self, broken: &mut Broken) {
        let (experts, top_k) = (self.experts, self.top_k);
        let choices = experts.saturating_add(self.router.identities);
        broken.check((1..=choices).contains(&top_k), || {
            format!("`num_experts_per_tok` ({top_k}) is from 1 to the number of experts ({experts})")
        });
        broken.check(experts <= 1 << 16, || format!("the number of experts ({experts}) is at most 65536"));
        broken.size(&[("moe_intermediate_size", self.expert.width())]);
        self.router.check_rules(experts, broken);
        if let Some(shared) = self.shared {
            broken.size(&[("shared_expert_intermediate_size", shared.width)]);
        }
    }
}

impl Tensors for Moe {
    fn name_tensors(&self, at: &mut Scope) {
        let (experts, width, hidden) =
            (self.experts, self.expert.width(), self.latent.map_or(at.hidden, |latent| latent.width));
        self.router.name_tensors(at, experts);
        if let Some(Latent { width: latent, norms }) = self.latent {
            for (name, norm) in norms.named() {
                if let Some(norm) = norm {
                    at.norm(name, norm, latent);
                }
            }
            let bias = self.expert.bias();
            at.replicated("fc1_latent_proj", at.hidden, latent, bias);
            at.replicated("fc2_latent_proj", latent, at.hidden, bias);
        }
        if self.sum_bias {
            at.tensor("experts_bias", &[at.hidden], TensorRole::Replicated);
        }
        let mut routed = at.at("switch_mlp");
        for input in self.expert.inputs() {
            routed.matrices(TensorRole::ExpertColumn, input, [experts, width, hidden], self.expert.bias());
        }
        routed.matrices(TensorRole::ExpertRow, "down_proj", [experts, hidden, width], self.expert.bias());
        if let Some(shared) = self.shared {
            shared.name_tensors(self.expert, at);
        }
    }
}

impl Footprint for Moe {
    fn row_elements(&self, hidden: usize) -> usize {
        let shared = self.shared.as_ref().map_or(0, |shared| 3 * shared.width + hidden);
        let routed = self.top_k * self.expert.spec().row_elements(hidden);
        routed + self.router.row_elements(self.experts) + hidden + shared
    }
}
