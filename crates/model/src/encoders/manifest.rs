//! The tensors of an encoder, all below `encoder`.

use super::blueprint::{
    ClassToken, ConnectorStep, EncoderBlueprint, EncoderLayer, LayerScale, Linears, Perceiver, PositionTable,
    Separators, SquareMerger, Tiles,
};
use crate::blocks::LIMITS;
use crate::manifest::{Manifest, Scope, TensorRole};
use crate::mlps::{GatedMlp, Mlp};
use crate::norm::Norm;

/// Names of modules below a layer, or below its attention.
pub(super) const AFTER: [&str; 2] = ["norm1_after", "norm2_after"];
pub(super) const QK_NORMS: [&str; 2] = ["q_norm", "k_norm"];
/// Below a connector.
pub(super) const STANDARDIZE: [&str; 2] = ["shift", "scale"];
pub(super) const GATED: [&str; 2] = ["gate_proj", "up_proj"];
pub(super) const FILLING: [&str; 2] = ["embedding", "hard_embedding_norm"];
/// Linear layers of a layer, which may have ranges.
const CLIPPED: [&str; 7] = [
    "attn.q_proj",
    "attn.k_proj",
    "attn.v_proj",
    "attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
];

/// Names of modules below `encoder`.
pub(super) const PATCHES: &str = "patch_embed";
pub(super) const CLASS_TOKEN: &str = "class_token";
pub(super) const POSITIONS: &str = "positions";
pub(super) const PATCH_NORM: &str = "patch_norm";
pub(super) const INPUT_NORM: &str = "input_norm";
pub(super) const OUTPUT_NORM: &str = "output_norm";
pub(super) const CONNECTOR: &str = "connector";
pub(super) const DEEPSTACK: &str = "deepstack";
pub(super) const NEWLINE: &str = "newline";
pub(super) const SEPARATOR: &str = "separator";
pub(super) const PROJECTION: &str = "projection";
pub(super) const PLACEHOLDER: &str = "placeholder";
pub(super) const SQUARES: &str = "squares";
pub(super) const TILES: &str = "tiles";
/// Embeddings of tiles, below them.
pub(super) const TILE_TABLES: [&str; 3] = ["before", "after", "positions"];

/// Below an attention pool, and below the attention of squares.
pub(super) const POOL: &str = "pool";
/// Below a connector, and the norms of its layers.
pub(super) const PERCEIVER: &str = "perceiver";
pub(super) const PERCEIVER_NORMS: [&str; 3] = ["latents_norm", "context_norm", "norm"];
pub(super) const ATTENTION: [&str; 4] = ["q_proj", "k_proj", "v_proj", "o_proj"];

impl EncoderBlueprint {
    /// Every tensor that this encoder is made of, unquantized.
    pub fn manifest(&self) -> Manifest {
        let mut manifest = Manifest::default();
        let mut top = Scope::replicated_root(&mut manifest, self.hidden);
        let mut root = top.at("encoder");
        match &self.convolutions {
            Some(tower) => tower.name(&mut root, self.hidden),
            None => root.replicated(PATCHES, self.patches.elements(), self.hidden, self.patches.bias),
        }
        if self.class_token != ClassToken::Absent {
            root.tensor(CLASS_TOKEN, &[self.hidden], TensorRole::Replicated);
        }
        if let Some(count) = self.positions.count() {
            root.at(POSITIONS).tensor("weight", &[count, self.hidden], TensorRole::Replicated);
        }
        let norms = [(PATCH_NORM, self.patch_norm), (INPUT_NORM, self.input_norm)];
        for (name, norm) in norms.into_iter().chain([(OUTPUT_NORM, self.output_norm)]) {
            if let Some(norm) = norm {
                root.norm(name, norm, self.hidden);
            }
        }
        for (number, layer) in self.layers.iter().enumerate() {
            layer.name(&mut root.at(&format!("layers.{number}")), self.clipped);
        }
        name_connector(&mut root.at(CONNECTOR), &self.connector, self.hidden * self.joined.len().max(1));
        if let Some(tiles) = &self.tiles {
            let rows = self.positions.count().unwrap_or(0);
            tiles.name(&mut root.at(TILES), rows);
        }
        if let Some(squares) = self.squares {
            squares.name(&mut root.at(SQUARES));
        }
        if self.placeholder {
            root.tensor(PLACEHOLDER, &[1, self.features], TensorRole::Replicated);
        }
        let separators: &[&str] = match self.separators {
            Separators::None => &[],
            Separators::Newline => &[NEWLINE],
            Separators::CanvasFirst => &[NEWLINE, SEPARATOR],
        };
        separators.iter().for_each(|name| root.tensor(name, &[self.connected()], TensorRole::Replicated));
        name_connector(&mut root.at(PROJECTION), &self.projection, self.connected());
        for (number, deep) in self.deepstack.iter().enumerate() {
            name_connector(&mut root.at(&format!("{DEEPSTACK}.{number}")), &deep.connector, self.hidden);
        }
        manifest
    }
}

impl Tiles {
    fn name(&self, at: &mut Scope, rows: usize) {
        let hidden = at.hidden;
        for (name, rows) in TILE_TABLES.into_iter().zip([1, 1, rows]) {
            let mut table = at.at(name);
            table.tensor("weight", &[self.shapes + 1, self.most * rows * hidden], TensorRole::Replicated);
            table.tensor("gate", &[1], TensorRole::Replicated);
        }
        at.norm("norm", self.norm, hidden);
    }
}

