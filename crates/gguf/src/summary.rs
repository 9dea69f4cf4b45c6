//! What a file says of its model, for people.

use std::collections::BTreeMap;

use crate::head::Head;
use crate::metadata::Metadata;

/// A model in a few words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Its name.
    pub name: Option<String>,
    /// llama.cpp's name of its architecture.
    pub architecture: Option<String>,
    /// Where the file was made from.
    pub origin: Option<String>,
    /// Types of tensors with their bytes, the largest first.
    pub types: Vec<(&'static str, u64)>,
}

impl Summary {
    pub(crate) fn of(head: &Head) -> Self {
        let metadata = Metadata(&head.metadata);
        let text = |key: &str| metadata.text(key).ok().flatten().map(str::to_owned);
        let mut bytes = BTreeMap::new();
        head.tensors.iter().for_each(|tensor| *bytes.entry(tensor.kind).or_insert(0) += tensor.bytes);
        let mut types: Vec<_> = bytes.into_iter().map(|(kind, bytes)| (kind.name(), bytes)).collect();
        types.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        Self {
            name: text("general.basename").or_else(|| text("general.name")),
            architecture: text("general.architecture"),
            origin: text("general.base_model.0.repo_url"),
            types,
        }
    }
}
