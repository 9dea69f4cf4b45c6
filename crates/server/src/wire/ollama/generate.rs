//! `POST /api/generate`, Ollama's.

use serde_json::Value;

use super::{FIELDS, Shared, messages};
use crate::error::ApiError;
use crate::wire::chat::Conversation;
use crate::wire::fields::{Field, Fields, honoured, token_ids};
use crate::wire::media::Part;
use crate::wire::messages::{Content, Message};

/// Fields of a completion, besides the shared ones.
pub const GENERATE: &[Field] = &[
    honoured("prompt", "a user's message; an empty one only loads the model"),
    honoured(
        "suffix",
        "the text after the one to generate, for models with tokens for it; `prompt` is the text before it",
    ),
    honoured("system", "the system message"),
    honoured("images", "in base64, for models that see"),
    honoured("raw", "true continues the prompt as it is, without the chat template"),
    honoured("context", "the tokens of an earlier answer's last line, which the prompt continues"),
    honoured("template", "only an empty one: templates come with the model or from the server's settings"),
];

/// A completion.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateRequest {
    /// The shared fields.
    pub shared: Shared,
    /// What is completed.
    pub prompt: Prompt,
}

/// What is completed.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    /// A conversation of one message, behind the tokens of an earlier one.
    Chat {
        /// Without what `think` makes of it.
        conversation: Box<Conversation>,
        /// `context`.
        earlier: Vec<u32>,
    },
    /// A text.
    Raw(String),
    /// The texts around the one to generate.
    Infill {
        /// `prompt`.
        prefix: String,
        /// `suffix`.
        suffix: String,
    },
}

impl GenerateRequest {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::tolerant(body, "", &[FIELDS, GENERATE])?;
        let shared = Shared::read(&mut fields)?;
        let prompt = fields.text("prompt")?.unwrap_or_default();
        let suffix = fields.text("suffix")?.filter(|text| !text.is_empty());
        let system = fields.text("system")?.filter(|text| !text.is_empty());
        if fields.text("template")?.is_some_and(|text| !text.is_empty()) {
            let message =
                "`template` is not supported: templates come with the model or from --chat-template";
            return Err(ApiError::unsupported("template", message));
        }
        let earlier = fields.list("context")?.unwrap_or_default();
        let earlier = token_ids("context", &earlier)?;
        let raw = fields.flag("raw")?.unwrap_or(false);
        let content = messages::with_images(&mut fields, "images", prompt.clone())?;
        fields.finish();
        let has_images = content.parts.len() > 1;
        let given = [("system", system.is_some()), ("context", !earlier.is_empty()), ("images", has_images)];
        let given = given.iter().find(|(_, is_given)| *is_given).map(|(name, _)| *name);
        let prompt = match (suffix, raw, given) {
            (None, false, _) if has_images && !earlier.is_empty() => {
                return Err(ApiError::unsupported("context", "`context` does not go with `images`"));
            }
            (None, false, _) => {
                Prompt::Chat { conversation: Box::new(conversation(system, content)), earlier }
            }
            (_, _, Some(name)) => {
                let message = format!("`{name}` needs the chat template, which `raw` and `suffix` skip");
                return Err(ApiError::invalid(name, message));
            }
            (Some(suffix), _, None) => Prompt::Infill { prefix: prompt, suffix },
            (None, true, None) => Prompt::Raw(prompt),
        };
        Ok(Self { shared, prompt })
    }
}

fn conversation(system: Option<String>, user: Content) -> Conversation {
    let text = |text| Content { parts: vec![Part::Text(text)], name: None };
    let system = system.map(|system| Message::System(text(system)));
    let messages = system.into_iter().chain([Message::User(user)]).collect();
    Conversation { messages, ..Conversation::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(fields: Value) -> Result<Prompt, ApiError> {
        let mut body = json!({"model": "m", "prompt": "p"});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        GenerateRequest::read(body).map(|request| request.prompt)
    }

    #[test]
    fn a_prompt_is_a_conversation_a_text_or_a_gap() {
        let chat = read(json!({"system": "s", "context": [1, 2]})).unwrap();
        let Prompt::Chat { conversation, earlier } = chat else { panic!("{chat:?}") };
        assert_eq!((conversation.messages.len(), earlier), (2, vec![1, 2]));
        assert_eq!(read(json!({"raw": true})).unwrap(), Prompt::Raw("p".into()));
        let gap = Prompt::Infill { prefix: "p".into(), suffix: "s".into() };
        assert_eq!(read(json!({"suffix": "s"})).unwrap(), gap);
        assert!(matches!(
            read(json!({"suffix": "", "template": "", "context": null})),
            Ok(Prompt::Chat { .. })
        ));
    }

    #[test]
    fn what_needs_the_template_is_refused_without_it() {
        let param = |fields: Value| read(fields).unwrap_err().param().unwrap_or_default().to_owned();
        assert_eq!(param(json!({"raw": true, "system": "s"})), "system");
        assert_eq!(param(json!({"raw": true, "context": [1]})), "context");
        assert_eq!(param(json!({"suffix": "s", "images": ["QUJD"]})), "images");
        assert_eq!(param(json!({"context": [1], "images": ["QUJD"]})), "context");
        assert_eq!(param(json!({"template": "{{ .Prompt }}"})), "template");
        assert_eq!(param(json!({"context": ["a"]})), "context[0]");
    }
}
