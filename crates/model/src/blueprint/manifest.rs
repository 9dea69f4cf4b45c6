//! The tensors of a whole network.

use crate::manifest::Scope;
use crate::{Blueprint, Finish, Head, LayerSpec, Manifest, Norm};

/// Learned positions, below the root.
pub(crate) const POSITIONS: &str = "embed_positions";
/// The norm of embeddings, below the root.
pub(crate) const EMBED_NORM: &str = "embed_norm";

impl Blueprint {
    /// Every tensor this network is made of, unquantized. [`Head::OwnIfPresent`] counts as tied.
    pub fn manifest(&self) -> Manifest {
        let mut manifest = Manifest::default();
        let mut top = Scope::root(&mut manifest, self.hidden);
        if self.head == Head::Own {
            top.linear("lm_head", self.hidden, self.vocab, self.head_bias);
        }
        let mut root = top.at(self.names.root);
        root.linear(self.names.embed, self.hidden, self.vocab, false);
        if let Some(positions) = self.learned_positions {
            root.at(POSITIONS).tensor("weight", &[positions, self.hidden]);
        }
        if let Some(inputs) = self.per_layer_inputs {
            let width = inputs.width * self.stored_layers().len();
            root.linear("embed_tokens_per_layer", width, inputs.vocab, false);
            root.linear("per_layer_model_projection", self.hidden, width, false);
            root.at("per_layer_projection_norm").tensor("weight", &[inputs.width]);
        }
        if let Some(norm) = self.embed_norm {
            root.norm(EMBED_NORM, norm, self.hidden);
        }
        root.norm(self.names.final_norm, self.final_norm, self.hidden);
        for layer in self.stored_layers() {
            layer.name(&mut root.at(&format!("layers.{}", layer.number)));
        }
        manifest
    }
}

impl LayerSpec {
    fn name(&self, at: &mut Scope) {
        self.mixer.spec().name_tensors(&mut at.at(self.mixer_name));
        if let Some(mlp) = &self.mlp {
            mlp.spec().name_tensors(&mut at.at(self.mlp_name));
        }
        if let Some((name, mlp)) = &self.shortcut {
            mlp.spec().name_tensors(&mut at.at(name));
        }
        for (name, norm) in self.norms() {
            at.norm(name, norm, at.hidden);
        }
        for finish in &self.finish {
            finish.name_tensors(at);
        }
    }
}

impl Finish {
    fn name_tensors(&self, at: &mut Scope) {
        let hidden = at.hidden;
        match *self {
            Self::AddEmbeddings => at.tensor("embed_skip.weight", &[1]),
            Self::Scale => at.tensor("layer_scalar", &[1]),
            Self::PerLayerInput { width, norm_eps, .. } => {
                at.linear("per_layer_input_gate", hidden, width, false);
                at.linear("per_layer_projection", width, hidden, false);
                at.norm("post_per_layer_input_norm", Norm::Rms { eps: norm_eps }, hidden);
            }
        }
    }
}
