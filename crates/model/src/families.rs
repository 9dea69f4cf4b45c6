//! One file per family, one row per `model_type`.
//!
//! To add a family: write `families/<name>.rs` with one `read` function, add its row to
//! [`FAMILIES`], add its golden fixtures to `tests/fixtures`. If it needs a computation no variant
//! describes, add the variant first, on its own.

mod afm7;
mod afmoe;
mod apertus;
mod baichuan_m1;
mod bailing;
mod bailing_hybrid;
mod bailing_linear;
mod bailing_moe;
mod bailing_v3;
mod bert;
mod bidirectional;
mod bitnet;
mod by_layer;
mod cohere;
mod compressed;
mod dbrx;
mod deberta;
mod deepseek;
mod deepseek_v3;
mod deepseek_v32;
mod deepseek_v41;
mod distilbert;
mod embedding_gemma2;
mod encoder;
mod ernie4_5_moe;
mod exaone;
mod exaone_moe;
mod falcon_h1;
mod gear;
mod gemma;
mod gemma3;
mod gemma3n;
mod gemma4;
mod gemma4_experts;
mod glm;
mod glm4_moe;
mod gpt2;
mod gpt_neox;
mod gpt_oss;
mod gptj;
mod granite;
mod granitemoe;
mod granitemoehybrid;
mod gte;
mod hunyuan;
mod hunyuan_dense;
mod internlm;
mod iquestloopcoder;
mod jamba;
mod jina_v3;
mod kimi;
mod kimi_k3;
mod kimi_linear;
mod klear;
mod laguna;
mod latent;
mod latent_dense;
mod lfm2;
mod lfm2_moe;
mod lille;
mod llama;
mod llama4;
mod llama4_text;
mod llama_like;
mod longcat;
mod mamba;
mod mamba2;
mod mellum;
mod mimo_v2;
mod minicpm;
mod minimax;
mod minimax_m3;
mod mistral3;
mod mixtral;
mod mllama;
mod modernbert;
mod molmo2;
mod mpnet;
mod multimodal;
mod muse_glimmer;
mod muse_spark;
mod names;
mod nanbeige;
mod nanochat;
mod nemotron;
mod nemotron_h;
mod nemotron_nas;
mod nomic_bert;
mod olmo;
mod olmo2;
mod olmo3;
mod olmo_hybrid;
mod olmoe;
mod openelm;
mod parts;
mod phi;
mod phi3;
mod phi3small;
mod phimoe;
mod phixtral;
mod plamo;
mod plamo2;
mod plamo3;
mod prism;
mod qwen;
mod qwen2;
mod qwen2_moe;
mod qwen3;
mod qwen3_5;
mod qwen3_next;
mod qwen_vl;
mod recurrent_gemma;
mod routed;
mod rwkv7;
mod smollm3;
mod spark;
mod stablelm;
mod starcoder2;
mod static_embedding;
mod step3p5;
mod talkie;
mod text_defaults;
mod whisper;
mod without_effect;

pub(crate) use latent::split_latent_at;

use serde_json::{Map, Value};

pub(crate) use text_defaults::with_defaults;

use crate::blueprint::{Blueprint, Head};
use crate::config::{Config, ConfigError};

/// How one `model_type` is read.
pub struct Family {
    /// As in `config.json`.
    pub model_type: &'static str,
    /// Reads every field it needs from a config and describes the network.
    pub read: fn(&Config) -> Result<Blueprint, ConfigError>,
    /// What a list of models says about it.
    pub about: &'static str,
}

