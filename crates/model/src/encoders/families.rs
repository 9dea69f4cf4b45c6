//! One file per encoder family, one row per `model_type` in a table of picture encoders or in one of audio encoders.

mod aya_vision;
mod dots_ocr;
mod gemma3;
mod gemma3n;
mod gemma3n_audio;
mod gemma4;
mod gemma4_audio;
mod glm4v;
mod idefics;
mod idefics2;
mod internvl;
mod kimi_vl;
mod lfm2_vl;
mod llama4;
mod llava;
mod llava_next;
mod minicpmv;
mod mllama;
mod mobilenet_v5;
mod molmo2;
mod names;
mod paddleocr_vl;
mod paligemma;
mod phi3_v;
mod pixtral;
mod qwen2_5_vl;
mod qwen2_vl;
mod qwen3_vl;
mod siglip;
mod whisper;

use super::{AudioFamily, EncoderBlueprint, EncoderFamily};
use crate::config::{Config, ConfigError};

/// A family whose encoder has the section `vision_config`.
const fn family(
    model_type: &'static str,
    read: fn(&Config) -> Result<EncoderBlueprint, ConfigError>,
) -> EncoderFamily {
    EncoderFamily { model_type, sections: &["vision_config"], read }
}

/// Every family with a picture encoder.
pub const ENCODERS: &[EncoderFamily] = &[
    family("aya_vision", aya_vision::read),
    family("dots_ocr", dots_ocr::read),
    family("gemma3", gemma3::read),
    family("gemma3n", gemma3n::read),
    family("gemma4", gemma4::read),
    family("glm4v", glm4v::read),
    family("glm4v_moe", glm4v::read),
    family("glm_ocr", glm4v::read_ocr),
    EncoderFamily {
        model_type: "idefics2",
        sections: &["vision_config", "perceiver_config"],
        read: idefics2::read,
    },
    family("idefics3", idefics::read),
    family("internvl", internvl::read),
    family("internvl_chat", internvl::read_chat),
    family("kimi_vl", kimi_vl::read),
    family("lfm2-vl", lfm2_vl::read),
    family("lfm2_vl", lfm2_vl::read),
    family("llama4", llama4::read),
    family("llava", llava::read),
    family("llava_next", llava_next::read),
    family("llava_onevision", llava_next::read_one_vision),
    family("minicpmv4_6", minicpmv::read),
    family("mistral3", pixtral::read_mistral3),
    family("mllama", mllama::read),
    EncoderFamily { model_type: "molmo2", sections: &["vit_config", "adapter_config"], read: molmo2::read },
    family("paddleocr_vl", paddleocr_vl::read),
    family("paligemma", paligemma::read),
    EncoderFamily { model_type: "phi3_v", sections: &["img_processor", "embd_layer"], read: phi3_v::read },
    family("pixtral", pixtral::read),
    family("qwen2_5_vl", qwen2_5_vl::read),
    family("qwen2_vl", qwen2_vl::read),
    family("qwen3_5", qwen3_vl::read),
    family("qwen3_5_moe", qwen3_vl::read),
    family("qwen3_vl", qwen3_vl::read),
    family("qwen3_vl_moe", qwen3_vl::read),
    family("smolvlm", idefics::read),
];

/// Every family with an audio encoder.
pub const AUDIO_ENCODERS: &[AudioFamily] = &[
    AudioFamily { model_type: "gemma3n", section: Some("audio_config"), read: gemma3n_audio::read },
    AudioFamily { model_type: "gemma4", section: Some("audio_config"), read: gemma4_audio::read },
    AudioFamily { model_type: "whisper", section: None, read: whisper::read },
];
