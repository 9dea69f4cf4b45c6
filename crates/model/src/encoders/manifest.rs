//! The tensors of an encoder, all below `encoder`.

use super::blueprint::{ConnectorStep, EncoderBlueprint, EncoderLayer, Linears, PositionTable};
use crate::Manifest;
use crate::manifest::Scope;

/// Names of modules below `encoder`.
pub(super) const PATCHES: &str = "patch_embed";
pub(super) const CLASS_TOKEN: &str = "class_token";
pub(super) const POSITIONS: &str = "positions";
pub(super) const INPUT_NORM: &str = "input_norm";
pub(super) const OUTPUT_NORM: &str = "output_norm";
pub(super) const CONNECTOR: &str = "connector";
pub(super) const DEEPSTACK: &str = "deepstack";

impl EncoderBlueprint {
    /// Every tensor that this encoder is made of, unquantized.
    pub fn manifest(&self) -> Manifest {
        let mut manifest = Manifest::default();
        let mut top = Scope::root(&mut manifest, self.hidden);
        let mut root = top.at("encoder");
        root.linear(PATCHES, self.patches.elements(), self.hidden, self.patches.bias);
        if self.class_token {
            root.tensor(CLASS_TOKEN, &[self.hidden]);
        }
        if let Some(count) = self.positions.count() {
            root.at(POSITIONS).tensor("weight", &[count, self.hidden]);
        }
        for (name, norm) in [(INPUT_NORM, self.input_norm), (OUTPUT_NORM, self.output_norm)] {
            if let Some(norm) = norm {
                root.norm(name, norm, self.hidden);
            }
        }
        for (number, layer) in self.layers.iter().enumerate() {
            layer.name(&mut root.at(&format!("layers.{number}")));
        }
        name_connector(&mut root.at(CONNECTOR), &self.connector, self.hidden);
        for (number, deep) in self.deepstack.iter().enumerate() {
            name_connector(&mut root.at(&format!("{DEEPSTACK}.{number}")), &deep.connector, self.hidden);
        }
        manifest
    }
}

impl PositionTable {
    /// How many positions.
    pub(super) fn count(self) -> Option<usize> {
        match self {
            Self::Absent => None,
            Self::PerRow { count } => Some(count),
            Self::Square { side, .. } => Some(side * side),
        }
    }
}

impl EncoderLayer {
    fn name(&self, at: &mut Scope) {
        let hidden = at.hidden;
        for norm in ["norm1", "norm2"] {
            at.norm(norm, self.norm, hidden);
        }
        let [inputs, output] = self.attention.biases.of_inputs_and_output();
        let mut attention = at.at("attn");
        for (name, bias) in [("q_proj", inputs), ("k_proj", inputs), ("v_proj", inputs), ("o_proj", output)] {
            attention.linear(name, hidden, hidden, bias);
        }
        self.mlp.spec().name_tensors(&mut at.at("mlp"));
        if self.scales {
            at.tensor("scale1", &[hidden]);
            at.tensor("scale2", &[hidden]);
        }
    }
}

impl Linears {
    fn of_inputs_and_output(self) -> [bool; 2] {
        match self {
            Self::No => [false, false],
            Self::All => [true, true],
            Self::Output => [false, true],
        }
    }
}

fn name_connector(at: &mut Scope, steps: &[ConnectorStep], mut width: usize) {
    for step in steps {
        match *step {
            ConnectorStep::Merge { side, .. } => width *= side * side,
            ConnectorStep::Pool { .. } | ConnectorStep::Act(_) => {}
            ConnectorStep::GateHalf(_) => width /= 2,
            ConnectorStep::Norm { name, norm } => at.norm(name, norm, width),
            ConnectorStep::Linear { name, width: to, bias } => {
                at.linear(name, width, to, bias);
                width = to;
            }
        }
    }
}
