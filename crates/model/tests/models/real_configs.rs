//! Published configs are read without a field left over, or refused for a reason that is listed here.
//!
//! The configs lie beside the repository, in `shared/real-configs`; a few are samples of ours.

use omnibus_model::{Quantization, encoders, families, weights};
use omnibus_testing::reference::{CONFIGS, Found, found};
use serde_json::{Map, Value};

/// Notes in the index that mark files which are not what a publisher shipped.
const MARKS: &[&str] = &["TRANSCRIBED", "ABRIDGED", "stub", "companion"];

/// What we refuse, by file and by a part of the message, and why that is right.
const REFUSED: &[(&str, &str)] = &[
    // Of the sample: a field that is made up.
    ("sample_unknown_field.json", "attention_windows"),
    // A reward model, which ends in a number.
    ("internlm2_reward.json", "reward_token_id"),
    // LLaVA before it had sections, and a file for another program.
    ("llava.json", "`text_config` is missing"),
    ("llava_v1.5_7b.json", "`text_config` is missing"),
    ("mindie-plus-model_base_config.json", "`num_experts` is missing"),
    // Experts under a type that has none, in a research repository's history.
    ("hf_llama_moe.json", "num_local_experts"),
    // A test file without the size of its MLP.
    ("afmv7_dummy_model.json", "`intermediate_size` is missing"),
    // Test files without the sizes of what is recurrent, or with a convolution of one position.
    ("qwen3_5_27b.json", "`text_config.linear_num_key_heads` is missing"),
    ("qwen3_5_35b_a3b.json", "`text_config.linear_num_key_heads` is missing"),
    ("jamba.json", "`conv_kernel`"),
    // Cut to four layers, of which it still names 62.
    ("config_gemma3_4layers.json", "`layer_types` (62)"),
    // Fields that another program gives Gemma 3.
    ("gemma3_1b_it.json", "use_res_clamp"),
    // Quantized while it is loaded, by a library of its own.
    ("Meta-Llama3.1-8B-Instruct-assessment.json", "bitsandbytes"),
    // Fields of latent attention under a type that has none.
    ("test_telechat3.json", "q_lora_rank"),
    // Gates of heads and factors of rotation that mlx-lm has not, either.
    ("poolside--Laguna-S-2.1-FP8.json", "gating"),
    ("poolside--Laguna-XS.2-FP8.json", "partial_rotary_factor"),
    // Of 78 layers it says for 74 whether they have an indexer.
    ("nvidia--GLM-5.3-NVFP4.json", "`indexer_types` is a list of 74"),
    // Fields of another program.
    ("resources_multi_modal.json", "vision_num_cross_attention_layers"),
    // An encoder that sees both ways; a decoder would compute other numbers.
];

/// Configs whose encoder is refused, and the field.
const ENCODERS_REFUSED: &[(&str, &str)] = &[
    // A test file whose heads are wider than its stream.
    ("config_tiny_pixtral.json", "`head_dim` (88)"),
];

#[test]
fn published_configs_are_read_whole() {
    for found in found(CONFIGS) {
        check(&found);
    }
}

