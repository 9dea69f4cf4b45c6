//! The formats that chat templates have: the samples, and those of published models, which lie beside the repository.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests fail as tests do, and say what ran"
)]

use expect_test::{Expect, expect};
use omnibus_testing::reference::Found;
use omnibus_text::{ReasoningFormat, ToolCallFormat};

use crate::published;

#[test]
fn formats_are_recognized_from_the_template() {
    for (from, templates) in published::templates() {
        let mut found = String::new();
        for template in &templates {
            let tools = ToolCallFormat::of_template(template.source()).map_or("-", |format| format.name);
            let reasoning = ReasoningFormat::of_template(template.source()).map_or("-", |format| format.name);
            found.push_str(&format!("{}: {tools}, {reasoning}\n", template.name));
        }
        match from {
            Found::Sample(_) => sample_formats().assert_eq(&found),
            Found::Whole(_) => formats().assert_eq(&found),
        }
    }
}

fn sample_formats() -> Expect {
    expect![[r#"
        hermes_think: hermes, think
        plain: -, -
    "#]]
}

fn formats() -> Expect {
    expect![[r#"
        Apertus-8B-Instruct: apertus, apertus
        Apriel-1.6-15b-Thinker-fixed: tool-calls, apriel
        Bielik-11B-v3.0-Instruct: hermes, think
        ByteDance-Seed-OSS: seed-oss, seed-oss
        Cohere2MoE: command-a, command-a
        CohereForAI-c4ai-command-r-plus-tool_use: command-r, -
        CohereForAI-c4ai-command-r7b-12-2024-tool_use: command-a, command-a
        GLM-4.6: glm, think
        GLM-4.7-Flash: glm, think
        GigaChat3-10B-A1.8B: gigachat, -
        GigaChat3.1-10B-A1.8B: gigachat, -
        HuggingFaceTB-SmolLM3-3B: -, think
        Kimi-K2-Instruct: kimi-k2, -
        Kimi-K2-Thinking: kimi-k2, think
        Kimi-K3: kimi-k3, kimi-k3
        LFM2-8B-A1B: lfm2, -
        LFM2.5-8B-A1B: lfm2, think
        LFM2.5-Instruct: lfm2, think
        MiMo-VL: hermes, -
        MiniMax-M1: tool-calls, -
        MiniMax-M2: minimax-m2, think
        MiniMax-M3: minimax-m3, minimax-m3
        Mistral-Small-3.2-24B-Instruct-2506: mistral, -
        NVIDIA-Nemotron-3-Nano-30B-A3B-BF16: qwen3-coder, think
        NVIDIA-Nemotron-Nano-v2: nemotron, think
        NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use: hermes, -
        NousResearch-Hermes-3-Llama-3.1-8B-tool_use: hermes, -
        Qwen-QwQ-32B: hermes, think
        Qwen-Qwen2.5-7B-Instruct: hermes, -
        Qwen-Qwen3-0.6B: hermes, think
        Qwen3-Coder: qwen3-coder, -
        Qwen3.5-4B: qwen3-coder, think
        Reka-Edge: hermes, think
        Spark2.5: glm, think
        StepFun3.5-Flash: qwen3-coder, think
        deepseek-ai-DeepSeek-R1-Distill-Llama-8B: deepseek-v3, think
        deepseek-ai-DeepSeek-R1-Distill-Qwen-32B: deepseek-v3, think
        deepseek-ai-DeepSeek-V3.1: deepseek-v3.1, think
        deepseek-ai-DeepSeek-V3.2: deepseek-v3.2, think
        deepseek-ai-DeepSeek-V4-Flash-0731: deepseek-v3.2, think
        deepseek-ai-DeepSeek-V4: deepseek-v3.2, think
        fireworks-ai-llama-3-firefunction-v2: firefunction, -
        google-gemma-2-2b-it: -, -
        google-gemma-4-31B-it-interleaved: gemma-4, gemma-4
        google-gemma-4-31B-it: gemma-4, gemma-4
        ibm-granite-granite-3.3-2B-Instruct: granite, ernie
        ibm-granite-granite-4.0: hermes, -
        ibm-granite-granite-4.1: hermes, -
        inclusionai-ling-3.0-flash: glm, think
        llama-cpp-deepseek-r1: deepseek-v3, think
        llama-cpp-rwkv-world: -, think
        meetkai-functionary-medium-v3.1: functionary-v3.1, -
        meetkai-functionary-medium-v3.2: functionary-v3.2, -
        meta-llama-Llama-3.1-8B-Instruct: llama-3, -
        meta-llama-Llama-3.2-3B-Instruct: llama-3, -
        meta-llama-Llama-3.3-70B-Instruct: llama-3, -
        microsoft-Phi-3.5-mini-instruct: -, -
        mistralai-Ministral-3-14B-Reasoning-2512: mistral, mistral
        mistralai-Mistral-Nemo-Instruct-2407: mistral, -
        moonshotai-Kimi-K2: kimi-k2, -
        muse-glimmer: muse, muse
        openai-gpt-oss-120b: harmony, harmony
        openbmb-MiniCPM5-1B: minicpm-5, think
        poolside-Laguna-S-2.1: glm, think
        poolside-Laguna-XS-2.1: glm, think
        poolside-Laguna-XS.2: glm, think
        tencent-Hy3: hunyuan-3, hunyuan-3
        unsloth-Apriel-1.5: tool-calls, apriel
        unsloth-mistral-Devstral-Small-2507: mistral, -
        upstage-Solar-Open-100B: solar, solar
    "#]]
}

#[test]
fn formats_are_recognized_from_special_tokens() {
    let tools = |tokens: &[&str]| {
        ToolCallFormat::of_model("{{ messages }}", tokens.iter().copied()).map(|format| format.name)
    };
    assert_eq!(tools(&["<s>", "[INST]", "[TOOL_CALLS]"]), Some("mistral"));
    assert_eq!(tools(&["<|im_end|>", "<|tool_call_start|>"]), Some("lfm2"));
    assert_eq!(tools(&["<s>"]), None);
    let of_template = ToolCallFormat::of_model("<tool_call>", ["[TOOL_CALLS]"]).unwrap();
    assert_eq!(of_template.name, "hermes", "the template comes first");
    assert_eq!(ReasoningFormat::of_model("", ["<think>", "</think>"]).unwrap().name, "think");
}