impl SquareMerger {
    fn name(&self, at: &mut Scope) {
        let hidden = at.hidden;
        at.norm("norm1", self.norm, hidden);
        at.norm("norm2", self.norm, 4 * hidden);
        ATTENTION.iter().for_each(|name| at.at("attn").replicated(name, hidden, hidden, true));
        at.replicated("linear_1", 4 * hidden, self.width, true);
        at.replicated("linear_2", self.width, hidden, true);
    }
}

impl Perceiver {
    fn name(&self, at: &mut Scope, width: usize) {
        at.tensor("latents", &[self.latents, width], TensorRole::Replicated);
        for number in 0..self.layers {
            let mut layer = at.at(&format!("layers.{number}"));
            PERCEIVER_NORMS.iter().for_each(|name| layer.norm(name, self.norm, width));
            let (queries, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
            let shapes = [(width, queries), (width, keys), (width, keys), (queries, width)];
            for (name, (from, to)) in ATTENTION.into_iter().zip(shapes) {
                layer.at("attn").replicated(name, from, to, false);
            }
            let mlp = GatedMlp { width: self.width, act: self.act, bias: false };
            let hidden = std::mem::replace(&mut layer.hidden, width);
            Mlp::from(mlp).spec().name_tensors(&mut layer.at("mlp"));
            layer.hidden = hidden;
        }
        at.norm("norm", self.norm, width);
    }
}

impl PositionTable {
    /// How many positions.
    pub(super) fn count(self) -> Option<usize> {
        match self {
            Self::Absent => None,
            Self::PerRow { count } => Some(count),
            Self::Square { side, .. } => Some(side * side),
            Self::Axes { count } => Some(2 * count),
        }
    }
}

impl EncoderLayer {
    pub(super) fn name(&self, at: &mut Scope, clipped: bool) {
        let hidden = at.hidden;
        for norm in ["norm1", "norm2"] {
            at.norm(norm, self.norm, hidden);
        }
        for (name, norm) in AFTER.into_iter().filter_map(|name| Some((name, self.after?))) {
            at.norm(name, norm, hidden);
        }
        let [inputs, output] = self.attention.biases.of_inputs_and_output();
        let mut attention = at.at("attn");
        for (name, bias) in [("q_proj", inputs), ("k_proj", inputs), ("v_proj", inputs), ("o_proj", output)] {
            attention.replicated(name, hidden, hidden, bias);
        }
        let head_dim = hidden.checked_div(self.attention.heads).unwrap_or(0);
        for (name, eps) in QK_NORMS.into_iter().filter_map(|name| Some((name, self.attention.qk_norm?))) {
            attention.norm(name, Norm::Rms { eps }, head_dim);
        }
        self.mlp.spec().name_tensors(&mut at.at("mlp"));
        for name in CLIPPED.iter().filter(|_| clipped) {
            LIMITS.iter().for_each(|limit| at.at(name).tensor(limit, &[], TensorRole::Replicated));
        }
        let factors = match self.scales {
            LayerScale::None => None,
            LayerScale::Vectors => Some(hidden),
            LayerScale::Gates => Some(1),
        };
        for name in factors.iter().flat_map(|_| ["scale1", "scale2"]) {
            at.tensor(name, &[factors.unwrap_or(1)], TensorRole::Replicated);
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

pub(super) fn name_connector(at: &mut Scope, steps: &[ConnectorStep], mut width: usize) {
    for step in steps {
        match *step {
            ConnectorStep::Merge { side, .. } => width *= side * side,
            ConnectorStep::JoinRows(rows) => width *= rows,
            ConnectorStep::Pool { .. }
            | ConnectorStep::MeanOfRows(_)
            | ConnectorStep::FirstOfRows(_)
            | ConnectorStep::Act(_)
            | ConnectorStep::Scale(_) => {}
            ConnectorStep::Standardize => {
                STANDARDIZE.iter().for_each(|name| at.tensor(name, &[width], TensorRole::Replicated));
            }
            ConnectorStep::Gated { width: to, bias, .. } => {
                GATED.iter().for_each(|name| at.replicated(name, width, to, bias));
                width = to;
            }
            ConnectorStep::AttentionPool { heads, head_dim, width: to } => {
                let mut pool = at.at(POOL);
                let [inputs @ .., output] = ATTENTION;
                inputs.iter().for_each(|name| pool.replicated(name, width, heads * head_dim, true));
                pool.replicated(output, heads * head_dim, to, true);
                width = to;
            }
            ConnectorStep::FillUp(filling) => {
                let [embedding, norm] = FILLING;
                at.replicated(embedding, width, filling.vocabulary, false);
                at.norm(norm, filling.norm, width);
            }
            ConnectorStep::Perceiver(perceiver) => perceiver.name(&mut at.at(PERCEIVER), width),
            ConnectorStep::GateHalf(_) => width /= 2,
            ConnectorStep::Norm { name, norm } => at.norm(name, norm, width),
            ConnectorStep::Linear { name, width: to, bias } => {
                at.replicated(name, width, to, bias);
                width = to;
            }
        }
    }
}
