//! A model's tokenizer, chat template and end tokens.

use std::sync::Arc;

use omnibus_grammar::{GrammarLimits, Reasoning};
use omnibus_model::Source;
use omnibus_pooler::{Pooler, Task};
use omnibus_text::{
    AddSpecial, ChatTemplate, Error, GenerationPrompt, InfillFormat, Message, RenderInput, SkipSpecial,
    TemplateName, Tokenizer, TokenizerFiles, Tool,
};
use serde_json::{Map, Value};

use super::media::{self, MediaReader, Prepared, PromptMedia};
use super::message_boundaries::{MessageBoundaries, Rendered};
use super::message_formats::MessageFormats;
use super::output_text::OutputText;
use super::{call_grammar, long_text};
use crate::digest::digest;
use crate::error::{Failure, StartError};
use crate::info::{Capabilities, Modality, ModelTask};
use crate::message::Ready;
use crate::request::{Chat, Input, PromptEnd, Request, StructuredOutput};
use crate::sampling_parameter::SamplingDefaults;
use crate::settings::Settings;
use crate::whisper::tokens::SpeechTokens;

/// Turns conversations into tokens and tokens into text.
pub(crate) struct ModelText {
    pub(crate) tokenizer: Arc<Tokenizer>,
    template: Option<ChatTemplate>,
    formats: MessageFormats,
    /// Tokens of a prompt cache file that every prompt continues.
    prefix: Vec<u32>,
    /// Of a model that sees or hears.
    media: Option<MediaReader>,
    /// Of a model that writes down speech and nothing else.
    speech: Option<Arc<SpeechTokens>>,
    /// What requests have that leave parameters out.
    pub(crate) sampling: SamplingDefaults,
    /// What becomes of hidden states.
    pooler: Pooler,
    /// Kinds of each token.
    pub(crate) token_types: usize,
    /// Whether it has logits of tokens.
    generates: bool,
    /// Whether it has the head of a masked language model.
    pub(crate) weighs_vocabulary: bool,
}

/// A request's input, tokenized.
pub(crate) struct TokenizedPrompt {
    pub(crate) tokens: Vec<u32>,
    /// The rendered conversation, where it is the whole prompt.
    rendered: Option<String>,
    /// What some of its tokens stand for.
    pub(crate) media: PromptMedia,
}

impl TokenizedPrompt {
    /// A prompt in tokens, with media.
    pub(crate) fn of_tokens(tokens: Vec<u32>, media: PromptMedia) -> Self {
        Self { tokens, rendered: None, media }
    }
}

impl ModelText {
    /// Reads the model's files. The settings may replace its chat template and its formats.
    pub(crate) fn read(source: &Source, settings: &Settings) -> Result<Self, StartError> {
        if let Source::Adapted { base, .. } = source {
            return Self::read(base, settings);
        }
        let template = match (settings.chat_template.as_deref(), source) {
            (Some(template), _) => ChatTemplate::new(template).map(Some),
            (None, Source::Directory(path)) => ChatTemplate::from_dir(path),
            (None, Source::Embedded(_) | Source::Random(_) | Source::Adapted { .. }) => {
                embedded_template(source)?
            }
        };
        let (tokenizer, template) = (tokenizer_of(source)?, template.map_err(StartError::new)?);
        let formats = MessageFormats::of(template.as_ref(), &tokenizer, settings)?;
        let media = MediaReader::read(source, settings.ffmpeg.as_deref(), settings.media_files_memory);
        let speech = SpeechTokens::read(source, &tokenizer).map(Arc::new);
        let sampling = SamplingDefaults::read(&settings.generation_config, source)?;
        let pooler = match source {
            Source::Directory(path) => Pooler::read(path).map_err(StartError::new)?,
            Source::Embedded(_) | Source::Random(_) | Source::Adapted { .. } => Pooler::of_generator(),
        };
        let (prefix, token_types, generates) = (Vec::new(), 1, true);
        Ok(Self {
            tokenizer,
            template,
            formats,
            prefix,
            media,
            speech,
            sampling,
            pooler,
            token_types,
            generates,
            weighs_vocabulary: false,
        })
    }

