//! Gear: Gemma's layers, some of which have convolved keys and values in the place of attention.
//!
//! Source: mlx-lm `models/gear.py`.

use super::by_layer::*;
use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("use_bidirectional_attention", false)?;
    let dims = Dims::read(cfg)?;
    let bias = cfg.or("attention_bias", false)?;
    let scalar = cfg.or("query_pre_attn_scalar", dims.head_dim as f32)?;
    let global = Attention {
        scale: scalar.powf(-0.5),
        qk_norm: Some(QkNorm::per_head(dims.norm.eps())),
        softcap: cfg.opt::<f32>("attn_logit_softcapping")?.filter(|cap| *cap > 0.0),
        ..Attention::new(&dims, rope(cfg, &dims)?).with_bias(bias)
    };
    let local = Attention {
        span: AttentionSpan::Window(cfg.or("sliding_window", 512)?),
        position: Position::Rope(Rope::new(dims.head_dim, cfg.or("rope_local_base_freq", 10_000.0)?)),
        ..global.clone()
    };
    let conv = ConvGate {
        heads: dims.heads,
        kv_heads: dims.kv_heads,
        head_dim: dims.head_dim,
        conv_kernel_size: cfg.or("conv_L_cache", 3)?,
        norm_eps: dims.norm.eps(),
        bias,
    };
    let act = cfg.choice_opt("hidden_activation", ACTIVATIONS)?.unwrap_or(Activation::GeluTanh);
    let mlp = GatedMlp { act, ..GatedMlp::read(cfg)? };
    let layer = |mixer: Mixer| LayerSpec::pre_norm(mixer, mlp, dims.norm).with_norms(NormPlacement::GEMMA);
    let conv = LayerSpec { mixer_name: "local_mixer", ..layer(conv.into()) };
    let kinds = [
        ("full_attention", layer(global.into())),
        ("sliding_attention", layer(local.into())),
        ("conv_mixer", conv),
    ];
    let layers = layers_of_kinds(cfg, dims.layers, &kinds)?.ok_or_else(|| missing("layer_types"))?;
    let norms = ["q_norm", "k_norm"].map(|norm| WeightRewrite::Add {
        tensors: format!("model.layers.*.local_mixer.{norm}.weight").into(),
        amount: 1.0,
        when: When::Always,
    });
    let rewrites = [
        vec![drop("**.rotary_emb.inv_freq"), drop("**.embed_scale")],
        vec![depthwise_to_mlx("**.key_conv.weight"), depthwise_to_mlx("**.value_conv.weight")],
        add_one_to_norms(When::Always).chain(norms).collect(),
    ];
    Ok(Blueprint {
        embed_scale: (dims.hidden as f32).sqrt(),
        logit_softcap: cfg.opt::<f32>("final_logit_softcapping")?.filter(|cap| *cap > 0.0),
        rewrites: rewrites.concat(),
        ..Blueprint::new(&dims, layers)
    })
}
