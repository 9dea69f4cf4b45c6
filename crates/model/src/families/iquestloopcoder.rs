//! IQuest LoopCoder: Llama's layers twice, the second time with a window beside the first pass's keys.
//!
//! Source: mlx-lm `models/iquestloopcoder.py`.

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("loop_num", 2)?;
    let dims = Dims::read_untied(cfg)?;
    let attention = Attention::new(&dims, rope(cfg, &dims)?).with_bias(cfg.or("attention_bias", false)?);
    let mlp = GatedMlp::read(cfg)?.with_bias(cfg.or("mlp_bias", false)?);
    let window = cfg.or("loop_window_size", 64)?;
    let pass = |span: AttentionSpan| {
        let attention = Attention { span, ..attention.clone() };
        let mixer = LoopAttention { attention, window, layers: dims.layers };
        vec![LayerSpec::pre_norm(mixer, mlp, dims.norm); dims.layers]
    };
    let passes = [pass(AttentionSpan::Full), pass(AttentionSpan::Window(window))];
    let gate = |layer: usize| {
        let to = format!("model.layers.{layer}.self_attn.loop_gate");
        prefix(&format!("model.gate_projections.{layer}"), &to)
    };
    let gates = (0..dims.layers).map(gate).collect();
    Ok(Blueprint {
        passes: Passes::Several { count: 2, each_normed: false },
        rewrites: [vec![drop("**.rotary_emb.inv_freq")], gates].concat(),
        ..Blueprint::new(&dims, passes.concat())
    })
}