/// Every architecture this server runs, in the order the documentation lists them.
pub const FAMILIES: &[Family] = &[
    Family {
        model_type: "llama",
        read: llama::read,
        about: "Llama 1 to 3.3 and the many that copy its shape; all rope scalings, sliding layers",
    },
    Family { model_type: "mistral", read: llama::read_mistral, about: "Mistral 7B, Small, Devstral" },
    Family { model_type: "mixtral", read: mixtral::read, about: "Mixtral 8x7B and 8x22B" },
    Family { model_type: "olmo2", read: olmo2::read, about: "OLMo 2, 1B to 32B" },
    Family { model_type: "qwen2", read: qwen2::read, about: "Qwen2 and Qwen2.5" },
    Family { model_type: "qwen3", read: qwen3::read, about: "Qwen3, dense" },
    Family { model_type: "qwen3_moe", read: qwen3::read, about: "Qwen3 with routed experts" },
    Family {
        model_type: "qwen3_next",
        read: qwen3_next::read,
        about: "Qwen3-Next: gated delta rule and gated attention, with routed experts",
    },
    Family { model_type: "gemma3_text", read: gemma3::read, about: "Gemma 3, text only" },
    Family { model_type: "mamba2", read: mamba2::read, about: "Mamba-2, Codestral Mamba" },
    Family { model_type: "apertus", read: apertus::read, about: "Apertus 8B and 70B" },
    Family { model_type: "cohere", read: cohere::read, about: "Command R and R+" },
    Family { model_type: "cohere2", read: cohere::read_cohere2, about: "Command R7B and A" },
    Family { model_type: "ernie4_5", read: llama_like::read_ernie, about: "Ernie 4.5 0.3B" },
    Family { model_type: "exaone", read: exaone::read, about: "EXAONE 3 and 3.5" },
    Family { model_type: "exaone4", read: exaone::read_exaone4, about: "EXAONE 4" },
    Family { model_type: "gemma", read: gemma::read, about: "Gemma 2B and 7B, CodeGemma" },
    Family { model_type: "gemma2", read: gemma::read_gemma2, about: "Gemma 2" },
    Family { model_type: "glm", read: glm::read, about: "GLM-4 and GLM-Edge" },
    Family { model_type: "glm4", read: glm::read_glm4, about: "GLM-4-0414 and GLM-Z1" },
    Family { model_type: "gpt2", read: gpt2::read, about: "GPT-2" },
    Family { model_type: "gpt_bigcode", read: gpt2::read_bigcode, about: "StarCoder and SantaCoder" },
    Family { model_type: "gpt_neox", read: gpt_neox::read, about: "GPT-NeoX, Pythia, Dolly" },
    Family { model_type: "gptj", read: gptj::read, about: "GPT-J" },
    Family { model_type: "granite", read: granite::read, about: "Granite 3 and 3.3, dense" },
    Family { model_type: "helium", read: llama_like::read_helium, about: "Helium 1" },
    Family { model_type: "hunyuan_v1_dense", read: hunyuan_dense::read, about: "Hunyuan 0.5B to 7B" },
    Family { model_type: "internlm2", read: internlm::read, about: "InternLM 2 and 2.5" },
    Family { model_type: "internlm3", read: internlm::read_internlm3, about: "InternLM 3" },
    Family { model_type: "iquestcoder", read: llama::read, about: "IQuest Coder" },
    Family { model_type: "lille-130m", read: lille::read, about: "Lille 130M" },
    Family { model_type: "llama4_text", read: llama4_text::read, about: "Llama 4, dense text" },
    Family { model_type: "aya_vision", read: multimodal::read, about: "Aya Vision" },
    Family { model_type: "dots_ocr", read: multimodal::read_dots_ocr, about: "dots.ocr" },
    Family { model_type: "glm4v", read: multimodal::read, about: "GLM-4.1V" },
    Family { model_type: "glm4v_moe", read: multimodal::read, about: "GLM-4.5V" },
    Family { model_type: "glm_ocr", read: multimodal::read, about: "GLM-OCR" },
    Family { model_type: "idefics2", read: multimodal::read, about: "Idefics 2" },
    Family { model_type: "idefics3", read: multimodal::read, about: "Idefics 3" },
    Family { model_type: "internvl", read: multimodal::read, about: "InternVL 2.5 and 3" },
    Family {
        model_type: "internvl_chat",
        read: multimodal::read_internvl_chat,
        about: "InternVL in its publisher's layout",
    },
    Family { model_type: "lfm2_vl", read: multimodal::read, about: "LFM2-VL" },
    Family { model_type: "paddleocr_vl", read: multimodal::read_paddleocr_vl, about: "PaddleOCR-VL" },
    Family { model_type: "paligemma", read: multimodal::read_paligemma, about: "PaliGemma" },
    Family { model_type: "smolvlm", read: multimodal::read, about: "SmolVLM" },
    Family { model_type: "llava", read: mistral3::read_with_encoder, about: "LLaVA 1.5" },
    Family { model_type: "minicpmv4_6", read: multimodal::read_minicpmv, about: "MiniCPM-V 4.6" },
    Family { model_type: "mllama", read: mllama::read, about: "Llama 3.2 Vision" },
    Family { model_type: "molmo2", read: molmo2::read, about: "Molmo 2" },
    Family { model_type: "llava_next", read: multimodal::read, about: "LLaVA-NeXT (1.6)" },
    Family { model_type: "llava_onevision", read: multimodal::read, about: "LLaVA-OneVision" },
    Family { model_type: "mimo", read: llama_like::read_mimo, about: "MiMo 7B" },
    Family { model_type: "minicpm", read: minicpm::read, about: "MiniCPM 1 and 2" },
    Family { model_type: "ministral3", read: mistral3::read_ministral3, about: "Ministral 3" },
    Family {
        model_type: "mistral3",
        read: mistral3::read_with_encoder,
        about: "Mistral Small 3.1 and later",
    },
    Family { model_type: "nanochat", read: nanochat::read, about: "nanochat" },
    Family { model_type: "nemotron", read: nemotron::read, about: "Nemotron 4 Mini, Minitron" },
    Family { model_type: "olmo", read: olmo::read, about: "OLMo 1" },
    Family { model_type: "olmo3", read: olmo3::read, about: "OLMo 3" },
    Family { model_type: "openelm", read: openelm::read, about: "OpenELM" },
    Family { model_type: "phi", read: phi::read, about: "Phi-1, 1.5 and 2" },
    Family { model_type: "phi3", read: phi3::read, about: "Phi-3, 3.5 and 4" },
    Family { model_type: "phi3_v", read: phi3::read_vision, about: "Phi-3 and Phi-3.5 Vision" },
    Family { model_type: "pixtral", read: mistral3::read_with_encoder, about: "Pixtral" },
    Family { model_type: "plamo", read: plamo::read, about: "PLaMo 13B" },
    Family { model_type: "qwen", read: qwen::read, about: "Qwen 1" },
    Family { model_type: "qwen2_vl", read: qwen_vl::read_qwen2, about: "Qwen2-VL" },
    Family { model_type: "qwen2_5_vl", read: qwen_vl::read_qwen2, about: "Qwen2.5-VL" },
    Family { model_type: "qwen3_vl", read: qwen_vl::read_qwen3, about: "Qwen3-VL" },
    Family { model_type: "qwen3_vl_moe", read: qwen_vl::read_qwen3, about: "Qwen3-VL with routed experts" },
    Family { model_type: "seed_oss", read: llama_like::read_seed_oss, about: "Seed-OSS 36B" },
    Family { model_type: "smollm3", read: smollm3::read, about: "SmolLM3" },
    Family { model_type: "spark2_5", read: spark::read, about: "Spark 2.5" },
    Family { model_type: "stablelm", read: stablelm::read, about: "StableLM 2 and 3B" },
    Family { model_type: "starcoder2", read: starcoder2::read, about: "StarCoder2" },
    Family { model_type: "telechat3", read: llama_like::read_telechat3, about: "TeleChat3" },
    Family { model_type: "xverse", read: llama::read, about: "XVERSE" },
    Family { model_type: "afmoe", read: afmoe::read, about: "Trinity (AFMoE)" },
    Family { model_type: "bailing_moe", read: bailing_moe::read, about: "Ling and Ring, 1 and 2" },
    Family { model_type: "dbrx", read: dbrx::read, about: "DBRX" },
    Family { model_type: "deepseek", read: deepseek::read, about: "DeepSeek LLM and DeepSeekMoE" },
    Family { model_type: "dots1", read: glm4_moe::read_dots1, about: "dots.llm1" },
    Family { model_type: "ernie4_5_moe", read: ernie4_5_moe::read, about: "Ernie 4.5 with routed experts" },
    Family { model_type: "exaone_moe", read: exaone_moe::read, about: "K-EXAONE" },
    Family { model_type: "glm4_moe", read: glm4_moe::read, about: "GLM-4.5, 4.6 and 4.7" },
    Family { model_type: "gpt_oss", read: gpt_oss::read, about: "gpt-oss 20B and 120B" },
    Family { model_type: "granitemoe", read: granitemoe::read, about: "Granite 3 with routed experts" },
    Family { model_type: "Klear", read: klear::read, about: "Klear 46B" },
    Family { model_type: "laguna", read: laguna::read, about: "Laguna" },
    Family { model_type: "mellum", read: mellum::read, about: "Mellum 2" },
    Family { model_type: "mimo_v2_flash", read: mimo_v2::read, about: "MiMo-V2-Flash" },
    Family { model_type: "minimax", read: minimax::read, about: "MiniMax-M2" },
    Family { model_type: "minimax_m2", read: minimax::read, about: "MiniMax-M2" },
    Family { model_type: "olmoe", read: olmoe::read, about: "OLMoE" },
    Family { model_type: "phi-msft", read: phixtral::read, about: "Phixtral under an older name" },
    Family { model_type: "phimoe", read: phimoe::read, about: "Phi-3.5-MoE" },
    Family { model_type: "phixtral", read: phixtral::read, about: "Phixtral" },
    Family {
        model_type: "qwen2_moe",
        read: qwen2_moe::read,
        about: "Qwen1.5-MoE and Qwen2 with routed experts",
    },
    Family { model_type: "solar_open", read: glm4_moe::read, about: "Solar Open 100B" },
    Family { model_type: "deepseek_v2", read: deepseek_v3::read_v2, about: "DeepSeek-V2, V2.5 and Coder V2" },
    Family { model_type: "deepseek_v3", read: deepseek_v3::read, about: "DeepSeek-V3, V3.1 and R1" },
    Family { model_type: "glm4_moe_lite", read: deepseek_v3::read, about: "GLM-4.7-Flash" },
    Family { model_type: "joyai_llm_flash", read: deepseek_v3::read, about: "JoyAI LLM Flash" },
    Family { model_type: "kimi_k2", read: deepseek_v3::read, about: "Kimi K2" },
    Family {
        model_type: "kimi_k25",
        read: deepseek_v3::read_with_encoder,
        about: "Kimi K2.5, the text model",
    },
    Family { model_type: "kimi_vl", read: deepseek_v3::read_with_encoder, about: "Kimi-VL" },
    Family { model_type: "minicpm3", read: latent_dense::read_minicpm3, about: "MiniCPM 3" },
    Family { model_type: "mistral4", read: deepseek_v3::read_mistral4, about: "Mistral 4" },
    Family { model_type: "youtu_llm", read: latent_dense::read_youtu, about: "Youtu-LLM" },
    Family { model_type: "falcon_mamba", read: mamba::read, about: "Falcon Mamba 7B" },
    Family { model_type: "gemma3", read: gemma3::read_with_encoder, about: "Gemma 3" },
    Family { model_type: "granitemoehybrid", read: granitemoehybrid::read, about: "Granite 4" },
    Family { model_type: "jamba", read: jamba::read, about: "Jamba" },
    Family { model_type: "lfm2", read: lfm2::read, about: "LFM2" },
    Family { model_type: "lfm2-vl", read: lfm2::read_vl, about: "LFM2-VL" },
    Family { model_type: "lfm2_moe", read: lfm2_moe::read, about: "LFM2 with routed experts" },
    Family { model_type: "mamba", read: mamba::read, about: "Mamba" },
    Family { model_type: "nemotron_h", read: nemotron_h::read, about: "Nemotron-H and Nemotron 3" },
    Family { model_type: "qwen3_5", read: qwen3_5::read, about: "Qwen3.5" },
    Family { model_type: "qwen3_5_moe", read: qwen3_5::read, about: "Qwen3.5 with routed experts" },
    Family {
        model_type: "prism_hadamard_qwen35",
        read: prism::read,
        about: "Qwen3.5 in 2 bits with rotated inputs, the text model",
    },
    Family { model_type: "step3p5", read: step3p5::read, about: "Step 3.5 Flash" },
    Family { model_type: "falcon_h1", read: falcon_h1::read, about: "Falcon-H1" },
    Family { model_type: "muse_glimmer", read: muse_glimmer::read, about: "Muse Glimmer" },
    Family { model_type: "muse_spark", read: muse_spark::read, about: "Muse Spark, the text model" },
    Family { model_type: "nemotron-nas", read: nemotron_nas::read, about: "Llama Nemotron Super and Ultra" },
    Family { model_type: "plamo3", read: plamo3::read, about: "PLaMo 3" },
    Family { model_type: "olmo_hybrid", read: olmo_hybrid::read, about: "OLMo Hybrid" },
    Family { model_type: "kimi_linear", read: kimi_linear::read, about: "Kimi Linear 48B" },
    Family {
        model_type: "bailing_moe_linear",
        read: bailing_linear::read,
        about: "Ring-linear and Ling-linear 2",
    },
    Family { model_type: "bailing_hybrid", read: bailing_hybrid::read, about: "Ling and Ring 2.5" },
    Family { model_type: "bailing_moe_v3", read: bailing_v3::read, about: "Ling 3" },
    Family { model_type: "recurrent_gemma", read: recurrent_gemma::read, about: "RecurrentGemma (Griffin)" },
    Family { model_type: "gear", read: gear::read, about: "Gear" },
    Family { model_type: "rwkv7", read: rwkv7::read, about: "RWKV-7" },
    Family { model_type: "plamo2", read: plamo2::read, about: "PLaMo 2" },
    Family { model_type: "baichuan_m1", read: baichuan_m1::read, about: "Baichuan M1" },
    Family {
        model_type: "nanbeige",
        read: nanbeige::read,
        about: "Nanbeige, whose layers compute several times",
    },
    Family { model_type: "llama4", read: llama4::read, about: "Llama 4 Scout and Maverick" },
    Family { model_type: "hunyuan", read: hunyuan::read, about: "Hunyuan Large" },
    Family { model_type: "afm7", read: afm7::read, about: "AFM 7" },
    Family { model_type: "phi3small", read: phi3small::read, about: "Phi-3 small" },
    Family { model_type: "talkie", read: talkie::read, about: "Talkie" },
    Family { model_type: "bitnet", read: bitnet::read, about: "BitNet b1.58" },
    Family {
        model_type: "iquestloopcoder",
        read: iquestloopcoder::read,
        about: "IQuest LoopCoder, whose layers compute twice",
    },
    Family { model_type: "longcat_flash", read: longcat::read, about: "LongCat Flash" },
    Family { model_type: "longcat_flash_ngram", read: longcat::read_ngram, about: "LongCat Flash Lite" },
    Family {
        model_type: "deepseek_v32",
        read: deepseek_v32::read,
        about: "DeepSeek-V3.2, with sparse attention",
    },
    Family { model_type: "deepseek_v41", read: deepseek_v41::read, about: "DeepSeek-V4.1, the text model" },
    Family { model_type: "deepseek_v41_text", read: deepseek_v41::read, about: "DeepSeek-V4.1, text only" },
    Family { model_type: "glm_moe_dsa", read: deepseek_v32::read_glm, about: "GLM-5" },
    Family { model_type: "minimax_m3_vl", read: minimax_m3::read, about: "MiniMax M3, the text model" },
    Family { model_type: "gemma4_text", read: gemma4::read, about: "Gemma 4, text only" },
    Family { model_type: "gemma4", read: gemma4::read_with_encoder, about: "Gemma 4" },
    Family {
        model_type: "gemma4_unified",
        read: gemma4::read_with_encoder,
        about: "Gemma 4 without encoders, the text model",
    },
    Family { model_type: "kimi_k3", read: kimi_k3::read, about: "Kimi K3, the text model" },
    Family { model_type: "whisper", read: whisper::read, about: "Whisper, for transcriptions" },
    Family { model_type: "gemma3n", read: gemma3n::read, about: "Gemma 3n" },
    Family { model_type: "bert", read: bert::read, about: "BERT: MiniLM, E5, BGE, GTE, mxbai, Arctic Embed" },
    Family { model_type: "roberta", read: bert::read_roberta, about: "RoBERTa, Granite Embedding" },
    Family {
        model_type: "xlm-roberta",
        read: bert::read_roberta,
        about: "XLM-RoBERTa: multilingual E5, BGE-M3, BGE rerankers",
    },
    Family { model_type: "distilbert", read: distilbert::read, about: "DistilBERT" },
    Family { model_type: "mpnet", read: mpnet::read, about: "MPNet" },
    Family { model_type: "deberta-v2", read: deberta::read, about: "DeBERTa 2 and 3: mxbai rerankers" },
    Family { model_type: "nomic_bert", read: nomic_bert::read, about: "Nomic Embed" },
    Family { model_type: "new", read: gte::read, about: "GTE multilingual" },
    Family { model_type: "gte", read: gte::read, about: "Snowflake Arctic Embed 2, M" },
    Family { model_type: "jina_embeddings_v3", read: jina_v3::read, about: "Jina Embeddings 3" },
    Family {
        model_type: "modernbert",
        read: modernbert::read,
        about: "ModernBERT: GTE, Granite, Nomic, rerankers",
    },
    Family {
        model_type: "embedding_gemma2",
        read: embedding_gemma2::read,
        about: "EmbeddingGemma 2, the text model",
    },
    Family { model_type: "model2vec", read: static_embedding::read, about: "Model2Vec: Potion" },
    Family {
        model_type: "static_embedding",
        read: static_embedding::read,
        about: "static embeddings of sentence-transformers",
    },
    Family { model_type: "eurobert", read: bidirectional::read, about: "EuroBERT" },
    Family {
        model_type: "llama_bidirec",
        read: bidirectional::read,
        about: "Llama in both directions: Nemotron Embed",
    },
];

