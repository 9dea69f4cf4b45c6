//! One file per encoder family, one row per `model_type` in a table of picture encoders or in one of audio encoders.

mod aya_vision;
mod dots_ocr;
mod gemma3;
mod gemma4;
mod gemma4_audio;
mod glm4v;
mod idefics;
mod internvl;
mod kimi_vl;
mod lfm2_vl;
mod llama4;
mod llava;
mod names;
mod paddleocr_vl;
mod paligemma;
mod pixtral;
mod qwen2_5_vl;
mod qwen2_vl;
mod qwen3_vl;
mod siglip;

use super::{AudioFamily, EncoderFamily};

/// Every family with a picture encoder.
pub const ENCODERS: &[EncoderFamily] = &[
    EncoderFamily { model_type: "aya_vision", read: aya_vision::read },
    EncoderFamily { model_type: "dots_ocr", read: dots_ocr::read },
    EncoderFamily { model_type: "gemma3", read: gemma3::read },
    EncoderFamily { model_type: "gemma4", read: gemma4::read },
    EncoderFamily { model_type: "glm4v", read: glm4v::read },
    EncoderFamily { model_type: "glm4v_moe", read: glm4v::read },
    EncoderFamily { model_type: "glm_ocr", read: glm4v::read_ocr },
    EncoderFamily { model_type: "idefics3", read: idefics::read },
    EncoderFamily { model_type: "internvl", read: internvl::read },
    EncoderFamily { model_type: "internvl_chat", read: internvl::read_chat },
    EncoderFamily { model_type: "kimi_vl", read: kimi_vl::read },
    EncoderFamily { model_type: "lfm2-vl", read: lfm2_vl::read },
    EncoderFamily { model_type: "lfm2_vl", read: lfm2_vl::read },
    EncoderFamily { model_type: "llama4", read: llama4::read },
    EncoderFamily { model_type: "llava", read: llava::read },
    EncoderFamily { model_type: "mistral3", read: pixtral::read_mistral3 },
    EncoderFamily { model_type: "paddleocr_vl", read: paddleocr_vl::read },
    EncoderFamily { model_type: "paligemma", read: paligemma::read },
    EncoderFamily { model_type: "pixtral", read: pixtral::read },
    EncoderFamily { model_type: "qwen2_5_vl", read: qwen2_5_vl::read },
    EncoderFamily { model_type: "qwen2_vl", read: qwen2_vl::read },
    EncoderFamily { model_type: "qwen3_5", read: qwen3_vl::read },
    EncoderFamily { model_type: "qwen3_5_moe", read: qwen3_vl::read },
    EncoderFamily { model_type: "qwen3_vl", read: qwen3_vl::read },
    EncoderFamily { model_type: "qwen3_vl_moe", read: qwen3_vl::read },
    EncoderFamily { model_type: "smolvlm", read: idefics::read },
];

/// Every family with an audio encoder.
pub const AUDIO_ENCODERS: &[AudioFamily] =
    &[AudioFamily { model_type: "gemma4", section: Some("audio_config"), read: gemma4_audio::read }];
