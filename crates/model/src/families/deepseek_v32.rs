//! DeepSeek-V3.2 and GLM-5: DeepSeek-V3 whose rows read the keys that an indexer chooses.
//!
//! Source: mlx-lm `models/deepseek_v32.py`, `models/glm_moe_dsa.py`.

use super::deepseek_v3;
use crate::*;

/// Its indexer rotates halves.
pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let interleaved = cfg.or("indexer_rope_interleave", false)?;
    indexed(cfg, interleaved)
}

/// GLM-5's rotates neighbours.
pub(super) fn read_glm(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let interleaved = cfg.or("indexer_rope_interleave", true)?;
    cfg.pass_by(&["mlp_layer_types", "layer_types", "index_share_for_mtp_iteration"]);
    cfg.pass_by(&["index_topk_freq", "index_skip_topk_offset"]);
    let kinds: Vec<String> = cfg.or("indexer_types", Vec::new())?;
    if let Some(found) = kinds.into_iter().find(|kind| kind != "full") {
        let supported = "an indexer in every layer, as mlx-lm computes it: full".to_owned();
        return Err(ConfigError::Unsupported { field: "indexer_types".to_owned(), found, supported });
    }
    indexed(cfg, interleaved)
}

fn indexed(cfg: &Config, interleaved: bool) -> Result<Blueprint, ConfigError> {
    let rope = Rope::read(cfg, cfg.req("qk_rope_head_dim")?)?;
    let indexer = Indexer {
        heads: cfg.req("index_n_heads")?,
        keys: IndexKeys { width: cfg.req("index_head_dim")?, latent: true },
        rope: if interleaved { rope.interleaved() } else { rope },
        kept: cfg.req("index_topk")?,
    };
    let mut blueprint = deepseek_v3::read(cfg)?;
    for layer in &mut blueprint.layers {
        if let Mixer::Latent(latent) = &mut layer.mixer {
            latent.indexer = Some(indexer.clone());
        }
    }
    Ok(blueprint)
}
