//! The server and the model that an agent uses.

use crate::server_client::ServedModel;

/// Most tokens of an answer that agents plan with, where the window has room for it.
const OUTPUT_MAX: u64 = 16_384;
/// An answer may take so much of the window: a fourth.
const OUTPUT_SHARE: u64 = 4;
/// Agents begin with long prompts: about 25,000 tokens of Claude Code.
const WINDOW_USEFUL: u64 = 32_768;

/// The server and the model that an agent uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The server's URL without a path.
    pub origin: String,
    /// The key, where the server has any.
    pub key: Option<String>,
    /// The model's name.
    pub model: String,
    /// Its context, in tokens, where it is known.
    pub window: Option<u64>,
}

impl Target {
    /// The base URL of OpenAI's API.
    pub fn openai_url(&self) -> String {
        format!("{}/v1", self.origin)
    }

    /// The key, or a word: agents want one, and a server without keys takes any.
    pub fn key_or_word(&self) -> String {
        self.key.clone().unwrap_or_else(|| "omnibus".to_owned())
    }

    /// Tokens that are kept for an answer.
    pub fn output(&self) -> Option<u64> {
        self.window.map(|window| (window / OUTPUT_SHARE).clamp(1, OUTPUT_MAX))
    }

    /// Tokens at which a conversation is compacted.
    pub fn compaction(&self) -> Option<u64> {
        Some(self.window?.saturating_sub(self.output()?))
    }

    /// A warning where the context is too small for an agent's first prompt.
    pub fn warning(&self) -> Option<String> {
        let window = self.window.filter(|window| *window < WINDOW_USEFUL)?;
        Some(format!(
            "{} has a context of {window} tokens: most agents begin with a prompt of more than that or nearly so",
            self.model
        ))
    }
}

/// The model with this name, or the first one. Fails with the names that there are.
pub fn choose<'a>(models: &'a [ServedModel], name: Option<&str>) -> Result<&'a ServedModel, String> {
    let Some(name) = name else {
        return models.first().ok_or_else(|| "the server has no models".to_owned());
    };
    let served: Vec<String> = models.iter().map(|model| format!("`{}`", model.id)).collect();
    models
        .iter()
        .find(|model| model.id == name)
        .ok_or_else(|| format!("serves {}, not `{name}`", served.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_fourth_of_a_small_window() {
        let of = |window| Target { origin: String::new(), key: None, model: "m".into(), window };
        assert_eq!((of(Some(4096)).output(), of(Some(4096)).compaction()), (Some(1024), Some(3072)));
        assert_eq!(
            (of(Some(262_144)).output(), of(Some(262_144)).compaction()),
            (Some(16_384), Some(245_760))
        );
        assert_eq!((of(None).output(), of(None).compaction()), (None, None));
        assert!(of(Some(4096)).warning().is_some() && of(Some(65_536)).warning().is_none());
    }
}
