//! The tensors of a whole network.

use crate::blueprint::{
    AlternatingUpdates, Blueprint, Finish, Head, HeadStates, HyperConnections, LayerSpec, MaskedHead,
    Residual, StreamKind,
};
use crate::manifest::{Manifest, Scope, TensorRole};
use crate::norm::Norm;

/// The head of a masked language model.
pub(crate) const MASKED_HEAD: &str = "masked_head";
/// Embeddings of token types, below the root.
pub(crate) const TOKEN_TYPES: &str = "embed_token_types";
/// Learned positions, below the root.
pub(crate) const POSITIONS: &str = "embed_positions";
/// The norm of embeddings, below the root.
pub(crate) const EMBED_NORM: &str = "embed_norm";
/// The gates of mixer and MLP on the stream, below a layer.
pub(crate) const RESIDUAL_GATES: [&str; 2] = ["add_attn", "add_ffn"];
/// How the copies of the stream meet mixer and MLP, below a layer.
pub(crate) const HYPER_PARTS: [&str; 2] = ["attn_hc", "ffn_hc"];
/// How mixer and MLP read the stream's history, below a layer.
pub(crate) const HISTORY_PARTS: [&str; 2] = ["self_attention_res", "mlp_res"];
/// What makes the stream of a draft head, below the root.
pub(crate) const FUSE: &str = "fuse";
/// How the head reads it.
pub(crate) const OUTPUT_HISTORY: &str = "output_attn_res";

impl Blueprint {
    /// Every tensor this network is made of, unquantized. [`Head::OwnIfPresent`] counts as tied.
    pub fn manifest(&self) -> Manifest {
        let mut manifest = Manifest::default();
        let mut top = Scope::root(&mut manifest, self.hidden);
        let (first, last) = (self.stage.reads_tokens(), self.stage.gives_logits());
        if self.head == Head::Own && last {
            top.column("lm_head", self.hidden, self.vocab.saturating_sub(self.unpredicted), self.head_bias);
        }
        self.name_masked_head(&mut top);
        let mut root = top.at(self.names.root);
        if self.has_embeddings() {
            root.replicated(self.names.embed, self.hidden, self.vocab, false);
        }
        if first {
            self.name_added_embeddings(&mut root);
        }
        self.name_per_layer_inputs(&mut root);
        for vocabulary in self.media_vocabularies.iter().filter(|_| first) {
            let mut at = root.at(&vocabulary.path);
            at.replicated("embedding", vocabulary.width, vocabulary.count, false);
            at.tensor("norm.weight", &[vocabulary.width], TensorRole::Replicated);
            at.replicated("projection", vocabulary.width, self.hidden, false);
        }
        match self.stream {
            StreamKind::Alternating(updates) => {
                for (name, copy) in ["altup_projections", "altup_unembed_projections"]
                    .into_iter()
                    .flat_map(|name| (1..updates.copies).map(move |copy| (name, copy - 1)))
                {
                    root.replicated(&format!("{name}.{copy}"), self.hidden, self.hidden, false);
                }
            }
            StreamKind::History { .. } => name_history(&mut root, OUTPUT_HISTORY),
            StreamKind::Plain | StreamKind::F32 | StreamKind::Hyper(_) => {}
        }
        if let Some(input) = self.stage.draft_head() {
            input.states.name_tensors(&mut root.at(FUSE), self.fuse_norm());
        }
        if let Some(norm) = self.embed_norm.filter(|_| first) {
            root.norm(EMBED_NORM, norm, self.hidden);
        }
        if last {
            root.norm(self.names.final_norm, self.final_norm, self.hidden);
        }
        for layer in self.stored_layers() {
            let mut at = root.at(&format!("layers.{}", layer.number));
            layer.name(&mut at);
            match self.stream {
                StreamKind::Plain | StreamKind::F32 => {}
                StreamKind::Alternating(updates) => updates.name_tensors(&mut at.at("altup")),
                StreamKind::Hyper(hyper) => {
                    HYPER_PARTS.iter().for_each(|part| hyper.name_tensors(&mut at.at(part)));
                }
                StreamKind::History { .. } => {
                    HISTORY_PARTS.iter().for_each(|part| name_history(&mut at, part));
                }
            }
        }
        for module in &self.rotated {
            if let Some(inputs) = manifest.inputs_of(&module.path) {
                manifest.insert(format!("{}.signs", module.path), &[inputs], TensorRole::Replicated);
            }
        }
        manifest
    }

