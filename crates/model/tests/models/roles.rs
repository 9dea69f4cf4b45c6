//! How tensors may be dealt out to several devices: every tensor of every family says it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use expect_test::{Expect, expect};
use omnibus_model::{Blueprint, TensorRole, families};

fn blueprints() -> Vec<(String, Blueprint)> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let folder = entry.unwrap().path();
        let config = std::fs::read_to_string(folder.join("config.json")).ok()?;
        let blueprint = families::read(&serde_json::from_str(&config).ok()?).ok()?;
        Some((folder.file_name()?.to_string_lossy().into_owned(), blueprint))
    };
    std::fs::read_dir(fixtures).unwrap().filter_map(read).collect()
}

/// A name without the numbers of layers.
fn pattern(name: &str) -> String {
    let part = |part: &str| if part.parse::<usize>().is_ok() { "#".to_owned() } else { part.to_owned() };
    name.split('.').map(part).collect::<Vec<_>>().join(".")
}

#[test]
fn every_tensor_of_every_family_has_a_role_that_its_shape_allows() {
    let (mut families, mut seen) = (0, BTreeSet::new());
    for (family, blueprint) in blueprints() {
        families += 1;
        let manifest = blueprint.manifest();
        for (name, shape) in &manifest.0 {
            let role = manifest.role(name).unwrap_or_else(|| panic!("{family}: {name} has no role"));
            seen.insert(role);
            let is_bias = name.ends_with("bias");
            let fits = match role {
                TensorRole::Replicated => true,
                TensorRole::Heads | TensorRole::Column => !shape.is_empty(),
                TensorRole::Row => shape.len() == if is_bias { 1 } else { 2 },
                TensorRole::ExpertColumn | TensorRole::ExpertRow => {
                    shape.len() == if is_bias { 2 } else { 3 }
                }
            };
            assert!(fits, "{family}: {name} of {shape:?} is {role:?}");
        }
    }
    assert!(families > 150, "{families}");
    assert_eq!(seen.len(), 6, "{seen:?}");
}

/// What is dealt out must meet again: a part of a layer with outputs by devices has one whose inputs are.
#[test]
fn what_is_dealt_out_is_summed_in_the_same_part_of_a_layer() {
    for (family, blueprint) in blueprints() {
        let manifest = blueprint.manifest();
        let mut parts: BTreeMap<String, BTreeSet<TensorRole>> = BTreeMap::new();
        for name in manifest.0.keys() {
            let Some((layer, rest)) = name.split_once("layers.").and_then(|(_, rest)| rest.split_once('.'))
            else {
                continue;
            };
            let part = format!("{layer}.{}", rest.split('.').next().unwrap());
            parts.entry(part).or_default().extend(manifest.role(name));
        }
        for (part, roles) in parts {
            let dealt = roles.contains(&TensorRole::Column) || roles.contains(&TensorRole::Heads);
            assert!(!dealt || roles.contains(&TensorRole::Row), "{family}: {part} has {roles:?}");
            let by_expert = roles.contains(&TensorRole::ExpertColumn);
            assert_eq!(by_expert, roles.contains(&TensorRole::ExpertRow), "{family}: {part}");
        }
    }
}

fn check(family: &str, roles: Expect) {
    let (_, blueprint) = blueprints().into_iter().find(|(name, _)| name == family).unwrap();
    let manifest = blueprint.manifest();
    let of_layers = manifest.0.keys().map(|name| (pattern(name), manifest.role(name).unwrap()));
    let mut by_role: BTreeMap<TensorRole, BTreeSet<String>> = BTreeMap::new();
    for (name, role) in of_layers {
        by_role.entry(role).or_default().insert(name.replace("model.layers.#.", "").replace(".weight", ""));
    }
    let lines = by_role
        .into_iter()
        .map(|(role, names)| format!("{role:?}: {}\n", names.into_iter().collect::<Vec<_>>().join(", ")));
    roles.assert_eq(&lines.collect::<String>());
}