    /// The input in the form that the chat template supports.
    pub(crate) fn adapt(&self, input: Input) -> Result<Input, Failure> {
        if self.speech.is_some() {
            let field = if matches!(input, Input::Chat(_)) { "messages" } else { "prompt" };
            let message =
                "this model only transcribes speech; use /v1/audio/transcriptions or /v1/audio/translations";
            return Err(Failure::bad_request(field, message));
        }
        let Input::Chat(chat) = input else { return Ok(input) };
        let chat = if self.media.is_some() { chat } else { media::without_media(chat)? };
        Ok(Input::Chat(self.formats.adapt(chat)))
    }

    /// What the model can do besides completing text.
    pub(crate) fn capabilities(&self) -> Capabilities {
        Capabilities {
            thinking: self.formats.reasoning().is_some(),
            tools: self.formats.tools().is_some(),
            infill: InfillFormat::of(&self.tokenizer).is_some(),
        }
    }

    /// What becomes of hidden states.
    pub(crate) fn pooler(&self) -> &Pooler {
        &self.pooler
    }

    /// What the model is for. One that generates and has files of sentence-transformers is for what these say.
    pub(crate) fn task(&self) -> ModelTask {
        if self.speech.is_some() {
            return ModelTask::Transcribe;
        }
        if self.generates && !self.pooler.is_declared() {
            return ModelTask::Generate;
        }
        match self.pooler.task() {
            Task::Embed | Task::EmbedSparse { .. } | Task::EmbedTokens => ModelTask::Embed,
            Task::Score { .. } | Task::ScoreTokens { .. } => ModelTask::Score,
            Task::Classify { .. } => ModelTask::Classify,
            Task::ClassifyTokens { .. } => ModelTask::TokenClassify,
        }
    }

    /// Fails for a request that generates where the model does not.
    pub(crate) fn check_generates(&self, request: &Request) -> Result<(), Failure> {
        if self.generates || request.max_new_tokens == Some(0) {
            return Ok(());
        }
        let use_instead = match self.pooler.task() {
            Task::Embed | Task::EmbedSparse { .. } => "gives vectors of texts; use /v1/embeddings",
            Task::EmbedTokens => "gives vectors of tokens; use /pooling, /v1/rerank or /v1/score",
            Task::Score { .. } | Task::ScoreTokens { .. } => {
                "scores pairs of texts; use /v1/rerank or /v1/score"
            }
            Task::Classify { .. } => "labels texts; use /classify",
            Task::ClassifyTokens { .. } => "labels tokens; use /pooling",
        };
        Err(Failure::bad_request("model", format!("this model generates nothing: it {use_instead}")))
    }

    /// Special tokens of a model that writes down speech and nothing else.
    pub(crate) fn speech(&self) -> Option<&Arc<SpeechTokens>> {
        self.speech.as_ref()
    }

    /// How a sound is prepared, the `field` of an API. Fails for a model that does not hear.
    pub(crate) fn media_reader(&self, field: &str) -> Result<&MediaReader, Failure> {
        let reader = self.media.as_ref().filter(|media| media.hears());
        reader.ok_or_else(|| media::deaf(field, self.media.is_some()))
    }

    /// What its prompts may hold.
    pub(crate) fn modalities(&self) -> Vec<Modality> {
        let (sees, hears) = (
            self.media.as_ref().is_some_and(MediaReader::sees),
            self.media.as_ref().is_some_and(MediaReader::hears) || self.speech.is_some(),
        );
        let all =
            [(Modality::Text, self.speech.is_none()), (Modality::Image, sees), (Modality::Audio, hears)];
        all.into_iter().filter(|(_, has)| *has).map(|(modality, _)| modality).collect()
    }

