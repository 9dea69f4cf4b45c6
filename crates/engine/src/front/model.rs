//! A model's files as the front reads them: tokenizer, chat template, end tokens.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use omnibus_model::Source;
use omnibus_text::{
    AddSpecial, ChatTemplate, GenerationPrompt, RenderInput, SkipSpecial, TemplateName, Tokenizer,
    TokenizerFiles,
};
use serde_json::{Map, Value};

use super::turns::{Rendered, Turns};
use crate::request::{Chat, Input};
use crate::{Failure, StartError};

/// Where a model comes from, and what it is called.
#[derive(Debug, Clone)]
pub enum ModelSource {
    /// A directory as mlx-lm or Hugging Face writes it.
    Directory {
        /// The directory.
        path: PathBuf,
        /// Names to answer to, the listed one first; empty means the directory's name.
        served_names: Vec<String>,
    },
    /// Files compiled into the binary.
    Embedded {
        /// File names and contents.
        files: &'static [(&'static str, &'static [u8])],
        /// Names to answer to, the listed one first.
        served_names: Vec<String>,
    },
}

impl ModelSource {
    /// The files.
    pub(crate) fn files(&self) -> Source {
        match self {
            Self::Directory { path, .. } => Source::Directory(path.clone()),
            Self::Embedded { files, .. } => Source::Embedded(files),
        }
    }

    /// Names to answer to, at least one.
    pub(crate) fn names(&self) -> Vec<String> {
        match self {
            Self::Directory { path, served_names } if served_names.is_empty() => vec![name_of(path)],
            Self::Directory { served_names, .. } | Self::Embedded { served_names, .. } => {
                served_names.clone()
            }
        }
    }
}