#[test]
fn roles_are_those_of_published_tensor_parallel_layers() {
    check(
        "qwen2",
        expect![[r#"
        Replicated: input_layernorm, model.embed_tokens, model.norm, post_attention_layernorm
        Column: mlp.gate_proj, mlp.up_proj
        Row: mlp.down_proj, self_attn.o_proj
        Heads: self_attn.k_proj, self_attn.k_proj.bias, self_attn.q_proj, self_attn.q_proj.bias, self_attn.v_proj, self_attn.v_proj.bias
    "#]],
    );
    check(
        "gpt_oss",
        expect![[r#"
        Replicated: input_layernorm, mlp.gate, mlp.gate.bias, model.embed_tokens, model.norm, post_attention_layernorm
        Column: lm_head
        Row: self_attn.o_proj, self_attn.o_proj.bias
        Heads: self_attn.k_proj, self_attn.k_proj.bias, self_attn.q_proj, self_attn.q_proj.bias, self_attn.sinks, self_attn.v_proj, self_attn.v_proj.bias
        ExpertColumn: mlp.switch_mlp.gate_proj, mlp.switch_mlp.gate_proj.bias, mlp.switch_mlp.up_proj, mlp.switch_mlp.up_proj.bias
        ExpertRow: mlp.switch_mlp.down_proj, mlp.switch_mlp.down_proj.bias
    "#]],
    );
    check(
        "deepseek_v3",
        expect![[r#"
        Replicated: input_layernorm, mlp.gate, mlp.gate.e_score_correction_bias, model.embed_tokens, model.norm, post_attention_layernorm, self_attn.kv_a_layernorm, self_attn.kv_a_proj_with_mqa, self_attn.q_a_layernorm, self_attn.q_a_proj
        Column: lm_head, mlp.gate_proj, mlp.shared_experts.gate_proj, mlp.shared_experts.up_proj, mlp.up_proj
        Row: mlp.down_proj, mlp.shared_experts.down_proj, self_attn.o_proj
        Heads: self_attn.embed_q, self_attn.q_b_proj, self_attn.unembed_out
        ExpertColumn: mlp.switch_mlp.gate_proj, mlp.switch_mlp.up_proj
        ExpertRow: mlp.switch_mlp.down_proj
    "#]],
    );
    check(
        "qwen3_next",
        expect![[r#"
        Replicated: input_layernorm, linear_attn.norm, mlp.gate, mlp.shared_expert_gate, model.embed_tokens, model.norm, post_attention_layernorm, self_attn.k_norm, self_attn.q_norm
        Column: lm_head, mlp.gate_proj, mlp.shared_expert.gate_proj, mlp.shared_expert.up_proj, mlp.up_proj
        Row: linear_attn.out_proj, mlp.down_proj, mlp.shared_expert.down_proj, self_attn.o_proj
        Heads: linear_attn.A_log, linear_attn.conv1d, linear_attn.dt_bias, linear_attn.in_proj_a, linear_attn.in_proj_b, linear_attn.in_proj_qkv, linear_attn.in_proj_z, self_attn.k_proj, self_attn.q_proj, self_attn.v_proj
        ExpertColumn: mlp.switch_mlp.gate_proj, mlp.switch_mlp.up_proj
        ExpertRow: mlp.switch_mlp.down_proj
    "#]],
    );
    check(
        "nemotron_h",
        expect![[r#"
        Replicated: model.embed_tokens, model.norm, norm
        Column: lm_head, mixer.up_proj
        Row: mixer.down_proj, mixer.o_proj, mixer.out_proj
        Heads: mixer.A_log, mixer.D, mixer.conv1d, mixer.conv1d.bias, mixer.dt_bias, mixer.in_proj, mixer.k_proj, mixer.norm, mixer.q_proj, mixer.v_proj
    "#]],
    );
    check(
        "jamba",
        expect![[r#"
        Replicated: input_layernorm, mamba.b_layernorm, mamba.c_layernorm, mamba.dt_layernorm, mlp.gate, model.embed_tokens, model.norm, pre_ff_layernorm
        Column: mlp.gate_proj, mlp.up_proj
        Row: mamba.out_proj, mamba.x_proj, mlp.down_proj, self_attn.o_proj
        Heads: mamba.A_log, mamba.D, mamba.conv1d, mamba.conv1d.bias, mamba.dt_proj, mamba.dt_proj.bias, mamba.in_proj, self_attn.k_proj, self_attn.q_proj, self_attn.v_proj
        ExpertColumn: mlp.switch_mlp.gate_proj, mlp.switch_mlp.up_proj
        ExpertRow: mlp.switch_mlp.down_proj
    "#]],
    );
    check(
        "rwkv7",
        expect![[r#"
        Replicated: attn.a_lora.lora.#, attn.g_lora.lora.#, attn.v_lora.lora.#, attn.w_lora.lora.#, attn.x_a, attn.x_g, attn.x_k, attn.x_r, attn.x_v, attn.x_w, attn_norm, attn_norm.bias, ffn.x_k, ffn_norm, ffn_norm.bias, model.embed_norm, model.embed_norm.bias, model.embeddings, model.norm, model.norm.bias
        Column: ffn.key, lm_head
        Row: attn.o_proj, ffn.value
        Heads: attn.a_lora.lora.#, attn.a_lora.lora.#.bias, attn.g_lora.lora.#, attn.g_norm, attn.g_norm.bias, attn.k_a, attn.k_k, attn.k_proj, attn.r_k, attn.r_proj, attn.v_lora.lora.#, attn.v_lora.lora.#.bias, attn.v_proj, attn.w_lora.lora.#, attn.w_lora.lora.#.bias
    "#]],
    );
}