    /// A number for the text of its chat template, if it has one.
    pub(crate) fn template_hash(&self) -> Option<u128> {
        let template = self.template.as_ref()?;
        Some(digest(&[b"template", template.source(false).as_bytes(), template.source(true).as_bytes()]))
    }

    /// The tokens of a text without those around it.
    pub(crate) fn tokens_of(&self, text: &str, field: &str) -> Result<Vec<u32>, Failure> {
        let tokens = self.tokenizer.encode(text, AddSpecial::No);
        tokens.map_err(|error| Failure::bad_request(field, error.to_string()))
    }

    /// The tokens that end reasoning. `None` for a model without a format of reasoning.
    pub(crate) fn reasoning_end(&self) -> Option<Vec<u32>> {
        self.tokenizer.encode(self.formats.reasoning_end()?, AddSpecial::No).ok()
    }

    /// Reads the text that a request with these prompt tokens generates.
    pub(crate) fn output_text(&self, request: &Request, prompt: &[u32]) -> OutputText {
        let parser = self.formats.parser(request, &self.tokenizer, prompt);
        OutputText::new(Arc::clone(&self.tokenizer), parser, request)
    }

    /// The text side of a loaded model. Every prompt continues the tokens of its prompt cache file.
    pub(crate) fn for_loaded(self, ready: &Ready) -> Self {
        let media = self.media.and_then(|media| media.for_loaded(ready));
        let Ready { token_types, generates, weighs_vocabulary, .. } = *ready;
        Self { prefix: ready.prefix.clone(), media, token_types, generates, weighs_vocabulary, ..self }
    }

    /// A request's prompt. `most`: a text that surely has more tokens than this is refused before it is tokenized whole. `salt`:
    /// only requests of equal salt share what is kept of their media.
    pub(crate) fn prompt(
        &self,
        input: &Input,
        special: AddSpecial,
        most: usize,
        salt: u128,
    ) -> Result<TokenizedPrompt, Failure> {
        if let (Input::Chat(chat), Some(reader)) = (input, &self.media) {
            let parts = reader.prepare(chat, salt)?;
            if !parts.is_empty() {
                return self.prompt_with_media(chat, parts);
            }
        }
        let encode = |text: &str, special| self.encode_within(text, special, most);
        if !self.prefix.is_empty() {
            let rest = match input {
                Input::Tokens(tokens) => tokens.clone(),
                Input::Text(text) => encode(text, AddSpecial::No)?,
                Input::Infill { prefix, suffix, files } => {
                    self.infill((prefix, suffix), files, AddSpecial::No)?
                }
                Input::Chat(chat) => encode(&self.render_rest(chat)?, AddSpecial::No)?,
            };
            let tokens = [self.prefix.as_slice(), &rest].concat();
            return Ok(TokenizedPrompt { tokens, rendered: None, media: PromptMedia::default() });
        }
        let (tokens, rendered) = match input {
            Input::Tokens(tokens) => (tokens.clone(), None),
            Input::Text(text) => (encode(text, special)?, None),
            Input::Infill { prefix, suffix, files } => (self.infill((prefix, suffix), files, special)?, None),
            Input::Chat(chat) => {
                let rendered = self.render(chat)?;
                (encode(&rendered, AddSpecial::No)?, Some(rendered))
            }
        };
        Ok(TokenizedPrompt { tokens, rendered, media: PromptMedia::default() })
    }

    fn encode_within(&self, text: &str, special: AddSpecial, most: usize) -> Result<Vec<u32>, Failure> {
        let fail = |error: Error| Failure::bad_request("prompt", error.to_string());
        if let Some(prompt_tokens) = long_text::excess(&self.tokenizer, text, most).map_err(fail)? {
            return Err(Failure::TooLong { prompt_tokens, completion_tokens: 1, limit: most });
        }
        self.tokenizer.encode(text, special).map_err(fail)
    }

