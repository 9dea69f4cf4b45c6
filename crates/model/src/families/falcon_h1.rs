//! Falcon-H1: attention and Mamba-2 beside each other in every layer; multipliers are part of the converted weights.
//!
//! Source: mlx-lm `models/falcon_h1.py`.

use super::names::*;
use super::parts::*;
use crate::*;

const EMBEDDING: f32 = 5.656_854;
const LM_HEAD: f32 = 0.039_062_5;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("mamba_norm_before_gate", false)?;
    let dims = Dims { norm: Norm::Rms { eps: cfg.or("rms_norm_eps", 1e-5)? }, ..Dims::read(cfg)? };
    let plain = Rope::new(dims.head_dim, cfg.or("rope_theta", 1e11)?);
    let attention = Attention::new(&dims, Position::Rope(plain)).with_bias(cfg.or("attention_bias", false)?);
    let mamba = mamba(cfg, &dims)?;
    let mlp = GatedMlp {
        width: cfg.req("intermediate_size")?,
        act: Activation::Silu,
        bias: cfg.or("mlp_bias", false)?,
    };
    let scales = scales(cfg, &mamba)?;
    let mixer = Parallel(vec![("mamba", mamba.into()), ("self_attn", attention.into())]);
    let norms = NormPlacement::Pre { mixer: "input_layernorm", mlp: "pre_ff_layernorm" };
    let layer =
        LayerSpec { mixer_name: "mixer", ..LayerSpec::pre_norm(mixer, mlp, dims.norm).with_norms(norms) };
    let rewrites = [
        scales,
        vec![conv_to_mlx()],
        modules([("model.final_layernorm", "model.norm")]),
        tensors_of_layers([
            ("mamba.**", "mixer.mamba.**"),
            ("self_attn.**", "mixer.self_attn.**"),
            ("feed_forward.**", "mlp.**"),
        ]),
    ];
    // A head of its own has its multiplier in its weights.
    let logit_scale = match dims.head {
        Head::Tied => cfg.or("lm_head_multiplier", LM_HEAD)? / cfg.or("embedding_multiplier", EMBEDDING)?,
        Head::Own | Head::OwnIfPresent | Head::Target | Head::Absent => 1.0,
    };
    Ok(Blueprint { logit_scale, rewrites: rewrites.concat(), ..Blueprint::uniform(&dims, layer) })
}

fn mamba(cfg: &Config, dims: &Dims) -> Result<Mamba2, ConfigError> {
    let normed = cfg.or("mamba_rms_norm", false)?;
    let bias = cfg.or("mamba_proj_bias", false)?;
    cfg.only("projectors_bias", bias)?;
    let heads: usize = cfg.req("mamba_n_heads")?;
    cfg.only("mamba_d_ssm", heads * cfg.req::<usize>("mamba_d_head")?)?;
    Ok(Mamba2 {
        heads,
        head_dim: cfg.req("mamba_d_head")?,
        groups: cfg.req("mamba_n_groups")?,
        state_dim: cfg.req("mamba_d_state")?,
        conv_kernel_size: cfg.req("mamba_d_conv")?,
        step_limits: [0.0, f32::INFINITY],
        bias,
        conv_bias: cfg.or("mamba_conv_bias", true)?,
        norm: normed.then_some(dims.norm),
        norm_groups: 1,
    })
}

/// Published weights lack their multipliers. As mlx-lm, which leaves keys without theirs.
fn scales(cfg: &Config, mamba: &Mamba2) -> Result<Vec<WeightRewrite>, ConfigError> {
    let factor = |field: &str, absent| Ok::<_, ConfigError>(vec![cfg.or::<f32>(field, absent)?]);
    let input: f32 = cfg.or("ssm_in_multiplier", 1.25)?;
    let thinner = 0.125f32.sqrt();
    let parts: [f32; 5] = cfg.or("ssm_multipliers", [thinner, 0.25, thinner, 0.5, thinner])?;
    let [gate, down]: [f32; 2] = cfg.or("mlp_multipliers", [0.883_883_5, 0.585_937_5])?;
    let (inner, keys) = (mamba.inner(), mamba.groups * mamba.state_dim);
    let sizes = [inner, inner, keys, keys, mamba.heads];
    let rows = parts.into_iter().zip(sizes).flat_map(|(part, size)| std::iter::repeat_n(input * part, size));
    let attention = factor("attention_in_multiplier", 1.0)?;
    let scales: [(&str, Vec<f32>); 9] = [
        ("model.embed_tokens.weight", factor("embedding_multiplier", EMBEDDING)?),
        ("lm_head.weight", factor("lm_head_multiplier", LM_HEAD)?),
        ("model.layers.*.self_attn.q_proj.weight", attention.clone()),
        ("model.layers.*.self_attn.k_proj.weight", attention),
        ("model.layers.*.self_attn.o_proj.weight", factor("attention_out_multiplier", 0.937_5)?),
        ("model.layers.*.mamba.out_proj.weight", factor("ssm_out_multiplier", 0.235_702_26)?),
        ("model.layers.*.mamba.in_proj.weight", rows.collect()),
        ("model.layers.*.feed_forward.gate_proj.weight", vec![gate]),
        ("model.layers.*.feed_forward.down_proj.weight", vec![down]),
    ];
    let conv = "model.layers.*.mamba.conv1d.weight";
    let scale = |(tensors, factors): (&str, Vec<f32>)| WeightRewrite::Scale {
        tensors: tensors.into(),
        factors,
        when: When::LastAxisIsNot(conv.into(), 1),
    };
    Ok(scales.map(scale).into())
}
