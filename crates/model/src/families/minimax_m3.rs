//! MiniMax M3, the text model: attention over blocks of keys that an indexer chooses, experts with a clipped gate.
//!
//! Source: mlx-lm `models/minimax_m3_vl.py`.

use omnibus_kv::CacheKind;

use super::names::*;
use super::parts::*;
use super::routed::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let text = text_config(cfg)?.ok_or_else(|| missing("text_config"))?;
    let dims = Dims::read_untied(&text)?;
    let rope = Rope::read_partial(&text, dims.head_dim, 0.5)?;
    let base = nested(&text, ("rope_parameters", "rope_theta"), "rope_theta")?.unwrap_or(5_000_000.0);
    let rope = Rope { base, dims: text.opt("rotary_dim")?.unwrap_or(rope.dims), ..rope };
    let attention = Attention {
        qk_norm: text.or("use_qk_norm", true)?.then(|| QkNorm::per_head(dims.norm.eps())),
        ..Attention::new(&dims, Position::Rope(rope.clone()))
    };
    let indexed = indexed(&text, &dims, &attention, rope)?.unwrap_or(attention.clone().into());
    let act = Activation::ClippedSwiglu {
        alpha: text.or("swiglu_alpha", 1.702)?,
        limit: text.or("swiglu_limit", 7.0)?,
    };
    let dense = GatedMlp::new(text.req("dense_intermediate_size")?, act);
    let moe = moe(&text, dense)?;
    let sparse = flags(&text, ("layer_types", "full_attention"), "sparse_attention_freq", dims.layers)?;
    let routed = flags(&text, ("mlp_layer_types", "dense"), "moe_layer_freq", dims.layers)?;
    let layer = |(sparse, routed): (bool, bool)| {
        let mixer: Mixer = if sparse { indexed.clone() } else { attention.clone().into() };
        let mlp: Mlp = if routed { moe.clone().into() } else { dense.into() };
        LayerSpec::pre_norm(mixer, mlp, dims.norm)
    };
    let gemma = text.or("use_gemma_norm", true)?;
    let rewrites = [
        vec![drop("patch_merge_mlp.**")],
        text_model(),
        tensors_of_layers([("block_sparse_moe.**", "mlp.**")]),
        numbered_matrices(),
        routed_rewrites(dims.layers, Some(&moe)),
        tensors_of_layers([("mlp.e_score_correction_bias", "mlp.gate.e_score_correction_bias")]),
        if gemma { add_one_to_norms(When::Always).collect() } else { Vec::new() },
    ];
    let layers = sparse.into_iter().zip(routed).map(layer).collect();
    Ok(Blueprint { rewrites: rewrites.concat(), ..Blueprint::new(&dims, layers) })
}

/// A flag for each layer: by a name that switches it off, or by a number.
fn flags(
    cfg: &Config,
    (names, off): (&str, &str),
    numbers: &str,
    layers: usize,
) -> Result<Vec<bool>, ConfigError> {
    let named: Option<Vec<String>> = cfg.opt(names)?;
    let numbered: Option<Vec<usize>> = nested(cfg, ("sparse_attention_config", numbers), numbers)?;
    let flags = match (named, numbered) {
        (Some(named), _) => named.iter().map(|name| name != off).collect(),
        (None, Some(numbered)) => numbered.iter().map(|number| *number > 0).collect(),
        (None, None) => vec![true; layers],
    };
    let rule = || format!("`{numbers}` has a number for each layer ({layers})");
    if flags.len() == layers { Ok(flags) } else { Err(ConfigError::Inconsistent { rules: vec![rule()] }) }
}

fn indexed(
    cfg: &Config,
    dims: &Dims,
    attention: &Attention,
    rope: Rope,
) -> Result<Option<Mixer>, ConfigError> {
    let number = |name: &str, flat: &str| nested(cfg, ("sparse_attention_config", name), flat);
    let Some(block_size) = number("sparse_block_size", "index_block_size")? else { return Ok(None) };
    let required = |name: &str, flat: &str| number(name, flat)?.ok_or_else(|| missing(flat));
    let width = required("sparse_index_dim", "index_head_dim")?;
    let indexed = IndexedAttention {
        attention: attention.clone(),
        heads: required("sparse_num_index_heads", "index_n_heads")?,
        keys: RowCache { width, kind: CacheKind::Full },
        rope: Rope { dims: rope.dims.min(width), ..rope },
        norm: dims.norm,
        block_size,
        kept: required("sparse_topk_blocks", "index_topk_blocks")?,
        local: number("sparse_local_block", "index_local_blocks")?.unwrap_or(1),
    };
    Ok(Some(indexed.into()))
}

fn moe(cfg: &Config, dense: GatedMlp) -> Result<Moe, ConfigError> {
    let router = Router {
        renormalize: true,
        scale: cfg.or("routed_scaling_factor", 2.0)?,
        ..Router::SIGMOID_CORRECTED
    };
    let expert = dense.with_width(cfg.req("intermediate_size")?);
    let moe = Moe::new(cfg.req("num_local_experts")?, cfg.req("num_experts_per_tok")?, expert, router);
    Ok(moe.with_shared(shared_experts(cfg.or("shared_intermediate_size", 3072)?)))
}