    /// A conversation with media, whose placeholders are expanded.
    fn prompt_with_media(&self, chat: &Chat, parts: Vec<Prepared>) -> Result<TokenizedPrompt, Failure> {
        let fail = |message: &str| Failure::bad_request("messages", message);
        if !self.prefix.is_empty() {
            return Err(fail("a prompt that continues a prompt cache file has no media"));
        }
        let chat = match parts.iter().any(|part| part.expansion.is_written()) {
            true => &media::written(chat.clone(), &parts),
            false => chat,
        };
        let rendered = self.render(chat)?;
        let tokens = self.tokenizer.encode(&PromptMedia::expand_all(&rendered, &parts)?, AddSpecial::No);
        let tokens = tokens.map_err(|error| fail(&error.to_string()))?;
        let id = |text: &str| match self.tokenizer.encode(text, AddSpecial::No).ok()?.as_slice() {
            [id] => Some(*id),
            _ => None,
        };
        let (media, tokens) = PromptMedia::find(parts, &tokens, id)?;
        let rendered = Some(media.expand(&rendered));
        Ok(TokenizedPrompt { tokens, rendered, media })
    }

    /// The tokens that a line break ends with.
    pub(crate) fn line_breaks(&self) -> Vec<u32> {
        let last = |text: &str| self.tokenizer.encode(text, AddSpecial::No).ok()?.last().copied();
        ["\n", "\n\n"].into_iter().filter_map(last).collect()
    }

    /// Tokens that end the answer to an input, besides the model's own.
    pub(crate) fn infill_ends(&self, input: &Input) -> Vec<u32> {
        match (input, InfillFormat::of(&self.tokenizer)) {
            (Input::Infill { .. }, Some(format)) => format.ends(&self.tokenizer),
            _ => Vec::new(),
        }
    }

    fn infill(
        &self,
        around: (&str, &str),
        files: &[(String, String)],
        special: AddSpecial,
    ) -> Result<Vec<u32>, Failure> {
        let format = InfillFormat::of(&self.tokenizer).ok_or_else(|| {
            Failure::bad_request("suffix", "this model has no tokens to fill in the middle of a text")
        })?;
        let files = InfillFormat::other_files(&self.tokenizer, files);
        format
            .prompt(&self.tokenizer, (&files, around.0, around.1), special)
            .map_err(|error| Failure::bad_request("prompt", error.to_string()))
    }

    /// What the answer must match, tool calls considered.
    pub(crate) fn structured(
        &self,
        request: &Request,
        limits: &GrammarLimits,
    ) -> Result<Option<StructuredOutput>, Failure> {
        call_grammar::structured(request, self.formats.tools(), &self.tokenizer, limits)
    }

    /// Reasoning that the answer to this prompt may begin with.
    pub(crate) fn reasoning(&self, input: &Input, prompt: &TokenizedPrompt) -> Option<Reasoning> {
        let Input::Chat(chat) = input else { return None };
        let format = self.formats.reasoning()?;
        let rendered = prompt.rendered.as_deref().unwrap_or_default();
        let closing = format.answer_opening().to_owned();
        if format.begins_inside(rendered) {
            return Some(Reasoning { opening: Vec::new(), closing });
        }
        // A prompt that ends with the closing text has no reasoning after it.
        if chat.end == PromptEnd::OpenMessage || rendered.trim_end().ends_with(format.closing) {
            return None;
        }
        // The model opens it by a token of its own.
        let token = |text: &&str| match self.tokenizer.encode(text, AddSpecial::No).ok()?.as_slice() {
            [first, ..] if self.tokenizer.is_added(*first) => Some(*first),
            _ => None,
        };
        let opening: Vec<u32> = format.prompt_ends.iter().filter_map(token).collect();
        (!opening.is_empty()).then_some(Reasoning { opening, closing })
    }

