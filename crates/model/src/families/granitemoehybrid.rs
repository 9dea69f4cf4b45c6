//! Granite 4: Mamba-2 layers with attention in some, Granite's multipliers, routed experts beside a shared one.
//!
//! Source: mlx-lm `models/granitemoehybrid.py`.

use super::names::*;
use super::parts::*;
use super::{granite, granitemoe};
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read(cfg)?;
    let rotates = cfg.opt::<String>("position_embedding_type")?.as_deref() != Some("nope");
    let plain = Rope { scaling: Scaling::None, ..Rope::read(cfg, dims.head_dim)? };
    let position = if rotates { Position::Rope(plain) } else { Position::None };
    let attention = granite::attention(cfg, &dims, position)?;
    let mamba = mamba(cfg, &dims)?;
    let mlp = mlp(cfg)?;
    let (experts, shared_name) = match &mlp {
        Mlp::Moe(moe) => (granitemoe::expert_names(moe), "mlp.shared_mlp"),
        _ => (Vec::new(), "mlp"),
    };
    let residual = Residual::Scaled(cfg.req("residual_multiplier")?);
    let layer = |kind: &String| {
        let (mixer_name, mixer): (_, Mixer) = match kind.as_str() {
            "attention" => ("self_attn", attention.clone().into()),
            _ => ("mamba", mamba.clone().into()),
        };
        LayerSpec { mixer_name, residual, ..LayerSpec::pre_norm(mixer, mlp.clone(), dims.norm) }
    };
    let kinds: Vec<String> = cfg.req("layer_types")?;
    let width = match &mlp {
        Mlp::Gated(mlp) => mlp.width,
        _ => cfg.req("shared_intermediate_size")?,
    };
    let names = [
        vec![conv_to_mlx()],
        parts_of_layers([
            ("shared_mlp.input_linear", &format!("{shared_name}.gate_up_proj")),
            ("shared_mlp.output_linear", &format!("{shared_name}.down_proj")),
        ]),
        vec![split_gate_up(&format!("model.layers.*.{shared_name}.gate_up_proj"), width)],
        experts,
    ];
    let blueprint = granite::blueprint(cfg, &dims, kinds.iter().map(layer).collect())?;
    Ok(Blueprint { rewrites: names.concat(), ..blueprint })
}

fn mamba(cfg: &Config, dims: &Dims) -> Result<Mamba2, ConfigError> {
    Ok(Mamba2 {
        heads: cfg.req("mamba_n_heads")?,
        head_dim: cfg.req("mamba_d_head")?,
        groups: cfg.req("mamba_n_groups")?,
        state_dim: cfg.req("mamba_d_state")?,
        conv_kernel_size: cfg.req("mamba_d_conv")?,
        step_limits: cfg.or("time_step_limit", [Limit(0.001), Limit(100.0)])?.map(|limit| limit.0),
        bias: cfg.or("mamba_proj_bias", false)?,
        conv_bias: cfg.or("mamba_conv_bias", true)?,
        norm: Some(dims.norm),
        norm_groups: 1,
    })
}

/// Routed experts beside the shared MLP, or the shared MLP alone.
fn mlp(cfg: &Config) -> Result<Mlp, ConfigError> {
    if cfg.or("num_local_experts", 0)? == 0usize {
        cfg.pass_by(&["num_experts_per_tok", "shared_intermediate_size"]);
        let width = cfg.req("intermediate_size")?;
        return Ok(GatedMlp { width, act: Activation::Silu, bias: cfg.or("mlp_bias", false)? }.into());
    }
    let width = cfg.req("shared_intermediate_size")?;
    let shared = SharedExpert { name: "shared_mlp", width, gate: SharedGate::None, act: None };
    Ok(Moe { shared: Some(shared), ..granitemoe::moe(cfg)? }.into())
}
