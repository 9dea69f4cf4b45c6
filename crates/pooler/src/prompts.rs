//! Texts that stand before what is embedded.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::error::{PoolerError, object};

/// Prompts by their names, as `query` and `document`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompts {
    by_name: BTreeMap<String, String>,
    default: Option<String>,
    /// Whether their tokens are pooled.
    pub(crate) are_pooled: bool,
}

impl Default for Prompts {
    fn default() -> Self {
        Self { by_name: BTreeMap::new(), default: None, are_pooled: true }
    }
}

const FILE: &str = "config_sentence_transformers.json";

impl Prompts {
    pub(crate) fn read(directory: &Path, are_pooled: bool) -> Result<Self, PoolerError> {
        let config = object(directory, FILE)?.unwrap_or_default();
        let prompts = config.get("prompts").and_then(Value::as_object).into_iter().flatten();
        let by_name = prompts.filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned())));
        let default = config.get("default_prompt_name").and_then(Value::as_str).map(str::to_owned);
        Ok(Self { by_name: by_name.collect(), default, are_pooled })
    }

    /// Names of a model that reads queries and documents differently; what stands before them is of its token forms.
    pub(crate) fn of_roles() -> Self {
        let by_name = ["query", "document"].map(|role| (role.to_owned(), String::new()));
        Self { by_name: by_name.into(), ..Self::default() }
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// The text of a name.
    pub fn named(&self, name: &str) -> Option<&str> {
        self.by_name.get(name).map(String::as_str)
    }

    /// What stands before a text where no prompt is named.
    pub fn default_text(&self) -> &str {
        self.default.as_deref().and_then(|name| self.named(name)).unwrap_or_default()
    }
}
