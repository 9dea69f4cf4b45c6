//! Tensors, config and what is said of them.

use serde_json::json;

use super::writer::{F32, base, llama};

/// Row `r` of a matrix of 64 columns holds `r`.
fn rows(count: u64, columns: u64) -> Vec<u8> {
    (0..count).flat_map(|row| (0..columns).flat_map(move |_| (row as f32).to_le_bytes())).collect()
}

fn first_column(bytes: &[u8], columns: usize) -> Vec<f32> {
    bytes.chunks_exact(columns * 4).map(|row| f32::from_le_bytes(row[..4].try_into().unwrap())).collect()
}

#[test]
fn rows_of_llamas_queries_and_keys_are_put_back() {
    let file = llama(F32, |_, count| rows(count / 64, 64)).write();
    let (folder, written) = file.convert();
    assert!(written.changes.is_empty(), "{written:?}");
    let (dtype, shape, queries) = folder.tensor("model.layers.0.self_attn.q_proj.weight");
    assert_eq!((dtype.as_str(), shape), ("F32", vec![64, 64]));
    // Even rows of a head first: they are the first halves of pairs.
    let head =
        |first: usize| (0..2).flat_map(move |half| (0..16).map(move |pair| (first + 2 * pair + half) as f32));
    let expected: Vec<f32> = head(0).chain(head(32)).collect();
    assert_eq!(first_column(&queries, 64), expected);
    let (_, _, values) = folder.tensor("model.layers.0.self_attn.v_proj.weight");
    assert_eq!(first_column(&values, 64), (0..32).map(|row| row as f32).collect::<Vec<_>>());
}

#[test]
fn other_architectures_keep_their_rows() {
    let file = base("qwen2").floats_tensor("token_embd.weight", &[8, 64], &[0.5; 512]);
    let file = file.tensor("blk.0.attn_q.weight", &[64, 64], F32, rows(64, 64)).write();
    let (_, _, queries) = file.convert().0.tensor("model.layers.0.self_attn.q_proj.weight");
    assert_eq!(first_column(&queries, 64), (0..64).map(|row| row as f32).collect::<Vec<_>>());
}

#[test]
fn gemmas_norms_lose_the_one() {
    let file = base("gemma").floats_tensor("token_embd.weight", &[8, 64], &[0.5; 512]).write();
    let (dtype, _, norm) = file.convert().0.tensor("model.layers.0.input_layernorm.weight");
    assert_eq!(dtype, "F32");
    let number = |at: usize| f32::from_le_bytes(norm[4 * at..4 * at + 4].try_into().unwrap());
    assert_eq!((number(0), number(1), number(32)), (0.0, 1.0 / 64.0, 0.5));
}

#[test]
fn a_folder_has_config_template_and_ends() {
    let file = llama(F32, |_, count| rows(count / 64, 64)).write();
    let (folder, _) = file.convert();
    let config = folder.json("config.json");
    let fields = [
        "model_type",
        "hidden_size",
        "head_dim",
        "rms_norm_eps",
        "rope_theta",
        "tie_word_embeddings",
        "vocab_size",
    ];
    let found: Vec<_> = fields.iter().map(|field| config[field].clone()).collect();
    assert_eq!(json!(found), json!(["llama", 64, 32, 1e-5, 100_000.0, true, 8]));
    assert_eq!(folder.json("generation_config.json"), json!({ "eos_token_id": [0, 1] }));
    assert_eq!(folder.json("tokenizer_config.json")["chat_template"], "{{ messages[0].content }}");
}

#[test]
fn layers_that_predict_further_tokens_are_left_out() {
    let file = llama(F32, |_, count| rows(count / 64, 64))
        .number("llama.nextn_predict_layers", 1)
        .floats_tensor("blk.1.attn_norm.weight", &[64], &[1.0; 64])
        .floats_tensor("blk.1.nextn.eh_proj.weight", &[64, 128], &[1.0; 64 * 128]);
    let error = file.clone().write().error();
    assert!(error.contains("`llama.nextn_predict_layers` is 1 of 1 layers"), "{error}");
    let file = file.with_number("llama.block_count", 2).write();
    let (folder, written) = file.convert();
    assert_eq!(written.changes, ["2 tensors of layers that predict further tokens left out"]);
    assert_eq!(folder.json("config.json")["num_hidden_layers"], 1);
}
