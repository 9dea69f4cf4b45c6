//! The expert that computes every token.

use mlx::Array;

use super::Expert;
use crate::Activation;
use crate::blocks::{Linear, MlpBlock};
use crate::manifest::Scope;
use crate::mlps::gated::GatedBlock;
use crate::mlps::plain::PlainBlock;
use crate::ops::Ops;
use crate::weights::{LoadError, Store};

/// An expert that computes every token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SharedExpert {
    /// What it is called (`shared_expert`).
    pub name: &'static str,
    /// Hidden width.
    pub width: usize,
    /// How it meets what the routed experts computed.
    pub gate: SharedGate,
    /// Its activation, if not that of the routed experts.
    pub act: Option<Activation>,
}

impl SharedExpert {
    /// One whose output is added, with the activation of the routed experts.
    pub fn new(name: &'static str, width: usize) -> Self {
        Self { name, width, gate: SharedGate::None, act: None }
    }

    /// As an expert like the routed ones.
    fn like(self, routed: Expert) -> Expert {
        routed.with(self.width, self.act.unwrap_or(routed.act()))
    }
}

/// How the shared expert's output meets that of the routed ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedGate {
    /// Added.
    None,
    /// Added, times the sigmoid of one learned logit, `<name>_gate`.
    Sigmoid,
    /// Both are weighed by a softmax of two learned logits, `coefficient`, the routed ones' first (Klear).
    Mix,
}

impl SharedExpert {
    pub(super) fn name_tensors(self, expert: Expert, at: &mut Scope) {
        let hidden = at.hidden;
        self.like(expert).spec().name_tensors(&mut at.at(self.name));
        match self.gate {
            SharedGate::None => {}
            SharedGate::Sigmoid => at.replicated(&format!("{}_gate", self.name), hidden, 1, false),
            SharedGate::Mix => at.replicated("coefficient", hidden, 2, true),
        }
    }
}

/// The shared expert, and the projection to its gate.
pub(super) struct SharedExpertBlock {
    ops: Ops,
    expert: Box<dyn MlpBlock>,
    kind: SharedGate,
    gate: Option<Linear>,
}

impl SharedExpertBlock {
    pub(super) fn load(
        spec: SharedExpert,
        expert: Expert,
        store: &mut Store,
        path: &str,
    ) -> Result<Self, LoadError> {
        let at = format!("{path}.{}", spec.name);
        let expert: Box<dyn MlpBlock> = match spec.like(expert) {
            Expert::Gated(mlp) => Box::new(GatedBlock::load(&mlp, store, &at)?),
            Expert::Plain(mlp) => Box::new(PlainBlock::load(&mlp, store, &at)?),
        };
        let gate = match spec.gate {
            SharedGate::None => None,
            SharedGate::Sigmoid => Some(store.linear(&format!("{at}_gate"))?),
            SharedGate::Mix => Some(store.linear(&format!("{path}.coefficient"))?),
        };
        Ok(Self { ops: store.ops(), expert, kind: spec.gate, gate })
    }

    /// `routed`, what the routed experts made of `x`, and this expert's output together.
    pub(super) fn join(&self, x: &Array, routed: Array) -> mlx::Result<Array> {
        let shared = self.expert.forward(x)?;
        match (self.kind, &self.gate) {
            (SharedGate::Sigmoid, Some(gate)) => self.ops.add_term(&routed, &shared, Some(&gate.forward(x)?)),
            (SharedGate::Mix, Some(gate)) => {
                let weights = gate.forward(x)?.softmax(-1)?.split(&[1], -1)?;
                match weights.as_slice() {
                    [of_routed, of_shared] => Ok(routed * of_routed + shared * of_shared),
                    _ => Err(mlx::Error::new("two weights")),
                }
            }
            (SharedGate::None | SharedGate::Sigmoid | SharedGate::Mix, _) => {
                self.ops.add_term(&routed, &shared, None)
            }
        }
    }
}
