//! Configs of mixtures of experts, as DeepSeek spells them and as others do.

use super::names::*;
use crate::*;

/// What a config calls its experts.
pub(super) struct MoeFields {
    pub(super) experts: &'static str,
    pub(super) top_k: &'static str,
    /// How many experts compute every token.
    pub(super) shared: &'static str,
    /// The width of each of those, if not that of routed ones.
    pub(super) shared_width: &'static str,
    pub(super) groups: &'static str,
    pub(super) renormalize: &'static str,
}

impl MoeFields {
    /// DeepSeek's names.
    pub(super) const DEEPSEEK: Self = Self {
        experts: "n_routed_experts",
        top_k: "num_experts_per_tok",
        shared: "n_shared_experts",
        shared_width: "moe_shared_expert_intermediate_size",
        groups: "n_group",
        renormalize: "norm_topk_prob",
    };
    /// The names of most families but DeepSeek's.
    pub(super) const COUNTED: Self =
        Self { experts: "num_experts", shared: "num_shared_experts", ..Self::DEEPSEEK };
}

/// Routed experts of a config that has them. `router` has what the config does not say: its scores, and whether it
/// renormalizes and scales where the fields are absent.
pub(super) fn moe_of(
    cfg: &Config,
    dense: GatedMlp,
    router: Router,
    fields: &MoeFields,
) -> Result<Option<Moe>, ConfigError> {
    let Some(experts) = cfg.opt(fields.experts)? else { return Ok(None) };
    let width = cfg.req("moe_intermediate_size")?;
    let top_k = cfg.req(fields.top_k)?;
    let shared = cfg.or(fields.shared_width, width)? * cfg.or::<usize>(fields.shared, 0)?;
    Ok(Some(Moe {
        experts,
        top_k,
        expert: dense.with_width(width).into(),
        router: Router {
            groups: groups_of(cfg, experts, fields.groups)?,
            renormalize: top_k > 1 && cfg.or(fields.renormalize, router.renormalize)?,
            scale: cfg.or("routed_scaling_factor", router.scale)?,
            ..router
        },
        shared: (shared > 0).then(|| shared_experts(shared)),
        latent: None,
        sum_bias: false,
    }))
}

/// Experts under DeepSeek's names.
pub(super) fn deepseek_moe(
    cfg: &Config,
    dense: GatedMlp,
    router: Router,
) -> Result<Option<Moe>, ConfigError> {
    moe_of(cfg, dense, Router { renormalize: false, ..router }, &MoeFields::DEEPSEEK)
}

/// Experts under the names of most others, of a model that has them.
pub(super) fn counted_moe(cfg: &Config, dense: GatedMlp, router: Router) -> Result<Moe, ConfigError> {
    moe_of(cfg, dense, router, &MoeFields::COUNTED)?.ok_or_else(|| super::parts::missing("num_experts"))
}

/// `n_group` groups of experts, of which `topk_group` take part; each is as good as its best two.
pub(super) fn groups(cfg: &Config, experts: usize) -> Result<Option<RouteGroups>, ConfigError> {
    groups_of(cfg, experts, "n_group")
}

/// Groups of experts with another name for their number.
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
