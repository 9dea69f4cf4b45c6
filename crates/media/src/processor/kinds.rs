//! Every processor kind: one table.

use super::gemma4::{Form, Gemma4};
use super::got_ocr2::GotOcr2;
use super::idefics3::Idefics3;
use super::levels::Arithmetic;
use super::llama4::{GlobalView, Llama4};
use super::llava_next::LlavaNext;
use super::llava_video::LlavaVideo;
use super::paddleocr_vl::{MLX_PADDLEOCR, PADDLEOCR, PaddleOcrVl};
use super::pixtral::Pixtral;
use super::qwen_video::{QwenVideo, Stamps};
use super::qwen_vl::{DOTS_OCR, GLM4V, MLX_QWEN2, MLX_QWEN3, QWEN2, QwenVl};
use super::whole_image::WholeImage;
use super::{ConfigFiles, Recipe, Settings, VideoRecipe};
use super::{
    deepseek_vl, gemma3, gemma3n, idefics2, kimi_vl, lfm2_vl, minicpmv, mllama, molmo2, ovis2, phi3_hd,
    phi3_v, siglip2,
};
use crate::error::Error;

/// A processor kind.
pub struct Kind {
    /// The name of the processor whose results it has, to the last bit. `mlx.` stands for mlx-vlm's own.
    pub name: &'static str,
    /// Which models use it. A kind without models is another reference for a kind above.
    pub model_types: &'static [&'static str],
    pub(super) read: fn(&ConfigFiles) -> Result<Recipe, Error>,
    pub(super) video: fn(&ConfigFiles) -> Result<Option<VideoRecipe>, Error>,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kind").field("name", &self.name).field("model_types", &self.model_types).finish()
    }
}

/// As the encoder below LLaVA's name takes pictures.
fn llava(files: &ConfigFiles) -> Result<Recipe, Error> {
    match Settings::encoder(files).text("model_type")? {
        Some("pixtral") => Pixtral::read(files, Arithmetic::Float32).map(Recipe::Pixtral),
        _ => WholeImage::llava(files).map(Recipe::WholeImage),
    }
}

const NO_VIDEO: fn(&ConfigFiles) -> Result<Option<VideoRecipe>, Error> = |_| Ok(None);

