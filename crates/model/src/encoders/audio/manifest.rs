//! The tensors of an audio encoder, all below `encoder`.

use super::blueprint::{AudioBlueprint, AudioLayer, AudioPositions, Conformer, PlaneNorm, Stem};
use crate::blocks::LIMITS;
use crate::encoders::manifest::{CONNECTOR, POSITIONS, name_connector};
use crate::manifest::{Manifest, Scope, TensorRole};
use crate::norm::Norm;

/// Names of modules below `encoder`.
pub(super) const CONVOLUTIONS: [&str; 2] = ["stem.conv1", "stem.conv2"];
pub(super) const CONVOLUTION_NORMS: [&str; 2] = ["stem.norm1", "stem.norm2"];
pub(super) const STEM_LINEAR: &str = "stem.linear";

/// Names of modules below a conformer layer.
pub(super) const FEED_FORWARDS: [&str; 2] = ["feed_forward1", "feed_forward2"];
pub(super) const ATTENTION_NORMS: [&str; 2] = ["norm_before", "norm_after"];
pub(super) const CONVOLUTION_NORMS_OF_LAYER: [&str; 2] = ["conv.norm_before", "conv.norm_after"];

/// Width of a convolution's kernel, in frames and bands.
pub(in crate::encoders) const KERNEL: usize = 3;

impl AudioBlueprint {
    /// Every tensor that this encoder is made of, unquantized.
    pub fn manifest(&self) -> Manifest {
        let mut manifest = Manifest::default();
        let mut top = Scope::replicated_root(&mut manifest, self.hidden);
        let mut root = top.at("encoder");
        let [first, second] = CONVOLUTIONS;
        match self.stem {
            Stem::Frames(_) => {
                root.tensor(
                    &format!("{first}.weight"),
                    &[self.hidden, KERNEL, self.bands],
                    TensorRole::Replicated,
                );
                root.tensor(
                    &format!("{second}.weight"),
                    &[self.hidden, KERNEL, self.hidden],
                    TensorRole::Replicated,
                );
                CONVOLUTIONS.iter().for_each(|conv| {
                    root.tensor(&format!("{conv}.bias"), &[self.hidden], TensorRole::Replicated)
                });
            }
            Stem::Planes { channels, norm, .. } => {
                let [from, to] = channels;
                root.tensor(&format!("{first}.weight"), &[from, KERNEL, KERNEL, 1], TensorRole::Replicated);
                root.tensor(&format!("{second}.weight"), &[to, KERNEL, KERNEL, from], TensorRole::Replicated);
                for (name, width) in CONVOLUTION_NORMS.into_iter().zip(channels) {
                    match norm {
                        PlaneNorm::Channels(norm) => root.norm(name, norm, width),
                        PlaneNorm::Cumulative { .. } => {
                            root.at(name).tensor("weight", &[width], TensorRole::Replicated)
                        }
                    }
                }
                root.replicated(STEM_LINEAR, self.bands.div_ceil(2).div_ceil(2) * to, self.hidden, false);
            }
        }
        if let AudioPositions::Table { count } = self.positions {
            root.at(POSITIONS).tensor("weight", &[count, self.hidden], TensorRole::Replicated);
        }
        for (number, layer) in self.layers.iter().enumerate() {
            let mut at = root.at(&format!("layers.{number}"));
            match layer {
                AudioLayer::Transformer(layer) => layer.name(&mut at, self.clipped),
                AudioLayer::Conformer(layer) => layer.name(&mut at, self.clipped),
            }
        }
        name_connector(&mut root.at(CONNECTOR), &self.connector, self.hidden);
        manifest
    }
}

impl Conformer {
    fn name(&self, at: &mut Scope, clipped: bool) {
        let (hidden, norm) = (at.hidden, Norm::Rms { eps: self.norm_eps });
        let linear = |at: &mut Scope, name: &str, from: usize, to: usize| {
            at.replicated(name, from, to, false);
            LIMITS
                .iter()
                .filter(|_| clipped)
                .for_each(|limit| at.at(name).tensor(limit, &[], TensorRole::Replicated));
        };
        for name in FEED_FORWARDS {
            let mut part = at.at(name);
            ATTENTION_NORMS.iter().for_each(|name| part.norm(name, norm, hidden));
            linear(&mut part, "up_proj", hidden, self.width);
            linear(&mut part, "down_proj", self.width, hidden);
        }
        let mut attention = at.at("attn");
        ["q_proj", "k_proj", "v_proj", "o_proj"]
            .iter()
            .for_each(|name| linear(&mut attention, name, hidden, hidden));
        attention.replicated("relative_k_proj", hidden, hidden, false);
        attention.tensor(
            "per_dim_scale",
            &[hidden.checked_div(self.attention.heads).unwrap_or(0)],
            TensorRole::Replicated,
        );
        linear(at, "conv.in_proj", hidden, 2 * hidden);
        linear(at, "conv.out_proj", hidden, hidden);
        at.conv("conv.depthwise", hidden, self.kernel, false);
        let norms = ATTENTION_NORMS.iter().chain(&CONVOLUTION_NORMS_OF_LAYER).chain(&["norm_out"]);
        norms.for_each(|name| at.norm(name, norm, hidden));
    }
}
