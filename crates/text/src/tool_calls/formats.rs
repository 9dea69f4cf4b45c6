//! The table of formats of tool calls.

mod apertus;
mod command_a;
mod command_r;
mod deepseek_dsml;
mod deepseek_v3;
mod deepseek_v31;
mod ernie;
mod firefunction;
mod function_gemma;
mod functionary_v31;
mod functionary_v32;
mod gemma;
mod gemma4;
mod gigachat;
mod glm;
mod granite;
mod harmony;
mod hermes;
mod hunyuan;
mod hunyuan3;
mod internlm;
mod json;
mod kimi_k2;
mod kimi_k3;
mod lfm2;
mod llama3;
mod llama4;
mod longcat;
mod minicpm5;
mod minimax_m2;
mod minimax_m3;
mod mistral;
mod muse;
mod nemotron;
mod olmo3;
mod phi4;
mod qwen3_coder;
mod seed_oss;
mod solar;
mod step3;
mod tool_call_text;
mod tool_calls_list;
mod xlam;

use super::ToolCallFormat;
use super::format::has_sign;

/// Every format. The first one that a template shows signs of is its format, so special ones come first.
pub const TOOL_CALL_FORMATS: &[&ToolCallFormat] = &[
    &harmony::FORMAT,
    &kimi_k3::FORMAT,
    &kimi_k2::FORMAT,
    &deepseek_dsml::FORMAT,
    &deepseek_v3::FORMAT,
    &deepseek_v31::FORMAT,
    &minimax_m3::FORMAT,
    &minimax_m2::FORMAT,
    &muse::FORMAT,
    &step3::FORMAT,
    &seed_oss::FORMAT,
    &hunyuan3::FORMAT,
    &glm::FORMAT,
    &minicpm5::FORMAT,
    &qwen3_coder::FORMAT,
    &functionary_v32::FORMAT,
    &functionary_v31::FORMAT,
    &mistral::FORMAT,
    &gemma4::FORMAT,
    &function_gemma::FORMAT,
    &gemma::FORMAT,
    &command_a::FORMAT,
    &command_r::FORMAT,
    &solar::FORMAT,
    &apertus::FORMAT,
    &gigachat::FORMAT,
    &firefunction::FORMAT,
    &longcat::FORMAT,
    &internlm::FORMAT,
    &phi4::FORMAT,
    &granite::FORMAT,
    &nemotron::FORMAT,
    &hunyuan::FORMAT,
    &tool_calls_list::FORMAT,
    &ernie::FORMAT,
    &lfm2::FORMAT,
    &olmo3::FORMAT,
    &llama4::FORMAT,
    &llama3::FORMAT,
    &hermes::FORMAT,
    &xlam::FORMAT,
    &tool_call_text::FORMAT,
    &json::FORMAT,
];

impl ToolCallFormat {
    /// The format of a chat template: the first of the table that it shows signs of.
    pub fn of_template(source: &str) -> Option<&'static Self> {
        TOOL_CALL_FORMATS.iter().copied().find(|format| has_sign(format.signs, source))
    }

    /// The format of a model: that of its template, or else the one that its special tokens show signs of.
    pub fn of_model<'a>(
        template: &str,
        special_tokens: impl IntoIterator<Item = &'a str>,
    ) -> Option<&'static Self> {
        let tokens = || special_tokens.into_iter().collect::<Vec<_>>().join("\n");
        Self::of_template(template).or_else(|| Self::of_template(&tokens()))
    }

    /// The format of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TOOL_CALL_FORMATS.iter().copied().find(|format| format.name == name)
    }
}