/// Every processor kind. Where mlx-vlm has a processor of its own, models use that.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "mlx.qwen3_vl",
        model_types: &["qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"],
        read: |files| QwenVl::read(files, &MLX_QWEN3).map(Recipe::QwenVl),
        video: |files| QwenVideo::read(files, &MLX_QWEN3, Stamps::Seconds).map(VideoRecipe::Qwen).map(Some),
    },
    Kind {
        name: "mlx.qwen2_vl",
        model_types: &["qwen2_vl", "qwen2_5_vl"],
        read: |files| QwenVl::read(files, &MLX_QWEN2).map(Recipe::QwenVl),
        video: |files| QwenVideo::read(files, &MLX_QWEN2, Stamps::None).map(VideoRecipe::Qwen).map(Some),
    },
    Kind {
        name: "mlx.gemma4",
        model_types: &["gemma4"],
        read: |files| Gemma4::read(files, Form::Planes).map(Recipe::Gemma4),
        video: NO_VIDEO,
    },
    Kind {
        name: "gemma3",
        model_types: &["gemma3"],
        read: |files| gemma3::Gemma3::read(files).map(Recipe::Gemma3),
        video: NO_VIDEO,
    },
    Kind {
        name: "gemma3n",
        model_types: &["gemma3n"],
        read: |files| gemma3n::Gemma3n::read(files).map(Recipe::Gemma3n),
        video: NO_VIDEO,
    },
    Kind {
        name: "mlx.pixtral",
        model_types: &["mistral3", "pixtral"],
        read: |files| Pixtral::read(files, Arithmetic::Float32).map(Recipe::Pixtral),
        video: NO_VIDEO,
    },
    Kind {
        name: "idefics3",
        model_types: &["idefics3", "smolvlm"],
        read: |files| Idefics3::read(files).map(Recipe::Idefics3),
        video: NO_VIDEO,
    },
    Kind {
        name: "idefics2",
        model_types: &["idefics2"],
        read: |files| idefics2::Idefics2::read(files).map(Recipe::Idefics2),
        video: NO_VIDEO,
    },
    Kind {
        name: "internvl",
        model_types: &["internvl"],
        read: |files| GotOcr2::internvl(files).map(Recipe::GotOcr2),
        video: NO_VIDEO,
    },
    Kind {
        name: "mlx.internvl",
        model_types: &["internvl_chat"],
        read: |files| GotOcr2::internvl_chat(files).map(Recipe::GotOcr2),
        video: NO_VIDEO,
    },
    Kind {
        name: "aya_vision",
        model_types: &["aya_vision"],
        read: |files| GotOcr2::aya_vision(files).map(Recipe::GotOcr2),
        video: NO_VIDEO,
    },
    Kind {
        name: "got_ocr2",
        model_types: &["got_ocr2"],
        read: |files| GotOcr2::plain(files).map(Recipe::GotOcr2),
        video: NO_VIDEO,
    },
    Kind {
        name: "lfm2_vl",
        model_types: &["lfm2_vl"],
        read: |files| lfm2_vl::Lfm2Vl::read(files).map(Recipe::Lfm2Vl),
        video: NO_VIDEO,
    },
    Kind {
        name: "glm4v",
        model_types: &["glm4v", "glm4v_moe", "glm_ocr"],
        read: |files| QwenVl::read(files, &GLM4V).map(Recipe::QwenVl),
        video: NO_VIDEO,
    },
    Kind {
        name: "dots_ocr",
        model_types: &["dots_ocr"],
        read: |files| QwenVl::read(files, &DOTS_OCR).map(Recipe::QwenVl),
        video: NO_VIDEO,
    },
    Kind {
        name: "mlx.paddleocr_vl",
        model_types: &["paddleocr_vl"],
        read: |files| PaddleOcrVl::read(files, &MLX_PADDLEOCR).map(Recipe::PaddleOcrVl),
        video: NO_VIDEO,
    },
    Kind {
        name: "mlx.kimi_vl",
        model_types: &["kimi_vl"],
        read: |files| kimi_vl::KimiVl::read(files).map(Recipe::KimiVl),
        video: NO_VIDEO,
    },
    Kind {
        name: "llama4",
        model_types: &["llama4"],
        read: |files| Llama4::read(files, GlobalView::Added).map(Recipe::Llama4),
        video: NO_VIDEO,
    },
    Kind { name: "clip", model_types: &["llava"], read: llava, video: NO_VIDEO },
    Kind {
        name: "siglip",
        model_types: &["paligemma"],
        read: |files| WholeImage::siglip(files).map(Recipe::WholeImage),
        video: NO_VIDEO,
    },
    Kind {
        name: "llava_next",
        model_types: &["llava_next"],
        read: |files| LlavaNext::next(files).map(Recipe::LlavaNext),
        video: NO_VIDEO,
    },
    Kind {
        name: "llava_onevision",
        model_types: &["llava_onevision"],
        read: |files| LlavaNext::one_vision(files).map(Recipe::LlavaNext),
        video: |files| LlavaVideo::read(files).map(VideoRecipe::Llava).map(Some),
    },
    Kind {
        name: "mlx.minicpmv4_6",
        model_types: &["minicpmv4_6"],
        read: |files| minicpmv::MiniCpmV::read(files).map(Recipe::MiniCpmV),
        video: NO_VIDEO,
    },
    Kind {
        name: "mlx.molmo2",
        model_types: &["molmo2"],
        read: |files| molmo2::Molmo2::read(files).map(Recipe::Molmo2),
        video: NO_VIDEO,
    },
    Kind {
        name: "mllama",
        model_types: &["mllama"],
        read: |files| mllama::Mllama::read(files).map(Recipe::Mllama),
        video: NO_VIDEO,
    },
    Kind {
        name: "phi3_v",
        model_types: &["phi3_v"],
        read: |files| phi3_hd::Phi3Hd::read(files).map(Recipe::Phi3Hd),
        video: NO_VIDEO,
    },
    Kind {
        name: "mlx.phi3_v",
        model_types: &[],
        read: |files| phi3_v::Phi3V::read(files).map(Recipe::Phi3V),
        video: NO_VIDEO,
    },
    Kind {
        name: "deepseek_vl",
        model_types: &["deepseek_vl"],
        read: |files| deepseek_vl::DeepseekVl::read(files).map(Recipe::DeepseekVl),
        video: NO_VIDEO,
    },
    Kind {
        name: "ovis2",
        model_types: &["ovis2"],
        read: |files| ovis2::Ovis2::read(files).map(Recipe::Ovis2),
        video: NO_VIDEO,
    },
    Kind {
        name: "siglip2",
        model_types: &["siglip2"],
        read: |files| siglip2::Siglip2::read(files).map(Recipe::Siglip2),
        video: NO_VIDEO,
    },
    Kind {
        name: "qwen2_vl",
        model_types: &[],
        read: |files| QwenVl::read(files, &QWEN2).map(Recipe::QwenVl),
        video: NO_VIDEO,
    },
    Kind {
        name: "gemma4",
        model_types: &[],
        read: |files| Gemma4::read(files, Form::Patches).map(Recipe::Gemma4),
        video: NO_VIDEO,
    },
    Kind {
        name: "paddleocr_vl",
        model_types: &[],
        read: |files| PaddleOcrVl::read(files, &PADDLEOCR).map(Recipe::PaddleOcrVl),
        video: NO_VIDEO,
    },
    Kind {
        name: "pixtral",
        model_types: &[],
        read: |files| Pixtral::read(files, Arithmetic::Float64).map(Recipe::Pixtral),
        video: NO_VIDEO,
    },
    Kind {
        name: "mlx.llama4",
        model_types: &[],
        read: |files| Llama4::read(files, GlobalView::Omitted).map(Recipe::Llama4),
        video: NO_VIDEO,
    },
];
