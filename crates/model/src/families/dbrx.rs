//! DBRX: layer norms without biases, one limited projection for queries, keys and values, routed experts.
//!
//! Source: mlx-lm `models/dbrx.py`.

use super::names::*;
use crate::*;

/// Of every norm.
const EPS: f32 = 1e-5;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let section =
        |name: &str| cfg.section(name)?.ok_or_else(|| ConfigError::Missing { field: name.to_owned() });
    let (attn, ffn) = (section("attn_config")?, section("ffn_config")?);
    attn.pass_by(&["attn_pdrop"]);
    ffn.pass_by(&[
        "ffn_act_fn",
        "moe_jitter_eps",
        "moe_loss_weight",
        "moe_normalize_expert_weights",
        "uniform_expert_assignment",
    ]);
    let fields = DimFields {
        hidden: "d_model",
        layers: "n_layers",
        heads: "n_heads",
        context: "max_seq_len",
        ..DimFields::LLAMA
    };
    let dims = Dims { head: Head::Own, kv_heads: attn.req("kv_n_heads")?, ..Dims::read_as(cfg, &fields)? }
        .with_layer_norm(EPS, false);
    let attention = Attention {
        clip_qkv: attn.opt("clip_qkv")?,
        ..Attention::new(&dims, Position::Rope(Rope::new(dims.head_dim, attn.req("rope_theta")?)))
    };
    let moe = Moe {
        latent: None,
        sum_bias: false,
        experts: ffn.req("moe_num_experts")?,
        top_k: ffn.req("moe_top_k")?,
        expert: GatedMlp { width: ffn.req("ffn_hidden_size")?, act: Activation::Silu, bias: false }.into(),
        router: Router::SOFTMAX_RENORMALIZED,
        shared: None,
    };
    let rewrites = [names(), experts(&moe), vec![split_qkv("model.layers.*.self_attn.qkv_proj", &attention)]];
    let layer = LayerSpec::pre_norm(attention, moe, dims.norm);
    Ok(Blueprint { rewrites: rewrites.concat(), ..Blueprint::uniform(&dims, layer) })
}

fn names() -> Vec<WeightRewrite> {
    let renamed = [
        modules([("transformer.wte", "model.embed_tokens"), ("transformer.norm_f", "model.norm")]),
        vec![prefix("transformer.blocks", "model.layers")],
        parts_of_layers([
            ("norm_attn_norm.norm_1", "input_layernorm"),
            ("norm_attn_norm.norm_2", "post_attention_layernorm"),
            ("norm_attn_norm.attn.Wqkv", "self_attn.qkv_proj"),
            ("norm_attn_norm.attn.out_proj", "self_attn.o_proj"),
            ("ffn.router.layer", "mlp.gate"),
        ]),
    ];
    renamed.concat()
}

/// Published, all experts are one matrix; in mlx-lm each is a module.
fn experts(moe: &Moe) -> Vec<WeightRewrite> {
    let matrices = [("w1", "gate_proj"), ("v1", "up_proj"), ("w2", "down_proj")];
    let renamed = matrices.map(|(from, to)| {
        vec![
            WeightRewrite::StackExperts {
                from: format!("model.layers.*.ffn.experts.#.{from}.*").into(),
                to: format!("model.layers.*.mlp.switch_mlp.{to}.*").into(),
                experts: moe.experts,
            },
            WeightRewrite::Unstack {
                from: format!("model.layers.*.ffn.experts.mlp.{from}").into(),
                to: format!("model.layers.*.ffn.experts.mlp.{to}").into(),
                experts: moe.experts,
            },
        ]
    });
    let turned = WeightRewrite::Transposed { tensors: "model.layers.*.ffn.experts.mlp.down_proj".into() };
    let named = tensors_of_layers([("ffn.experts.mlp.*", "mlp.switch_mlp.*.weight")]);
    [renamed.concat(), vec![turned], named].concat()
}
