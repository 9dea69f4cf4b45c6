//! Nemotron-H and Nemotron 3: each layer is a Mamba-2, attention, an MLP or routed experts, one of them.
//!
//! Source: mlx-lm `models/nemotron_h.py`.

use super::names::*;
use super::parts::*;
use super::routed::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let fields = DimFields { norm_eps: "layer_norm_epsilon", ..DimFields::LLAMA };
    let kinds = kinds(cfg)?;
    let dims = Dims { head: Head::Own, layers: kinds.len(), ..Dims::read_as(cfg, &fields)? };
    let attention = Attention::new(&dims, Position::None).with_bias(cfg.or("attention_bias", false)?);
    let mamba = mamba(cfg, &dims)?;
    let bias = cfg.or("mlp_bias", false)?;
    let mlp = PlainMlp { width: cfg.req("intermediate_size")?, act: Activation::Relu2, bias };
    let moe = moe(cfg, mlp)?;
    let layer = |kind: &char| {
        let spec = match (kind, &moe) {
            ('M', _) => LayerSpec::mixer_alone(mamba.clone(), dims.norm, "norm"),
            ('*', _) => LayerSpec::mixer_alone(attention.clone(), dims.norm, "norm"),
            ('E', Some(moe)) => LayerSpec::mlp_alone(moe.clone(), dims.norm, "norm"),
            _ => LayerSpec::mlp_alone(mlp, dims.norm, "norm"),
        };
        LayerSpec { mixer_name: "mixer", mlp_name: "mixer", ..spec }
    };
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
    Ok(Blueprint { rewrites: rewrites.concat(), ..Blueprint::new(&dims, kinds.iter().map(layer).collect()) })
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
    let shared: Option<usize> = cfg.opt("n_shared_experts")?;
    let width = cfg.or("moe_shared_expert_intermediate_size", 0)?;
    Ok(Some(Moe {
        experts,
        top_k,
        expert: PlainMlp { width: cfg.req("moe_intermediate_size")?, ..mlp }.into(),
        router: Router {
            groups: groups(cfg, experts)?,
            renormalize: top_k > 1 && cfg.or("norm_topk_prob", true)?,
            scale: cfg.or("routed_scaling_factor", 1.0)?,
            ..Router::SIGMOID_CORRECTED
        },
        shared: shared.map(|_| shared_experts(width)),
        latent: cfg.opt("moe_latent_size")?.map(|width| Latent { width, norms: LatentNorms::default() }),
    }))
}

/// The kind of each layer, a character each.
fn kinds(cfg: &Config) -> Result<Vec<char>, ConfigError> {
    let names: Option<Vec<String>> = cfg.opt("layers_block_type")?;
    let pattern: Option<String> = cfg.opt("hybrid_override_pattern")?;
    let letter = |name: &String| match name.as_str() {
        "mamba" => 'M',
        "attention" => '*',
        "moe" => 'E',
        _ => '-',
    };
    let kinds: Vec<char> = match (pattern, names) {
        (Some(pattern), _) => pattern.chars().collect(),
        (None, Some(names)) => names.iter().map(letter).collect(),
        (None, None) => return Err(ConfigError::Missing { field: "hybrid_override_pattern".to_owned() }),
    };
    match kinds.iter().find(|kind| !"M*-E".contains(**kind)) {
        None => Ok(kinds),
        Some(kind) => Err(ConfigError::Unsupported {
            field: "hybrid_override_pattern".to_owned(),
            found: kind.to_string(),
            supported: "M, *, - and E".to_owned(),
        }),
    }
}
