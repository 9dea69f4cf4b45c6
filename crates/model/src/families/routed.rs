//! Configs of mixtures of experts, as DeepSeek spells them and as others do.

use super::names::*;
use crate::*;

/// Experts of DeepSeek's configs: `n_routed_experts`, `n_shared_experts`, groups, a scale; `router` says what the config
/// does not.
pub(super) fn deepseek_moe(
    cfg: &Config,
    dense: GatedMlp,
    router: Router,
) -> Result<Option<Moe>, ConfigError> {
    let Some(experts) = cfg.opt("n_routed_experts")? else { return Ok(None) };
    let width: usize = cfg.req("moe_intermediate_size")?;
    let top_k = cfg.req("num_experts_per_tok")?;
    let shared: Option<usize> = cfg.opt("n_shared_experts")?;
    Ok(Some(Moe {
        latent: None,
        experts,
        top_k,
        expert: dense.with_width(width).into(),
        router: Router {
            groups: groups(cfg, experts)?,
            renormalize: top_k > 1 && cfg.or("norm_topk_prob", false)?,
            scale: cfg.or("routed_scaling_factor", 1.0)?,
            ..router
        },
        shared: shared.filter(|count| *count > 0).map(|count| shared_experts(count * width)),
    }))
}

/// `n_group` groups of experts, of which `topk_group` take part; each is as good as its best two.
pub(super) fn groups(cfg: &Config, experts: usize) -> Result<Option<RouteGroups>, ConfigError> {
    groups_of(cfg, experts, "n_group")
}

/// The same with another name for the number of groups.
pub(super) fn groups_of(
    cfg: &Config,
    experts: usize,
    field: &str,
) -> Result<Option<RouteGroups>, ConfigError> {
    let (count, kept): (usize, usize) = (cfg.or(field, 1)?, cfg.or("topk_group", 1)?);
    let best = experts.checked_div(count).unwrap_or(0).min(2);
    Ok((count > 1 && kept < count).then_some(RouteGroups { count, kept, best }))
}

/// Experts that compute every token, under DeepSeek's name.
pub(super) fn shared_experts(width: usize) -> SharedExpert {
    SharedExpert { name: "shared_experts", width, gate: SharedGate::None, act: None }
}

/// Dense layers first, `first_k_dense_replace` of them, then routed ones.
pub(super) fn dense_then_routed(
    cfg: &Config,
    layers: usize,
    dense: GatedMlp,
    moe: Option<Moe>,
) -> Result<Vec<Mlp>, ConfigError> {
    let first: usize = cfg.or("first_k_dense_replace", 0)?;
    cfg.only("moe_layer_freq", 1)?;
    let mlp = |layer: usize| match &moe {
        Some(moe) if layer >= first => moe.clone().into(),
        _ => dense.into(),
    };
    Ok((0..layers).map(mlp).collect())
}

/// What published checkpoints of such a model need: stacked experts, without layers that predict further tokens.
pub(super) fn routed_rewrites(layers: usize, moe: Option<&Moe>) -> Vec<WeightRewrite> {
    let mut rewrites = vec![drop("**.rotary_emb.inv_freq"), WeightRewrite::DropLayersFrom { layers }];
    rewrites.extend(moe.into_iter().flat_map(|moe| stacked_experts(moe.experts)));
    rewrites
}
