//! What each model's processor does with a picture. Start at [`Processor::read`] and [`Processor::image`].
//!
//! Invariants: a processor is plain data. What it makes follows from its settings and the pixels alone, so that it can
//! be cached by [`Processor::key`]. Sizes that a model's files name are checked before memory is allocated.

mod deepseek_vl;
mod gemma3;
mod gemma3n;
mod gemma4;
mod geometry;
mod got_ocr2;
mod idefics2;
mod idefics3;
mod kimi_vl;
mod kinds;
mod levels;
mod lfm2_vl;
mod llama4;
mod llava_next;
mod llava_video;
mod minicpmv;
mod mllama;
mod molmo2;
mod ovis2;
mod paddleocr_vl;
mod patches;
mod phi3_hd;
mod phi3_v;
mod pixtral;
mod qwen_video;
mod qwen_vl;
mod settings;
mod siglip2;
mod whole_image;

use omnibus_picture::Image;

use crate::clip::{Clip, Sampling};
use crate::content::ContentKey;
use crate::error::Error;
use crate::features::Features;

pub use geometry::{Size, SmartResize, smart_resize};
pub use kinds::{KINDS, Kind};
pub use settings::ConfigFiles;
pub(crate) use settings::Settings;

/// How pictures become the input of a model's encoder.
#[derive(Debug, Clone, PartialEq)]
pub struct Processor {
    kind: &'static str,
    recipe: Recipe,
    video: Option<VideoRecipe>,
}

/// What there is to do, with its settings.
#[derive(Debug, Clone, PartialEq)]
enum Recipe {
    DeepseekVl(deepseek_vl::DeepseekVl),
    Gemma3(gemma3::Gemma3),
    Gemma3n(gemma3n::Gemma3n),
    Gemma4(gemma4::Gemma4),
    GotOcr2(got_ocr2::GotOcr2),
    Idefics2(idefics2::Idefics2),
    Idefics3(idefics3::Idefics3),
    KimiVl(kimi_vl::KimiVl),
    Lfm2Vl(lfm2_vl::Lfm2Vl),
    Llama4(llama4::Llama4),
    LlavaNext(llava_next::LlavaNext),
    MiniCpmV(minicpmv::MiniCpmV),
    Mllama(mllama::Mllama),
    Molmo2(molmo2::Molmo2),
    Ovis2(ovis2::Ovis2),
    PaddleOcrVl(paddleocr_vl::PaddleOcrVl),
    Phi3Hd(phi3_hd::Phi3Hd),
    Phi3V(phi3_v::Phi3V),
    Pixtral(pixtral::Pixtral),
    QwenVl(qwen_vl::QwenVl),
    Siglip2(siglip2::Siglip2),
    WholeImage(whole_image::WholeImage),
}

/// What there is to do with a video, with its settings.
#[derive(Debug, Clone, PartialEq)]
enum VideoRecipe {
    Llava(llava_video::LlavaVideo),
    Qwen(qwen_video::QwenVideo),
}

impl Processor {
    /// The processor of a model: `model_type` of its `config.json`, and the files that say how it processes media.
    /// Files that a model lacks are `None`; fields that they lack take the reference's defaults.
    pub fn read(model_type: &str, files: &ConfigFiles) -> Result<Processor, Error> {
        let row = KINDS.iter().find(|kind| kind.model_types.contains(&model_type));
        let row =
            row.ok_or_else(|| Error::UnknownProcessor { model_type: crate::error::one_line(model_type) })?;
        Ok(Processor { kind: row.name, recipe: (row.read)(files)?, video: (row.video)(files)? })
    }

    /// The processor with a name of [`KINDS`], whatever the model.
    pub fn of_kind(name: &str, files: &ConfigFiles) -> Result<Processor, Error> {
        let row = KINDS.iter().find(|kind| kind.name == name);
        let row = row.ok_or_else(|| Error::UnknownProcessor { model_type: crate::error::one_line(name) })?;
        Ok(Processor { kind: row.name, recipe: (row.read)(files)?, video: (row.video)(files)? })
    }

    /// Its name in [`KINDS`].
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Key of all its settings: equal keys give equal features for equal pictures.
    pub fn key(&self) -> ContentKey {
        ContentKey::of_text(&format!("{self:?}"))
    }

    /// The encoder's input for one picture, and the tokens that stand for it. It takes milliseconds to seconds of one
    /// core, so call it on a worker thread.
    pub fn image(&self, image: &Image) -> Result<Features, Error> {
        match &self.recipe {
            Recipe::DeepseekVl(recipe) => recipe.image(image),
            Recipe::Gemma3(recipe) => recipe.image(image),
            Recipe::Gemma3n(recipe) => recipe.image(image),
            Recipe::Gemma4(recipe) => recipe.image(image),
            Recipe::GotOcr2(recipe) => recipe.image(image),
            Recipe::Idefics2(recipe) => recipe.image(image),
            Recipe::Idefics3(recipe) => recipe.image(image),
            Recipe::KimiVl(recipe) => recipe.image(image),
            Recipe::Lfm2Vl(recipe) => recipe.image(image),
            Recipe::Llama4(recipe) => recipe.image(image),
            Recipe::LlavaNext(recipe) => recipe.image(image),
            Recipe::MiniCpmV(recipe) => recipe.image(image),
            Recipe::Mllama(recipe) => recipe.image(image),
            Recipe::Molmo2(recipe) => recipe.image(image),
            Recipe::Ovis2(recipe) => recipe.image(image),
            Recipe::PaddleOcrVl(recipe) => recipe.image(image),
            Recipe::Phi3Hd(recipe) => recipe.image(image),
            Recipe::Phi3V(recipe) => recipe.image(image),
            Recipe::Pixtral(recipe) => recipe.image(image),
            Recipe::QwenVl(recipe) => recipe.image(image),
            Recipe::Siglip2(recipe) => recipe.image(image),
            Recipe::WholeImage(recipe) => recipe.image(image),
        }
    }

    /// Which frames of a video it takes, or `None` if it takes no videos.
    pub fn sampling(&self) -> Option<Sampling> {
        self.video.as_ref().map(|recipe| match recipe {
            VideoRecipe::Llava(recipe) => recipe.sampling(),
            VideoRecipe::Qwen(recipe) => recipe.sampling(),
        })
    }

    /// The encoder's input for the frames of one video, and the tokens that stand for it. Call it on a worker thread.
    /// All frames of the clip are used; [`Processor::sampling`] says which to decode.
    pub fn video(&self, clip: &Clip) -> Result<Features, Error> {
        let takes_none = || Error::unsuitable("video", "its processor takes no videos");
        match self.video.as_ref().ok_or_else(takes_none)? {
            VideoRecipe::Llava(recipe) => recipe.video(clip),
            VideoRecipe::Qwen(recipe) => recipe.video(clip),
        }
    }
}
