//! Nomic Embed: BERT with rotated queries and keys and a gated MLP; 2 has routed experts in every other layer.
//!
//! Source: `modeling_hf_nomic_bert.py` of nomic-ai/nomic-bert-2048, vLLM `NomicMoE`; arXiv 2402.01613, 2502.07972.

use super::encoder::*;
use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    for off in ["prenorm", "parallel_block", "use_rms_norm", "causal"] {
        cfg.only(off, false)?;
    }
    for absent in ["rotary_emb_scale_base", "rotary_scaling_factor"] {
        cfg.only(absent, serde_json::Value::Null)?;
    }
    cfg.only("rotary_emb_fraction", 1.0)?;
    cfg.pass_by(&["max_trained_positions", "pad_vocab_size_multiple"]);
    let fields = DimFields { norm_eps: "layer_norm_epsilon", ..DimFields::GPT2 };
    let dims = dims(cfg, &fields)?;
    let mut rope = Rope::new(dims.head_dim, cfg.or("rotary_emb_base", 10_000.0)?);
    if cfg.or("rotary_emb_interleaved", false)? {
        rope.pairs = RotaryPairing::Interleaved;
    }
    let bias = cfg.or("qkv_proj_bias", true)?;
    let attention = Attention::new(&dims, Position::Rope(rope)).with_bias(bias);
    let (width, bias) = (cfg.req("n_inner")?, cfg.or("mlp_fc1_bias", true)?);
    cfg.only("mlp_fc2_bias", bias)?;
    let mlp: Mlp = match cfg.choice("activation_function", MLPS)? {
        (act, MlpKind::Gated) => GatedMlp { width, act, bias }.into(),
        (act, MlpKind::Plain) => PlainMlp { width, act, bias }.into(),
    };
    let types: usize = cfg.or("type_vocab_size", 0)?;
    let split = split_qkv("model.layers.*.self_attn.qkv_proj", &attention);
    let layer = LayerSpec::pre_norm(attention, mlp, dims.norm);
    let mut blueprint = Blueprint {
        token_types: Some(types).filter(|types| *types > 0),
        rewrites: [rewrites(), vec![split]].concat(),
        ..of_sums(&dims, layer)
    };
    if let Some((period, experts)) = experts(cfg)? {
        let width = experts.expert.width();
        blueprint.rewrites.extend(expert_rewrites([experts.experts, width, dims.hidden]));
        let routed = blueprint.layers.iter_mut().skip(1).step_by(period);
        routed.for_each(|layer| layer.mlp = Some(experts.clone().into()));
    }
    Ok(blueprint)
}

/// Routed experts, and that they are in the second layer of every so many.
fn experts(cfg: &Config) -> Result<Option<(usize, Moe)>, ConfigError> {
    let period: usize = cfg.or("moe_every_n_layers", 0)?;
    for off in ["expert_choice_router", "moe_normalize_expert_weights"] {
        cfg.only(off, false)?;
    }
    cfg.only("num_shared_experts", 0)?;
    cfg.pass_by(&["num_experts", "moe_top_k", "moe_impl", "ffn_div"]);
    if period == 0 {
        return Ok(None);
    }
    let act = match cfg.choice("activation_function", MLPS)? {
        (act, MlpKind::Plain) => act,
        (_, MlpKind::Gated) => {
            return Err(ConfigError::Unsupported {
                field: "activation_function".to_owned(),
                found: "one with a gate".to_owned(),
                supported: "gelu, relu, where there are experts".to_owned(),
            });
        }
    };
    let expert = PlainMlp { width: cfg.req("n_inner")?, act, bias: false };
    let moe = Moe::new(cfg.req("num_experts")?, cfg.req("moe_top_k")?, expert, Router::SOFTMAX);
    Ok(Some((period, Moe { sum_bias: true, ..moe })))
}

/// Both matrices of all experts are `[experts · width, hidden]`.
fn expert_rewrites(sizes: [usize; 3]) -> Vec<WeightRewrite> {
    let down = "model.layers.*.mlp.switch_mlp.down_proj.weight";
    let mut rewrites = tensors_of_layers([
        ("mlp.router.layer.weight", "mlp.gate.weight"),
        ("mlp.experts.mlp.w1", "mlp.switch_mlp.up_proj.weight"),
        ("mlp.experts.mlp.w2", "mlp.switch_mlp.down_proj.weight"),
        ("mlp.experts.bias", "mlp.experts_bias"),
    ]);
    let matrices = ["model.layers.*.mlp.switch_mlp.up_proj.weight", down];
    rewrites.extend(
        matrices.map(|tensors| WeightRewrite::Reshape { tensors: tensors.into(), shape: sizes.into() }),
    );
    rewrites.push(WeightRewrite::Transposed { tensors: down.into() });
    rewrites
}

#[derive(Clone, Copy)]
enum MlpKind {
    Gated,
    Plain,
}

const MLPS: &[(&str, (Activation, MlpKind))] = &[
    ("swiglu", (Activation::Silu, MlpKind::Gated)),
    ("geglu", (Activation::Gelu, MlpKind::Gated)),
    ("gelu", (Activation::Gelu, MlpKind::Plain)),
    ("relu", (Activation::Relu, MlpKind::Plain)),
];

fn rewrites() -> Vec<WeightRewrite> {
    let around = modules([
        ("embeddings.word_embeddings", "model.embed_tokens"),
        ("embeddings.token_type_embeddings", "model.embed_token_types"),
        ("emb_ln", "model.embed_norm"),
    ]);
    let parts = parts_of_layers([
        ("attn.Wqkv", "self_attn.qkv_proj"),
        ("attn.out_proj", "self_attn.o_proj"),
        ("norm1", "post_attention_layernorm"),
        ("mlp.fc11", "mlp.up_proj"),
        ("mlp.fc12", "mlp.gate_proj"),
        ("mlp.fc1", "mlp.up_proj"),
        ("mlp.fc2", "mlp.down_proj"),
        ("norm2", "post_feedforward_layernorm"),
    ]);
    [around, vec![prefix("encoder.layers", "model.layers"), drop("pooler.**")], parts].concat()
}