    /// Where the messages of a conversation end in its prompt.
    pub(crate) fn message_boundaries(&self, input: &Input, prompt: &TokenizedPrompt) -> MessageBoundaries {
        let Input::Chat(chat) = input else { return MessageBoundaries::default() };
        let ends = self.tokenizer.eos_ids();
        let rendered = prompt.rendered.as_deref().map(|text| Rendered {
            text,
            pieces: prompt.tokens.iter().map(|token| self.tokenizer.id_to_piece(*token).unwrap_or_default()),
            render: |messages: &[Message]| {
                let rendered = self.render_messages(chat, messages, GenerationPrompt::Omit).ok()?;
                Some(prompt.media.expand(&rendered))
            },
        });
        MessageBoundaries::of(&chat.messages, &prompt.tokens, |token| ends.contains(&token), rendered)
    }

    /// A conversation from the text of its last message on: the prompt cache file ends before or inside that text.
    fn render_rest(&self, chat: &Chat) -> Result<String, Failure> {
        const MARK: &str = "<query>";
        let whole = self.render(chat)?;
        let mut marked = chat.clone();
        if let Some(last) = marked.messages.pop() {
            marked.messages.push(last.with_text(MARK));
        }
        let begins = self.render(&marked)?.find(MARK).and_then(|at| whole.get(at..).map(str::to_owned));
        begins.ok_or_else(|| {
            Failure::bad_request(
                "messages",
                "cannot find the start of the last message in the rendered chat template",
            )
        })
    }

    /// How many tokens of a prompt cache file stand before each prompt.
    pub(crate) fn prefix_tokens(&self) -> usize {
        self.prefix.len()
    }

    /// The text of a conversation's prompt, behind a prompt cache file, whose reply is an answer without reasoning. Fails
    /// where the chat template begins a reply with reasoning all the same.
    pub(crate) fn answer_prompt(&self, chat: &Chat) -> Result<String, Failure> {
        let text = if self.prefix.is_empty() { self.render(chat)? } else { self.render_rest(chat)? };
        let Some(format) = self.formats.reasoning() else { return Ok(text) };
        if format.begins_inside(&text) {
            let message =
                "this model's chat template begins every reply with reasoning, which cannot be switched off";
            return Err(Failure::bad_request("messages", message));
        }
        match format.answer_opening() {
            opening if opening == format.closing || text.ends_with(opening) => Ok(text),
            opening => Ok(text + opening),
        }
    }

    /// The tokens of a rendered prompt. `most`: as in [`Self::prompt`].
    pub(crate) fn encode_prompt(&self, text: &str, most: usize) -> Result<Vec<u32>, Failure> {
        self.encode_within(text, AddSpecial::No, most)
    }

    /// The conversation as the chat template renders it.
    pub(crate) fn render(&self, chat: &Chat) -> Result<String, Failure> {
        let render = |generation_prompt| self.render_messages(chat, &chat.messages, generation_prompt);
        match chat.end {
            PromptEnd::Answer => render(GenerationPrompt::Add),
            PromptEnd::OpenMessage => self.open_end(chat, render(GenerationPrompt::Omit)?),
            PromptEnd::Messages => render(GenerationPrompt::Omit),
        }
    }

    /// Renders these messages instead of the conversation's own.
    fn render_messages(
        &self,
        chat: &Chat,
        messages: &[Message],
        generation_prompt: GenerationPrompt,
    ) -> Result<String, Failure> {
        let own = chat.own_template.as_deref().map(ChatTemplate::new).transpose();
        let own = own.map_err(|error| Failure::bad_request("chat_template", error.to_string()))?;
        let template = own.as_ref().or(self.template.as_ref()).ok_or_else(|| {
            let message =
                "this model has no chat template; use /v1/completions, or start with --chat-template";
            Failure::bad_request("messages", message)
        })?;
        let tools = Tool::shown_by_template(&chat.tools);
        let input = RenderInput {
            messages,
            tools: tools.as_ref(),
            documents: chat.documents.as_ref(),
            generation_prompt,
            reasoning_field: template.reasoning_field(),
            special_tokens: self.tokenizer.special_tokens(),
            kwargs: &chat.template_kwargs,
            now: jiff::Zoned::now().datetime(),
        };
        let rendered = match &chat.template {
            None => template.render(&input),
            Some(name) => {
                template.render_named(&TemplateName::from(name.as_str()), &input).ok_or_else(|| {
                    Failure::bad_request(
                        "chat_template",
                        format!("this model has no template named `{name}`"),
                    )
                })?
            }
        };
        rendered.map_err(|error| Failure::bad_request("messages", error.to_string()))
    }

