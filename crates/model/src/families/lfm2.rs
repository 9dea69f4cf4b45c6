//! LFM2: gated short convolutions, and attention in some layers; alone and below a picture encoder.
//!
//! Source: mlx-lm `models/lfm2.py`, `models/lfm2-vl.py`.

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = dims(cfg)?;
    let mlp = GatedMlp { width: width(cfg, &dims)?, act: Activation::Silu, bias: false };
    blueprint(cfg, &dims, vec![mlp.into(); dims.layers], Vec::new())
}

pub(super) fn read_vl(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let text = text_config(cfg)?.ok_or_else(|| ConfigError::Missing { field: "text_config".to_owned() })?;
    let blueprint = read(&text)?;
    Ok(Blueprint { rewrites: [text_model(), blueprint.rewrites].concat(), ..blueprint })
}

pub(super) fn dims(cfg: &Config) -> Result<Dims, ConfigError> {
    let fields = DimFields { norm_eps: "norm_eps", ..DimFields::LLAMA };
    Ok(Dims { head: Head::Tied, ..Dims::read_as(cfg, &fields)? })
}

/// The MLP's width: two thirds of `block_ff_dim`, rounded up, where the config says so.
fn width(cfg: &Config, dims: &Dims) -> Result<usize, ConfigError> {
    cfg.only("block_dim", dims.hidden)?;
    let width: usize = cfg.req("block_ff_dim")?;
    let multiple = cfg.or("block_multiple_of", 256)?;
    let factor: f32 = cfg.or("block_ffn_dim_multiplier", 1.0)?;
    if !cfg.or("block_auto_adjust_ff_dim", false)? {
        return Ok(width);
    }
    Ok(((factor * (2 * width / 3) as f32) as usize).next_multiple_of(multiple))
}

pub(super) fn blueprint(
    cfg: &Config,
    dims: &Dims,
    mlps: Vec<Mlp>,
    experts: Vec<WeightRewrite>,
) -> Result<Blueprint, ConfigError> {
    let attention = Attention {
        qk_norm: Some(QkNorm::per_head(dims.norm.eps())),
        ..Attention::new(dims, rope(cfg, dims)?)
    };
    let conv = ShortConv {
        hidden: dims.hidden,
        conv_kernel_size: cfg.req("conv_L_cache")?,
        reach: ConvReach::Before,
        bias: cfg.or("conv_bias", false)?,
    };
    let attends = attends(cfg, dims.layers)?;
    let norms = NormPlacement::Pre { mixer: "operator_norm", mlp: "ffn_norm" };
    let layer = |(mlp, attends): (Mlp, bool)| {
        let (mixer_name, mixer): (_, Mixer) =
            if attends { ("self_attn", attention.clone().into()) } else { ("conv", conv.into()) };
        LayerSpec { mixer_name, ..LayerSpec::pre_norm(mixer, mlp, dims.norm).with_norms(norms) }
    };
    let rewrites = [
        vec![WeightRewrite::Transpose {
            tensors: "**.conv.conv.weight".into(),
            order: [0, 2, 1],
            unless_last: 1,
        }],
        modules([("model.embedding_norm", "model.norm")]),
        parts_of_layers([
            ("self_attn.out_proj", "self_attn.o_proj"),
            ("self_attn.q_layernorm", "self_attn.q_norm"),
            ("self_attn.k_layernorm", "self_attn.k_norm"),
            ("feed_forward.gate", "mlp.gate"),
            ("feed_forward.w1", "mlp.gate_proj"),
            ("feed_forward.w2", "mlp.down_proj"),
            ("feed_forward.w3", "mlp.up_proj"),
        ]),
        tensors_of_layers([
            ("feed_forward.expert_bias", "mlp.gate.e_score_correction_bias"),
            ("feed_forward.**", "mlp.**"),
        ]),
        numbered_matrices(),
        experts,
    ];
    let layers = mlps.into_iter().zip(attends).map(layer).collect();
    Ok(Blueprint { rewrites: rewrites.concat(), ..Blueprint::new(dims, layers) })
}

/// Which layers attend: as `layer_types` says, else those in `full_attn_idxs`.
fn attends(cfg: &Config, layers: usize) -> Result<Vec<bool>, ConfigError> {
    let indices: Option<Vec<usize>> = cfg.opt("full_attn_idxs")?;
    let flags: Vec<bool> = match (cfg.opt::<Vec<String>>("layer_types")?, indices) {
        (_, Some(indices)) => (0..layers).map(|layer| indices.contains(&layer)).collect(),
        (Some(kinds), None) => kinds.iter().map(|kind| kind == "full_attention").collect(),
        (None, None) => return Err(ConfigError::Missing { field: "layer_types".to_owned() }),
    };
    if flags.len() == layers {
        return Ok(flags);
    }
    Err(ConfigError::Inconsistent { rules: vec!["`layer_types` names every layer".to_owned()] })
}