fn check(found: &Found) {
    let directory = found.folder();
    let index = std::fs::read_to_string(directory.join("INDEX.tsv")).unwrap();
    let (mut read, mut refused, mut problems) = (0, 0, Vec::new());
    for line in index.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let (model_type, name, note) = (columns[0], columns[1], columns.get(4).copied().unwrap_or(""));
        let ours = families::FAMILIES.iter().any(|family| family.model_type == model_type);
        if !ours || MARKS.iter().any(|mark| note.contains(mark)) {
            continue;
        }
        let path = directory.join(model_type).join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        let config: Map<String, Value> = serde_json::from_str(&weights::as_json(&text)).unwrap();
        let result = Quantization::read(&config).and_then(|_| families::read(&config));
        if let (true, Err(error)) = (result.is_ok(), encoders::read(&config)) {
            let known =
                ENCODERS_REFUSED.iter().any(|(file, part)| *file == name && error.to_string().contains(part));
            let problem = format!("{model_type}/{name}, pictures: {error}");
            problems.extend((!known).then_some(problem));
        }
        let expected = REFUSED.iter().find(|(file, _)| *file == name).map(|(_, part)| *part);
        match (result, expected) {
            (Ok(_), None) => read += 1,
            (Ok(_), Some(_)) => problems.push(format!("{name}: read, though listed as refused")),
            (Err(error), Some(part)) if error.to_string().contains(part) => refused += 1,
            (Err(error), _) => problems.push(format!("{model_type}/{name}: {error}")),
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(read > 0 && refused > 0);
}

/// As published with Gemma 3n E2B; the tower has the tensors of timm's.
#[test]
fn the_published_gemma3n_is_read_whole() {
    let kinds: Vec<&str> =
        (1..=30).map(|layer| if layer % 5 == 0 { "full_attention" } else { "sliding_attention" }).collect();
    let sparsity: Vec<f32> = (0..30).map(|layer| if layer < 10 { 0.95 } else { 0.0 }).collect();
    let text = serde_json::json!({
        "model_type": "gemma3n_text", "activation_sparsity_pattern": sparsity, "altup_active_idx": 0,
        "altup_coef_clip": 120.0, "altup_correct_scale": true, "altup_num_inputs": 4,
        "attention_bias": false, "attention_dropout": 0.0, "final_logit_softcapping": 30.0,
        "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2048,
        "hidden_size_per_layer_input": 256, "initializer_range": 0.02, "intermediate_size": vec![8192; 30],
        "laurel_rank": 64, "layer_types": kinds, "max_position_embeddings": 32_768,
        "num_attention_heads": 8, "num_hidden_layers": 30, "num_key_value_heads": 2,
        "num_kv_shared_layers": 10, "rms_norm_eps": 1e-6, "rope_local_base_freq": 10_000.0,
        "rope_scaling": null, "rope_theta": 1_000_000.0, "sliding_window": 512, "use_cache": true,
        "vocab_size": 262_400, "vocab_size_per_layer_input": 262_144,
    });
    let config = serde_json::json!({
        "architectures": ["Gemma3nForConditionalGeneration"], "model_type": "gemma3n",
        "audio_config": {
            "model_type": "gemma3n_audio", "hidden_size": 1536, "vocab_offset": 262_272, "vocab_size": 128,
            "conf_attention_chunk_size": 12, "conf_attention_context_left": 13,
            "conf_attention_context_right": 0, "conf_attention_logit_cap": 50.0, "conf_conv_kernel_size": 5,
            "conf_num_attention_heads": 8, "conf_num_hidden_layers": 12, "conf_positional_bias_size": 256,
            "conf_reduction_factor": 4, "conf_residual_weight": 0.5, "gradient_clipping": 1e10,
            "input_feat_size": 128, "rms_norm_eps": 1e-6, "sscp_conv_channel_size": [128, 32],
            "sscp_conv_eps": 1e-3, "sscp_conv_group_norm_eps": 1e-3, "sscp_conv_kernel_size": [[3, 3], [3, 3]],
            "sscp_conv_stride_size": [[2, 2], [2, 2]],
        },
        "audio_soft_tokens_per_image": 188, "audio_token_id": 262_273, "boa_token_id": 256_000,
        "boi_token_id": 255_999, "eoa_token_id": 262_272, "eoi_token_id": 262_144, "eos_token_id": [1, 106],
        "image_token_id": 262_145, "initializer_range": 0.02, "vision_soft_tokens_per_image": 256,
        "text_config": text,
        "vision_config": {
            "architecture": "mobilenetv5_300m_enc", "do_pooling": true, "hidden_size": 2048,
            "initializer_range": 0.02, "label_names": ["LABEL_0", "LABEL_1"], "model_args": null,
            "model_type": "gemma3n_vision", "num_classes": 2, "rms_norm_eps": 1e-6,
            "torch_dtype": "bfloat16", "vocab_offset": 262_144, "vocab_size": 128,
        },
    });
    let config = config.as_object().unwrap();
    let network = families::read(config).unwrap();
    assert_eq!(network.manifest().0["model.vision_vocabulary.embedding.weight"], [128, 2048]);
    let encoder = encoders::read(config).unwrap().unwrap();
    assert_eq!((encoder.patches.size, encoder.features), (16, 2048));
    let tensors = encoder.manifest().0;
    let of_tower = tensors.iter().filter(|(name, _)| !name.starts_with("encoder.connector."));
    let sizes: Vec<usize> = of_tower.map(|(_, shape)| shape.iter().product()).collect();
    assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (548, 294_126_912));
    assert_eq!(tensors["encoder.blocks.2.9.attn.key.down_conv.weight"], [640, 3, 3, 1]);
    assert_eq!(tensors["encoder.blocks.3.38.pw_exp.conv.weight"], [2560, 1280]);
    let audio = encoders::audio::read(config).unwrap().unwrap();
    let tensors = audio.manifest().0;
    let of_tower = tensors.iter().filter(|(name, _)| !name.starts_with("encoder.connector."));
    let sizes: Vec<usize> = of_tower.map(|(_, shape)| shape.iter().product()).collect();
    assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (269, 681_348_640));
    assert_eq!(tensors["encoder.connector.embedding.weight"], [128, 1536]);
}

