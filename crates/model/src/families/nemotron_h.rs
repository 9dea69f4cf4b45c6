//! Nemotron-H and Nemotron 3: each layer is a Mamba-2, attention, an MLP or routed experts, one of them.
//!
//! Source: mlx-lm `models/nemotron_h.py`.

use super::by_layer::*;
use super::names::*;
use super::parts::*;
use super::routed::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let fields = DimFields { norm_eps: "layer_norm_epsilon", ..DimFields::LLAMA };
    let named = layer_names(cfg)?;
    let dims = Dims { head: Head::Own, layers: named.len(), ..Dims::read_as(cfg, &fields)? };
    let attention = Attention::new(&dims, Position::None).with_bias(cfg.or("attention_bias", false)?);
    let bias = cfg.or("mlp_bias", false)?;
    let mlp = PlainMlp { width: cfg.req("intermediate_size")?, act: Activation::Relu2, bias };
    let moe = moe(cfg, mlp)?;
    let mut kinds = vec![
        ("mamba", LayerSpec::mixer_alone(mamba(cfg, &dims)?, dims.norm, "norm")),
        ("attention", LayerSpec::mixer_alone(attention, dims.norm, "norm")),
        ("mlp", LayerSpec::mlp_alone(mlp, dims.norm, "norm")),
    ];
    kinds.extend(moe.clone().map(|moe| ("moe", LayerSpec::mlp_alone(moe, dims.norm, "norm"))));
    let layers = named_layers("layers_block_type", &named, dims.layers, &kinds)?.into_iter();
    let layers = layers.map(|layer| LayerSpec { mixer_name: "mixer", mlp_name: "mixer", ..layer });
    let stack = moe.as_ref().map(|moe| WeightRewrite::StackExperts {
        from: "model.layers.*.mixer.experts.#.*.*".into(),
        to: "model.layers.*.mixer.switch_mlp.*.*".into(),
        experts: moe.experts,
    });
    let rewrites = [
        vec![drop("mtp.**"), conv_to_mlx(), prefix("backbone", "model")],
        modules([("model.embeddings", "model.embed_tokens"), ("model.norm_f", "model.norm")]),
        parts_of_layers([
            ("mixer.switch_mlp.fc1", "mixer.switch_mlp.up_proj"),
            ("mixer.switch_mlp.fc2", "mixer.switch_mlp.down_proj"),
        ]),
        stack.into_iter().collect(),
    ];
    Ok(Blueprint { rewrites: rewrites.concat(), ..Blueprint::new(&dims, layers.collect()) })
}

fn mamba(cfg: &Config, dims: &Dims) -> Result<Mamba2, ConfigError> {
    let groups = cfg.req("n_groups")?;
    Ok(Mamba2 {
        heads: cfg.req("mamba_num_heads")?,
        head_dim: cfg.req("mamba_head_dim")?,
        groups,
        state_dim: cfg.req("ssm_state_size")?,
        conv_kernel_size: cfg.req("conv_kernel")?,
        step_limits: cfg.or("time_step_limit", [Limit(0.0), Limit(f32::INFINITY)])?.map(|limit| limit.0),
        bias: cfg.or("mamba_proj_bias", false)?,
        conv_bias: cfg.or("use_conv_bias", true)?,
        norm: Some(dims.norm),
        norm_groups: groups,
    })
}

fn moe(cfg: &Config, mlp: PlainMlp) -> Result<Option<Moe>, ConfigError> {
    let Some(experts) = cfg.opt("n_routed_experts")? else { return Ok(None) };
    let top_k = cfg.req("num_experts_per_tok")?;
    let router = Router {
        groups: groups(cfg, experts)?,
        renormalize: top_k > 1 && cfg.or("norm_topk_prob", true)?,
        scale: cfg.or("routed_scaling_factor", 1.0)?,
        ..Router::SIGMOID_CORRECTED
    };
    let expert = PlainMlp { width: cfg.req("moe_intermediate_size")?, ..mlp };
    let shared_width = cfg.or("moe_shared_expert_intermediate_size", 0)?;
    let shared = cfg.opt::<usize>("n_shared_experts")?.map(|_| shared_experts(shared_width));
    let latent = cfg.opt("moe_latent_size")?.map(|width| Latent { width, norms: LatentNorms::default() });
    Ok(Some(Moe { shared, latent, ..Moe::new(experts, top_k, expert, router) }))
}

/// The kind of each layer: a name, or a character of a pattern.
fn layer_names(cfg: &Config) -> Result<Vec<String>, ConfigError> {
    let names: Option<Vec<String>> = cfg.opt("layers_block_type")?;
    let Some(pattern) = cfg.opt::<String>("hybrid_override_pattern")? else {
        return names.ok_or_else(|| missing("hybrid_override_pattern"));
    };
    let name = |kind: char| match kind {
        'M' => "mamba".to_owned(),
        '*' => "attention".to_owned(),
        '-' => "mlp".to_owned(),
        'E' => "moe".to_owned(),
        other => other.to_string(),
    };
    Ok(pattern.chars().map(name).collect())
}