/// The blueprint of a checkpoint's `config.json`. Fails if a field is not read, or if sizes
/// contradict each other.
pub fn read(fields: &Map<String, Value>) -> Result<Blueprint, ConfigError> {
    let cfg = Config::new(fields);
    let model_type: String = cfg.req("model_type")?;
    let family = FAMILIES.iter().find(|family| family.model_type == model_type);
    let family = family.ok_or_else(|| ConfigError::Unsupported {
        field: "model_type".to_owned(),
        found: model_type.clone(),
        supported: "those that `omnibus models` lists".to_owned(),
    })?;
    for field in without_effect::fields(&model_type) {
        cfg.pass_by(&[field, &format!("text_config.{field}")]);
    }
    let mut blueprint = (family.read)(&cfg)?;
    if !cfg.or("is_causal", true)? {
        blueprint = encoder::of_decoder(blueprint)?;
    } else if !has_head(&cfg)? {
        blueprint.head = Head::Absent;
    }
    cfg.finish()?;
    blueprint.validate()?;
    Ok(blueprint)
}

/// Whether a checkpoint's class gives logits of tokens. Others end with hidden states, or with a head of their own.
fn has_head(cfg: &Config) -> Result<bool, ConfigError> {
    let classes: Vec<String> = cfg.or("architectures", Vec::new())?;
    let is_headless = |class: &String| {
        let has_head = ["LMHeadModel", "ChatModel"].iter().any(|ending| class.ends_with(ending));
        let is_base = class.ends_with("Model") && !has_head;
        is_base || class.ends_with("Classification")
    };
    Ok(!classes.iter().any(is_headless))
}
