//! DeepSeek-V3.2 and GLM-5: DeepSeek-V3 whose rows read the keys that an indexer chooses, in GLM-5.2 that of an earlier
//! layer in most layers.
//!
//! Source: mlx-lm `models/deepseek_v32.py`, `models/glm_moe_dsa.py`; `indexer_types` as its config describes it.

use omnibus_kv::CacheKind;

use super::deepseek_v3;
use super::names::*;
use crate::*;

/// Its indexer rotates halves.
pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let interleaved = cfg.or("indexer_rope_interleave", false)?;
    indexed(cfg, interleaved)
}

/// GLM-5's rotates neighbours.
pub(super) fn read_glm(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let interleaved = cfg.or("indexer_rope_interleave", true)?;
    let mut blueprint = indexed(cfg, interleaved)?;
    let Some(kinds) = cfg.opt::<Vec<String>>("indexer_types")? else { return Ok(blueprint) };
    share_choices(&mut blueprint, &kinds)?;
    Ok(blueprint)
}

fn indexed(cfg: &Config, interleaved: bool) -> Result<Blueprint, ConfigError> {
    let rope = Rope::read(cfg, cfg.req("qk_rope_head_dim")?)?;
    let indexer = Indexer {
        heads: cfg.req("index_n_heads")?,
        keys: RowCache { width: cfg.req("index_head_dim")?, kind: CacheKind::Latent },
        rope: if interleaved { rope.interleaved() } else { rope },
        kept: cfg.req("index_topk")?,
    };
    let mut blueprint = deepseek_v3::read(cfg)?;
    for layer in &mut blueprint.layers {
        if let Mixer::Latent(latent) = &mut layer.mixer {
            latent.reads = KeyReads::Chosen(indexer.clone());
        }
    }
    Ok(blueprint)
}

/// Layers of the kind `shared` read what the last indexer before them chose.
fn share_choices(blueprint: &mut Blueprint, kinds: &[String]) -> Result<(), ConfigError> {
    let refused = |found: String, supported: &str| {
        let (field, supported) = ("indexer_types".to_owned(), supported.to_owned());
        Err(ConfigError::Unsupported { field, found, supported })
    };
    if kinds.len() != blueprint.layers.len() {
        return refused(format!("a list of {}", kinds.len()), "one kind for each layer");
    }
    let mut source = None;
    for (index, (layer, kind)) in blueprint.layers.iter_mut().zip(kinds).enumerate() {
        match (kind.as_str(), source, &mut layer.mixer) {
            ("full", _, _) => source = Some(index),
            ("shared", Some(source), Mixer::Latent(latent)) => {
                latent.reads = KeyReads::AsLayer(source);
                blueprint.rewrites.push(drop(&format!("model.layers.{index}.self_attn.indexer.**")));
            }
            _ => return refused(kind.clone(), "full, and shared after a full one"),
        }
    }
    Ok(())
}
