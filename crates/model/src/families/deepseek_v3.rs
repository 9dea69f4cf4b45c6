//! DeepSeek-V2 and V3, Kimi K2, GLM-4.7-Flash, JoyAI Flash, Mistral 4: latent attention and many small experts.
//!
//! Source: mlx-lm `models/deepseek_v2.py`, `models/deepseek_v3.py`, `models/glm4_moe_lite.py`, `models/mistral4.py`.

use super::latent::*;
use super::names::*;
use super::parts::*;
use super::routed::*;
use crate::*;

/// Of the norms inside attention, whatever the config says of the others.
const INNER_EPS: f32 = 1e-6;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims { head: Head::Own, ..Dims::read(cfg)? };
    let attention = latent_attention(cfg, &dims, INNER_EPS)?;
    blueprint(cfg, &dims, attention, Router::SIGMOID_CORRECTED)
}

/// DeepSeek-V2: groups by their best expert, probabilities as they are.
pub(super) fn read_v2(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims { head: Head::Own, ..Dims::read(cfg)? };
    let attention = latent_attention(cfg, &dims, INNER_EPS)?;
    let grouped = cfg.opt::<String>("topk_method")?.as_deref() == Some("group_limited_greedy");
    let mut blueprint = blueprint(cfg, &dims, attention, Router::SOFTMAX)?;
    for layer in &mut blueprint.layers {
        if let Some(Mlp::Moe(moe)) = &mut layer.mlp {
            let groups = moe.router.groups.filter(|_| grouped);
            moe.router.groups = groups.map(|groups| RouteGroups { best: 1, ..groups });
            moe.router.renormalize = false;
        }
    }
    Ok(blueprint)
}

/// Mistral 4: queries grow with their position, softmax over all experts.
pub(super) fn read_mistral4(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let parameters = cfg.section("rope_parameters")?;
    let parameters =
        parameters.ok_or_else(|| ConfigError::Missing { field: "rope_parameters".to_owned() })?;
    let temperature = Temperature {
        beta: parameters.req("llama_4_scaling_beta")?,
        period: parameters.req("original_max_position_embeddings")?,
        shift: 0,
    };
    let dims = Dims::read_untied(cfg)?;
    let attention = latent_attention(cfg, &dims, INNER_EPS)?;
    let attention = LatentAttention { temperature: Some(temperature), ..attention };
    let blueprint = blueprint(cfg, &dims, attention, Router::SOFTMAX)?;
    let experts = joined_experts(cfg.req("moe_intermediate_size")?);
    Ok(Blueprint { rewrites: [experts, blueprint.rewrites].concat(), ..blueprint })
}

/// Kimi K2.5 and Kimi-VL: the same below a section, beside encoders.
pub(super) fn read_with_encoder(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let text = text_config(cfg)?.ok_or_else(|| ConfigError::Missing { field: "text_config".to_owned() })?;
    let blueprint = read(&text)?;
    let encoders = ["mm_projector.**", "vision_model.**"].map(drop);
    Ok(Blueprint { rewrites: [encoders.to_vec(), text_model(), blueprint.rewrites].concat(), ..blueprint })
}

fn blueprint(
    cfg: &Config,
    dims: &Dims,
    attention: LatentAttention,
    router: Router,
) -> Result<Blueprint, ConfigError> {
    let dense = GatedMlp::read(cfg)?;
    let moe = deepseek_moe(cfg, dense, router)?;
    let mut rewrites = routed_rewrites(dims.layers, moe.as_ref());
    rewrites.push(split_latent(&attention));
    let layer = |mlp: Mlp| LayerSpec::pre_norm(attention.clone(), mlp, dims.norm);
    let layers = dense_then_routed(cfg, dims.layers, dense, moe)?.into_iter().map(layer).collect();
    Ok(Blueprint { rewrites, ..Blueprint::new(dims, layers) })
}