    fn name_masked_head(&self, top: &mut Scope) {
        if let Some(MaskedHead { norm, .. }) = self.masked_head.filter(|_| self.stage.gives_logits()) {
            let mut at = top.at(MASKED_HEAD);
            at.replicated("dense", self.hidden, self.hidden, true);
            at.norm("norm", norm, self.hidden);
            at.tensor("bias", &[self.vocab], TensorRole::Replicated);
        }
    }

    fn name_per_layer_inputs(&self, root: &mut Scope) {
        if let Some(inputs) = self.per_layer_inputs {
            let width = inputs.width * self.stored_layers().len();
            if let Some(rows) = inputs.vocab {
                root.replicated("embed_tokens_per_layer", width, rows, false);
            }
            root.replicated("per_layer_model_projection", self.hidden, width, false);
            root.at("per_layer_projection_norm").tensor("weight", &[inputs.width], TensorRole::Replicated);
        }
    }

    /// Tables whose rows are added to embeddings.
    fn name_added_embeddings(&self, root: &mut Scope) {
        let tables = [
            (POSITIONS, self.learned_positions.map(|positions| positions.rows)),
            (TOKEN_TYPES, self.token_types),
        ];
        for (name, rows) in tables {
            if let Some(rows) = rows {
                root.at(name).tensor("weight", &[rows, self.hidden], TensorRole::Replicated);
            }
        }
    }
}

impl HeadStates {
    fn name_tensors(self, at: &mut Scope, norm: Norm) {
        let hidden = at.hidden;
        match self {
            Self::FinalNorm => {
                at.norm("embedding_norm", norm, hidden);
                at.norm("state_norm", norm, hidden);
                at.replicated("projection", 2 * hidden, hidden, false);
            }
            Self::Streams(streams) => at.replicated("projection", streams * hidden, hidden, false),
            Self::Context(streams) => {
                at.replicated("projection", streams * hidden, hidden, false);
                at.norm("state_norm", norm, hidden);
            }
        }
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
        if let Some(rank) = self.laurel {
            let (hidden, mut laurel) = (at.hidden, at.at("laurel"));
            laurel.replicated("linear_left", hidden, rank, false);
            laurel.replicated("linear_right", rank, hidden, false);
            laurel.norm("post_laurel_norm", self.norm, hidden);
        }
        for part in RESIDUAL_GATES {
            match self.residual {
                Residual::Scaled(_) => {}
                Residual::TanhGate => at.tensor(&format!("{part}_gate"), &[1], TensorRole::Replicated),
                Residual::Gated => {
                    at.tensor(&format!("{part}_alpha"), &[at.hidden], TensorRole::Replicated);
                    at.tensor(&format!("{part}_beta"), &[at.hidden], TensorRole::Replicated);
                }
            }
        }
        for finish in &self.finish {
            finish.name_tensors(at);
        }
    }
}

/// What one reader of the stream's history has.
fn name_history(at: &mut Scope, name: &str) {
    let hidden = at.hidden;
    at.replicated(&format!("{name}_proj"), hidden, 1, false);
    at.at(&format!("{name}_norm")).tensor("weight", &[hidden], TensorRole::Replicated);
}

impl AlternatingUpdates {
    fn name_tensors(self, at: &mut Scope) {
        let hidden = at.hidden;
        at.tensor("correct_output_scale", &[hidden], TensorRole::Replicated);
        at.replicated("correction_coefs", self.copies, self.copies, false);
        at.replicated("prediction_coefs", self.copies, self.copies * self.copies, false);
        at.replicated("modality_router", hidden, self.copies, false);
        at.norm("router_norm", Norm::Rms { eps: self.norm_eps }, hidden);
    }
}

impl HyperConnections {
    fn name_tensors(self, at: &mut Scope) {
        let (hidden, mixes) = (at.hidden, self.copies * (self.copies + 2));
        at.tensor("fn", &[mixes, self.copies * hidden], TensorRole::Replicated);
        at.tensor("base", &[mixes], TensorRole::Replicated);
        at.tensor("scale", &[3], TensorRole::Replicated);
    }
}

impl Finish {
    fn name_tensors(&self, at: &mut Scope) {
        let hidden = at.hidden;
        match *self {
            Self::AddEmbeddings => at.tensor("embed_skip.weight", &[1], TensorRole::Replicated),
            Self::Scale => at.tensor("layer_scalar", &[1], TensorRole::Replicated),
            Self::PerLayerInput { width, norm_eps, .. } => {
                at.replicated("per_layer_input_gate", hidden, width, false);
                at.replicated("per_layer_projection", width, hidden, false);
                at.norm("post_per_layer_input_norm", Norm::Rms { eps: norm_eps }, hidden);
            }
        }
    }
}