/// The last part of a path that says something; a hub snapshot is named by a hash.
fn name_of(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    path.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// What turns conversations into tokens and tokens into text.
pub(crate) struct ModelText {
    pub(crate) tokenizer: Arc<Tokenizer>,
    template: Option<ChatTemplate>,
    /// Tokens of a computed prompt that every request goes on from.
    prefix: Vec<u32>,
}

/// A request's input, in tokens.
pub(crate) struct Prompt {
    pub(crate) tokens: Vec<u32>,
    /// What a conversation was before that, where it is all of the prompt.
    rendered: Option<String>,
}

impl ModelText {
    /// Reads it. `chat_template` replaces the model's own.
    pub(crate) fn read(source: &Source, chat_template: Option<&str>) -> Result<Self, StartError> {
        let config = Value::Object(source.json("config.json").map_err(StartError::new)?);
        let tokenizer = match source {
            Source::Directory(path) => Tokenizer::from_dir(path, Some(&config)),
            Source::Embedded(_) => embedded_tokenizer(source, &config)?,
        };
        let template = match (chat_template, source) {
            (Some(template), _) => ChatTemplate::new(template).map(Some),
            (None, Source::Directory(path)) => ChatTemplate::from_dir(path),
            (None, Source::Embedded(_)) => embedded_template(source)?,
        };
        Ok(Self {
            tokenizer: Arc::new(tokenizer.map_err(StartError::new)?),
            template: template.map_err(StartError::new)?,
            prefix: Vec::new(),
        })
    }

    /// The same, for an engine in which every request goes on from these tokens.
    pub(crate) fn after(self, prefix: Vec<u32>) -> Self {
        Self { prefix, ..self }
    }

    /// What a request starts from.
    pub(crate) fn prompt(&self, input: &Input, special: AddSpecial) -> Result<Prompt, Failure> {
        let encode = |text: &str, special| {
            self.tokenizer
                .encode(text, special)
                .map_err(|error| Failure::bad_request("prompt", error.to_string()))
        };
        if !self.prefix.is_empty() {
            let rest = match input {
                Input::Tokens(tokens) => tokens.clone(),
                Input::Text(text) => encode(text, AddSpecial::No)?,
                Input::Chat(chat) => encode(&self.render_rest(chat)?, AddSpecial::No)?,
            };
            return Ok(Prompt { tokens: [self.prefix.as_slice(), &rest].concat(), rendered: None });
        }
        let (tokens, rendered) = match input {
            Input::Tokens(tokens) => (tokens.clone(), None),
            Input::Text(text) => (encode(text, special)?, None),
            Input::Chat(chat) => {
                let rendered = self.render(chat)?;
                (encode(&rendered, AddSpecial::No)?, Some(rendered))
            }
        };
        Ok(Prompt { tokens, rendered })
    }

    /// Where the messages of a conversation lie in its prompt.
    pub(crate) fn turns(&self, input: &Input, prompt: &Prompt) -> Turns {
        let Input::Chat(chat) = input else { return Turns::default() };
        let messages = chat.messages.as_array().map(Vec::as_slice).unwrap_or_default();
        let ends = self.tokenizer.eos_ids();
        let rendered = prompt.rendered.as_deref().map(|text| Rendered {
            text,
            pieces: prompt.tokens.iter().map(|token| self.tokenizer.id_to_piece(*token).unwrap_or_default()),
            render: |messages: &[Value]| {
                let messages = Value::Array(messages.to_vec());
                self.render_messages(chat, &messages, GenerationPrompt::Omit).ok()
            },
        });
        Turns::of(messages, &prompt.tokens, |token| ends.contains(&token), rendered)
    }

    /// A conversation from the text of its last message on: a computed prompt ends where that text begins or goes on.
    fn render_rest(&self, chat: &Chat) -> Result<String, Failure> {
        const MARK: &str = "<query>";
        let whole = self.render(chat)?;
        let mut marked = chat.clone();
        if let Some(last) = marked.messages.as_array_mut().and_then(|messages| messages.last_mut()) {
            last["content"] = MARK.into();
        }
        let begins = self.render(&marked)?.find(MARK).and_then(|at| whole.get(at..).map(str::to_owned));
        begins.ok_or_else(|| {
            Failure::bad_request("messages", "the chat template hides where the last message begins")
        })
    }

    fn render(&self, chat: &Chat) -> Result<String, Failure> {
        if !chat.continues {
            return self.render_messages(chat, &chat.messages, GenerationPrompt::Add);
        }
        self.open_end(chat, self.render_messages(chat, &chat.messages, GenerationPrompt::Omit)?)
    }

    /// These messages in the place of the conversation's own.
    fn render_messages(
        &self,
        chat: &Chat,
        messages: &Value,
        generation_prompt: GenerationPrompt,
    ) -> Result<String, Failure> {
        let template = self.template.as_ref().ok_or_else(|| {
            let message =
                "this model has no chat template; use /v1/completions, or start with --chat-template";
            Failure::bad_request("messages", message)
        })?;
        let input = RenderInput {
            messages,
            tools: chat.tools.as_ref(),
            documents: chat.documents.as_ref(),
            generation_prompt,
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

    /// Cuts a rendering right after the last message's own text, so that the model goes on with it.
    fn open_end(&self, chat: &Chat, rendered: String) -> Result<String, Failure> {
        let last = chat.messages.as_array().and_then(|messages| messages.last());
        let text = last.and_then(|message| message["content"].as_str()).unwrap_or_default().trim_end();
        match rendered.rfind(text) {
            Some(at) if !text.is_empty() => Ok(rendered[..at + text.len()].to_owned()),
            _ => {
                Err(Failure::bad_request("messages", "the last message has no text that could be continued"))
            }
        }
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

    /// The text of tokens, special ones left out. Fails on ids that are not tokens.
    pub(crate) fn detokenize(&self, tokens: &[u32]) -> Result<String, Failure> {
        self.pieces(tokens)?;
        Ok(self.tokenizer.decode(tokens, SkipSpecial::No))
    }
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