/// As published with LLaVA-NeXT: sizes that are those of Hugging Face's own class are left out.
#[test]
fn a_nested_text_config_has_the_sizes_of_its_class() {
    let config = serde_json::json!({
        "model_type": "llava_next", "image_grid_pinpoints": [[336, 672]], "image_token_index": 32000,
        "text_config": {
            "model_type": "mistral", "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
            "rope_theta": 1e6, "vocab_size": 32064,
        },
        "vision_config": {
            "model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336, "patch_size": 14,
            "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24,
        },
    });
    let config = config.as_object().unwrap();
    let text = families::read(config).unwrap();
    assert_eq!((text.hidden, text.layers.len(), text.vocab, text.context), (4096, 32, 32064, Some(32768)));
    assert_eq!(text.manifest().0["model.layers.0.self_attn.k_proj.weight"], [1024, 4096]);
    assert_eq!(encoders::read(config).unwrap().unwrap().features, 4096);
}

/// As published with LLaVA-Interleave: LLaVA's class around Qwen2 and a SigLIP tower.
#[test]
fn llava_has_qwens_as_text_models() {
    for (model_type, own) in [("qwen2", "q_proj.bias"), ("qwen3", "q_norm.weight")] {
        let config = serde_json::json!({
            "model_type": "llava", "image_token_index": 151646, "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full", "projector_hidden_act": "gelu",
            "text_config": {
                "model_type": model_type, "hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16,
                "num_hidden_layers": 24, "num_key_value_heads": 16, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
                "vocab_size": 152000, "max_position_embeddings": 32768, "head_dim": 64,
            },
            "vision_config": {
                "model_type": "siglip_vision_model", "hidden_size": 1152, "image_size": 384, "patch_size": 14,
                "intermediate_size": 4304, "num_attention_heads": 16, "num_hidden_layers": 26,
                "vision_use_head": false,
            },
        });
        let config = config.as_object().unwrap();
        let text = families::read(config).unwrap();
        assert_eq!((text.hidden, text.layers.len(), text.vocab), (1024, 24, 152_000));
        assert!(text.manifest().0.contains_key(&format!("model.layers.0.self_attn.{own}")), "{model_type}");
        assert_eq!(encoders::read(config).unwrap().unwrap().features, 1024);
    }
}
