//! The chat templates of published models, and the assistant's part of what they render.

#![allow(dead_code, reason = "each test uses a part")]

use std::path::Path;

use jiff::civil::date;
use omnibus_text::{
    ChatTemplate, ContentPart, GenerationPrompt, Message, RenderInput, Role, ToolArguments, ToolCall,
};
use serde_json::{Map, Value, json};

/// Tokens that end a message.
const ENDS: &[&str] = &[
    "<|im_end|>",
    "<EOS>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|end_of_text|>",
    "<turn|>",
    "<end_of_turn>",
    "<seed:eos>",
    "[e~[",
    "<end_of_sentence>",
    "<|end_of_msg|>",
    "<｜end▁of▁sentence｜>",
    "<SPECIAL_12>",
    "<sep>",
    "<|role_end|>",
    "</assistant>",
    "<|assistant_end|>",
    "<｜hy_eos:opensource｜>",
    "<|end|>",
    "<|eot|>",
    "<|return|>",
    "<|user|>",
    "<|observation|>",
    "<|message_sep|>",
    "<|tool_response>",
];

/// Starts of a turn, for templates that open the next one whether it is wanted or not.
const TURNS: &[&str] = &["<|START_OF_TURN_TOKEN|>", "<|start_header_id|>"];

/// Templates that write calls only where a message has no content at all.
const WITHOUT_CONTENT: &[&str] = &[
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "llama-cpp-deepseek-r1",
    "NVIDIA-Nemotron-Nano-v2",
];

/// How a template wants arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arguments {
    Object,
    Text,
}

pub struct Template {
    pub name: String,
    template: ChatTemplate,
}

/// What the assistant answers.
pub struct Answer<'a> {
    pub text: &'a str,
    pub reasoning: Option<&'a str>,
    pub calls: &'a [(&'a str, Value)],
}

/// The templates, or None where they are not beside the repository.
pub fn templates() -> Option<Vec<Template>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/templates/jinja");
    if !folder.is_dir() {
        println!("skipped: {} does not exist", folder.display());
        return None;
    }
    let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let template = |path: &std::path::PathBuf| Template {
        name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
        template: ChatTemplate::new(&std::fs::read_to_string(path).unwrap()).unwrap(),
    };
    Some(paths.iter().map(template).collect())
}

impl Template {
    pub fn source(&self) -> &str {
        self.template.source(true)
    }

    /// The prompt up to where the answer begins, and the answer as the template writes it.
    ///
    /// A text that the template does not write beside calls is left out.
    pub fn render_answer(
        &self,
        answer: &Answer<'_>,
        tools: Option<&Value>,
    ) -> Result<(String, String), String> {
        self.answer(answer, tools).or_else(|error| self.answer(answer, None).map_err(|_| error))
    }

    fn answer(&self, answer: &Answer<'_>, tools: Option<&Value>) -> Result<(String, String), String> {
        let user = Message::new(Role::User, "Question?");
        let prompt = self.render(std::slice::from_ref(&user), tools, GenerationPrompt::Add)?;
        let with = |arguments| {
            let mut assistant = message(answer, arguments);
            if !answer.calls.is_empty() && WITHOUT_CONTENT.contains(&self.name.as_str()) {
                assistant.content.retain(|part| !matches!(part, ContentPart::Text(_)));
            }
            let messages = [user.clone(), assistant];
            self.render(&messages, tools, GenerationPrompt::Omit)
        };
        let full = with(Arguments::Object).or_else(|_| with(Arguments::Text))?;
        let cut = border(&prompt, &full);
        let mut output = full.get(cut..).unwrap_or_default();
        output = output.strip_prefix("<|CHATBOT_TOKEN|>").unwrap_or(output);
        for turn in TURNS {
            output = output.split_once(turn).map_or(output, |(before, _)| before);
        }
        loop {
            let trimmed = output.trim_end();
            let Some(end) = ENDS.iter().find(|end| trimmed.ends_with(**end)) else { break };
            output = trimmed.strip_suffix(end).unwrap();
        }
        Ok((prompt.get(..cut).unwrap_or_default().to_owned(), output.to_owned()))
    }

    fn render(
        &self,
        messages: &[Message],
        tools: Option<&Value>,
        generation_prompt: GenerationPrompt,
    ) -> Result<String, String> {
        let mut kwargs = Map::new();
        kwargs.insert("functions".to_owned(), json!("[]"));
        kwargs.insert("datetime".to_owned(), json!("2026-11-20"));
        kwargs.insert("thinking".to_owned(), json!(true));
        kwargs.insert("enable_thinking".to_owned(), json!(true));
        let rendered = self.template.render(&RenderInput {
            messages,
            tools,
            documents: None,
            generation_prompt,
            special_tokens: &[
                ("bos_token".to_owned(), "<BOS>".to_owned()),
                ("eos_token".to_owned(), "<EOS>".to_owned()),
            ],
            kwargs: &kwargs,
            now: date(2026, 11, 20).at(9, 30, 5, 0),
        });
        rendered.map_err(|error| error.to_string())
    }
}

fn message(answer: &Answer<'_>, arguments: Arguments) -> Message {
    let mut content = vec![ContentPart::Text(answer.text.to_owned())];
    content.extend(answer.reasoning.map(|text| ContentPart::Reasoning(text.to_owned())));
    for (index, (name, value)) in answer.calls.iter().enumerate() {
        let arguments = match arguments {
            Arguments::Object => ToolArguments::Json(value.to_string()),
            Arguments::Text => ToolArguments::Text(value.to_string()),
        };
        let id = format!("call0000{index}");
        content.push(ContentPart::ToolCall(ToolCall { id, name: (*name).to_owned(), arguments }));
    }
    Message { role: Role::Assistant, name: None, content }
}

/// Where the answer begins: at the end of what both texts start with, or before a tag that they share in part.
fn border(prompt: &str, full: &str) -> usize {
    let same = prompt.char_indices().zip(full.chars()).find(|((_, a), b)| a != b);
    let at = same.map_or(prompt.len().min(full.len()), |((at, _), _)| at);
    let before = prompt.get(..at).unwrap_or_default();
    match before.rfind(['<', '[']) {
        Some(tag) if at < prompt.len() && !before[tag..].contains(['>', ']']) => tag,
        _ => at,
    }
}
