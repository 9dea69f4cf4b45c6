//! Config readers and rewrites that several families share.
//!
//! A function moves here on its second use, and takes what differs as an argument.

use std::num::NonZeroUsize;

use crate::*;

/// The attention span of each layer: `layer_types` with `sliding_window`, else one span for all of them.
pub(super) fn layer_spans(cfg: &Config, layers: usize) -> Result<Vec<AttentionSpan>, ConfigError> {
    let window = cfg.opt::<NonZeroUsize>("sliding_window")?.map(NonZeroUsize::get);
    let Some(kinds) = cfg.opt::<Vec<String>>("layer_types")? else {
        return Ok(vec![window.map_or(AttentionSpan::Full, AttentionSpan::Window); layers]);
    };
    if kinds.len() != layers {
        let rule =
            format!("`layer_types` ({}) names every layer (`num_hidden_layers`: {layers})", kinds.len());
        return Err(ConfigError::Inconsistent { rules: vec![rule] });
    }
    let span = |kind: &String| match (kind.as_str(), window) {
        ("full_attention", _) => Ok(AttentionSpan::Full),
        ("sliding_attention", Some(window)) => Ok(AttentionSpan::Window(window)),
        ("sliding_attention", None) => Err(ConfigError::Missing { field: "sliding_window".to_owned() }),
        _ => Err(ConfigError::Unsupported {
            field: "layer_types".to_owned(),
            found: kind.clone(),
            supported: "full_attention, sliding_attention".to_owned(),
        }),
    };
    kinds.iter().map(span).collect()
}

/// Qwen's configs carry window fields that the published models never switch on.
pub(super) fn no_sliding_window(cfg: &Config) -> Result<(), ConfigError> {
    for (field, off) in [("use_sliding_window", false), ("use_mrope", false), ("is_causal", true)] {
        cfg.only(field, off)?;
    }
    let _window: Option<usize> = cfg.opt("sliding_window")?; // Without effect while it is off.
    let kinds: Vec<String> = cfg.or("layer_types", Vec::new())?;
    match kinds.into_iter().find(|kind| kind != "full_attention") {
        None => Ok(()),
        Some(found) => Err(ConfigError::Unsupported {
            field: "layer_types".to_owned(),
            found,
            supported: "full_attention".to_owned(),
        }),
    }
}

/// The MLP of each layer, as Qwen spells it: every `decoder_sparse_step`-th is routed, bar those
/// in `mlp_only_layers`.
pub(super) fn qwen_mlps(
    cfg: &Config,
    layers: usize,
    shared: Option<SharedExpert>,
) -> Result<Vec<Mlp>, ConfigError> {
    let dense = GatedMlp::read(cfg)?;
    for (field, only) in [("qkv_bias", false), ("use_qk_norm", true)] {
        cfg.only(field, only)?;
    }
    let Some(experts) = cfg.opt("num_experts")? else { return Ok(vec![Mlp::Gated(dense); layers]) };
    let renormalize = cfg.or("norm_topk_prob", false)?;
    let moe = Moe {
        experts,
        top_k: cfg.req("num_experts_per_tok")?,
        expert: dense.with_width(cfg.req("moe_intermediate_size")?),
        router: if renormalize { Router::SoftmaxRenormalized } else { Router::Softmax },
        shared,
    };
    let step: usize = cfg.or("decoder_sparse_step", 1)?;
    let only_dense: Vec<usize> = cfg.or("mlp_only_layers", Vec::new())?;
    let routed = |layer: usize| step > 0 && (layer + 1).is_multiple_of(step) && !only_dense.contains(&layer);
    let mlp = |layer| if routed(layer) { Mlp::Moe(moe.clone()) } else { Mlp::Gated(dense) };
    Ok((0..layers).map(mlp).collect())
}

/// Published experts are one tensor each; ours are stacked. Nothing to do in a dense model.
pub(super) fn stack_experts(mlps: &[Mlp]) -> Option<WeightRewrite> {
    let experts = mlps.iter().find_map(|mlp| match mlp {
        Mlp::Moe(moe) => Some(moe.experts),
        Mlp::Gated(_) => None,
    })?;
    Some(WeightRewrite::StackExperts {
        from: "model.layers.*.mlp.experts.#.*.*".into(),
        to: "model.layers.*.mlp.switch_mlp.*.*".into(),
        experts,
    })
}

/// Norms stored as `weight − 1`: the final one, every layer's own, and those on queries and keys.
///
/// With `if_present`, only in checkpoints published with such a tensor.
pub(super) fn add_one_to_norms(if_present: Option<&str>) -> impl Iterator<Item = WeightRewrite> {
    let norms = [
        "model.norm.weight",
        "model.layers.*.*.weight",
        "model.layers.*.self_attn.q_norm.weight",
        "model.layers.*.self_attn.k_norm.weight",
    ];
    norms.into_iter().map(move |tensors| WeightRewrite::AddOne {
        tensors: tensors.into(),
        if_present: if_present.map(Pattern::from),
    })
}

/// Depthwise convolutions: `[channels, 1, conv_kernel_size]` as published, `[channels, conv_kernel_size, 1]` in MLX.
pub(super) fn conv_to_mlx() -> WeightRewrite {
    WeightRewrite::Transpose { tensors: "**.conv1d.weight".into(), order: [0, 2, 1], unless_last: 1 }
}

/// Tensors under this pattern go unread.
pub(super) fn drop(tensors: &str) -> WeightRewrite {
    WeightRewrite::Drop { tensors: tensors.into() }
}
