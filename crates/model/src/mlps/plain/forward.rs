//! The forward pass of an MLP without a gate.

use mlx::Array;

use super::PlainMlp;
use crate::Activation;
use crate::blocks::{Linear, MlpBlock};
use crate::ops::Ops;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// The learned numbers of xIELU.
pub(super) const XIELU: [&str; 4] = ["alpha_p", "alpha_n", "beta", "eps"];

/// An MLP without a gate.
pub(crate) struct PlainBlock {
    ops: Ops,
    up: Linear,
    down: Linear,
    act: Activation,
    /// `alpha_p`, `alpha_n`, `beta` and `eps` of xIELU.
    learned: Vec<Param>,
}

impl PlainBlock {
    pub(crate) fn load(spec: &PlainMlp, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let names: &[&str] = if spec.act == Activation::Xielu { &XIELU } else { &[] };
        let learned = names.iter().map(|name| store.float(&format!("{path}.act_fn.{name}")));
        Ok(Self {
            learned: learned.collect::<Result<_, _>>()?,
            ops: store.ops(),
            up: store.linear(&format!("{path}.up_proj"))?,
            down: store.linear(&format!("{path}.down_proj"))?,
            act: spec.act,
        })
    }
}

impl MlpBlock for PlainBlock {
    fn forward(&self, x: &Array) -> mlx::Result<Array> {
        let up = self.up.forward(x)?;
        let activated = match self.learned.as_slice() {
            [alpha_p, alpha_n, beta, eps] => self.ops.xielu(&up, [alpha_p, alpha_n, beta, eps])?,
            _ => self.ops.act(&up, self.act)?,
        };
        self.down.forward(&activated)
    }
}
