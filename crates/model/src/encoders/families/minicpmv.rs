//! MiniCPM-V 4.6: SigLIP over the picture and its slices, whose rows are merged between two layers and behind the last.
//!
//! Source: transformers `models/minicpmv4_6/modeling_minicpmv4_6.py`.

use super::names::*;
use super::siglip::{self, Defaults, drop};
use crate::Activation;
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::norm::Norm;

/// Of the mergers.
const NORM: Norm = Norm::Layer { eps: 1e-6, bias: true };

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let vision = vision(cfg)?;
    let features = text_width(cfg)?;
    for (section, field) in [(&vision, "window_kernel_size"), (cfg, "merge_kernel_size")] {
        section.only(field, serde_json::json!([2, 2]))?;
    }
    cfg.only("merger_times", 1)?;
    let tower = siglip::read(&vision, &Defaults::SIGLIP, features)?;
    let side = siglip::positions_on_a_side(&vision, tower.patches)?;
    let merges = cfg.choice_opt("downsample_mode", &[("16x", true), ("4x", false)])?.unwrap_or(true);
    let (hidden, width): (usize, usize) = (tower.hidden, vision.req("intermediate_size")?);
    let squares = SquareMerger {
        layer: cfg.or("insert_layer_id", 6)?,
        heads: vision.req("num_attention_heads")?,
        width: 4 * width,
        act: Activation::GeluTanh,
        norm: NORM,
    };
    let parts = [
        ("vit_merger.layer_norm1", "squares.norm1"),
        ("vit_merger.pre_norm", "squares.norm2"),
        ("vit_merger.self_attn.q_proj", "squares.attn.q_proj"),
        ("vit_merger.self_attn.k_proj", "squares.attn.k_proj"),
        ("vit_merger.self_attn.v_proj", "squares.attn.v_proj"),
        ("vit_merger.self_attn.out_proj", "squares.attn.o_proj"),
        ("vit_merger.linear_1", "squares.linear_1"),
        ("vit_merger.linear_2", "squares.linear_2"),
        ("merger.mlp.0.pre_norm", "connector.norm"),
        ("merger.mlp.0.linear_1", "connector.linear_1"),
        ("merger.mlp.0.linear_2", "connector.linear_2"),
    ];
    let beside = towers([("vit_merger", "encoder.vit_merger"), ("merger", "encoder.merger")]);
    let unused = if merges { Vec::new() } else { vec![drop("encoder.squares.**")] };
    let step = |name: &'static str, width| ConnectorStep::Linear { name, width, bias: true };
    Ok(EncoderBlueprint {
        positions: PositionTable::Square { side, sampling: Sampling::Nearest },
        squares: merges.then_some(squares),
        connector: vec![
            ConnectorStep::Merge { side: 2, elements: MergedElements::PatchByPatch },
            ConnectorStep::Norm { name: "norm", norm: NORM },
            step("linear_1", 4 * hidden),
            ConnectorStep::Act(Activation::Gelu),
            step("linear_2", features),
        ],
        rewrites: [tower.rewrites.clone(), beside, modules(parts), unused].concat(),
        ..tower
    })
}
