//! Phixtral: Phi-2's parallel layers with routed ungated experts.
//!
//! Source: mlx-lm `models/phixtral.py`.

use super::names::*;
use crate::*;

/// Of every norm.
const EPS: f32 = 1e-5;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let fields = DimFields {
        hidden: "model_dim",
        layers: "num_layers",
        heads: "num_heads",
        vocab: "num_vocab",
        ..DimFields::LLAMA
    };
    let dims = Dims { head: Head::Own, ..Dims::read_as(cfg, &fields)? }.with_layer_norm(EPS, true);
    let rope = Rope::new(cfg.or("rotary_dim", 32)?, 10_000.0);
    let attention = Attention::new(&dims, Position::Rope(rope)).with_bias(true);
    let moe = Moe {
        latent: None,
        sum_bias: false,
        experts: cfg.or("num_local_experts", 4)?,
        top_k: cfg.or("num_experts_per_tok", 2)?,
        expert: PlainMlp { width: 4 * dims.hidden, act: Activation::GeluTanh, bias: true }.into(),
        router: Router { scores: RouteScores::ChosenSoftmax, ..Router::SOFTMAX },
        shared: None,
    };
    let rewrites = [
        modules([
            ("transformer.embd.wte", "model.embed_tokens"),
            ("lm_head.ln", "model.norm"),
            ("lm_head.linear", "lm_head"),
        ]),
        vec![prefix("transformer.h", "model.layers")],
        vec![WeightRewrite::StackExperts {
            from: "model.layers.*.moe.mlp.#.*.*".into(),
            to: "model.layers.*.moe.switch_mlp.*.*".into(),
            experts: moe.experts,
        }],
        parts_of_layers([
            ("ln", "input_layernorm"),
            ("mixer.Wqkv", "self_attn.qkv_proj"),
            ("mixer.out_proj", "self_attn.o_proj"),
            ("moe.gate", "mlp.gate"),
            ("moe.switch_mlp.fc1", "mlp.switch_mlp.up_proj"),
            ("moe.switch_mlp.fc2", "mlp.switch_mlp.down_proj"),
        ]),
        vec![split_qkv("model.layers.*.self_attn.qkv_proj", &attention)],
    ];
    let layer = LayerSpec::pre_norm(attention, moe, dims.norm).with_norms(NormPlacement::PARALLEL);
    Ok(Blueprint { head_bias: true, rewrites: rewrites.concat(), ..Blueprint::uniform(&dims, layer) })
}
