//! Packs of Qwen3.5 in 2 bits: modules whose inputs were rotated before they were packed.
//!
//! Source: mlx-lm `models/prism_hadamard_qwen35.py`.

use super::qwen3_5;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    // Of text alone, and of text beside an encoder.
    let namespaces = [("mlx-lm-text", 1), ("mlx-vlm-qwen3_5", 2)];
    let schema: usize = cfg.choice("tensor_namespace", &namespaces)?;
    cfg.only("schema_version", schema)?;
    cfg.only("gdn_activation_layout", "grouped")?;
    let blueprint = qwen3_5::read(cfg)?;
    let mut rotated = Vec::new();
    for module in cfg.sections("modules")? {
        module.pass_by(&["embedding"]);
        module.only("dtype", "float16")?;
        let block = module.req("block")?;
        if block > 0 {
            rotated.push(RotatedModule { path: module.req("path")?, block });
        } else {
            module.pass_by(&["path"]);
        }
    }
    Ok(Blueprint { rotated, ..blueprint })
}