    /// Cuts a rendering right after the last message's text, so that the model continues it.
    fn open_end(&self, chat: &Chat, rendered: String) -> Result<String, Failure> {
        let text = chat.messages.last().and_then(Message::text).unwrap_or_default();
        let text = text.trim_end();
        match rendered.rfind(text) {
            Some(at) if !text.is_empty() => Ok(rendered[..at + text.len()].to_owned()),
            _ => {
                Err(Failure::bad_request("messages", "the last message has no text that could be continued"))
            }
        }
    }

    /// A text from elsewhere without the tokens that steer the model.
    pub(crate) fn without_markers(&self, text: &str) -> Result<String, Failure> {
        self.tokenizer
            .without_markers(text)
            .map_err(|error| Failure::bad_request("messages", error.to_string()))
    }

    /// The bytes of each token. Fails on ids that are not tokens.
    pub(crate) fn pieces(&self, tokens: &[u32]) -> Result<Vec<Vec<u8>>, Failure> {
        let piece = |token: &u32| {
            self.tokenizer.id_to_piece(*token).ok_or_else(|| {
                Failure::bad_request("tokens", format!("{token} is not a token of this model"))
            })
        };
        tokens.iter().map(piece).collect()
    }

    /// The tokens' text, special ones left out. Fails on ids that are not tokens.
    pub(crate) fn detokenize(&self, tokens: &[u32]) -> Result<String, Failure> {
        self.pieces(tokens)?;
        Ok(self.tokenizer.decode(tokens, SkipSpecial::No))
    }
}

/// A model's tokenizer.
pub fn tokenizer_of(source: &Source) -> Result<Arc<Tokenizer>, StartError> {
    let config = Value::Object(source.config().map_err(StartError::new)?);
    let tokenizer = match source {
        Source::Directory(path) => {
            let folder = source.tokenizer_folder();
            Tokenizer::from_dir(folder.as_deref().unwrap_or(path), Some(&config))
        }
        Source::Adapted { base, .. } => return tokenizer_of(base),
        Source::Embedded(_) | Source::Random(_) => embedded_tokenizer(source, &config)?,
    };
    tokenizer.map(Arc::new).map_err(StartError::new)
}

fn embedded_tokenizer(
    source: &Source,
    config: &Value,
) -> Result<Result<Tokenizer, omnibus_text::Error>, StartError> {
    let json = |file: &str| -> Result<Option<Value>, StartError> {
        match source.bytes(file).map_err(StartError::new)? {
            Some(_) => Ok(Some(Value::Object(source.json(file).map_err(StartError::new)?))),
            None => Ok(None),
        }
    };
    let bytes = source.bytes("tokenizer.json").map_err(StartError::new)?.unwrap_or_default();
    let (tokenizer_config, generation_config) =
        (json("tokenizer_config.json")?, json("generation_config.json")?);
    Ok(Tokenizer::from_bytes(TokenizerFiles {
        tokenizer: &bytes,
        tokenizer_config: tokenizer_config.as_ref(),
        generation_config: generation_config.as_ref(),
        config: Some(config),
        ..TokenizerFiles::default()
    }))
}

fn embedded_template(
    source: &Source,
) -> Result<Result<Option<ChatTemplate>, omnibus_text::Error>, StartError> {
    let file = source.bytes("chat_template.jinja").map_err(StartError::new)?;
    let template = match file {
        Some(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        None => {
            let config: Map<String, Value> = source.json("tokenizer_config.json").map_err(StartError::new)?;
            config.get("chat_template").and_then(Value::as_str).map(str::to_owned)
        }
    };
    Ok(template.map(|template| ChatTemplate::new(&template)).transpose())
}
