//! The name of a model on a hub.

use std::fmt;

/// `org/name[@revision]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelId {
    /// `org/name`
    pub repository: String,
    /// A branch, a tag or a commit.
    pub revision: String,
}

/// The branch that a name without a revision means.
const MAIN: &str = "main";

impl ModelId {
    /// `None` when the text is not the name of a model: a path, for one.
    pub fn parse(text: &str) -> Option<Self> {
        let (repository, revision) = text.split_once('@').unwrap_or((text, MAIN));
        let (owner, name) = repository.split_once('/')?;
        let is_name = |part: &str| {
            let chars = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            !part.is_empty() && part.len() <= 96 && part.chars().all(chars) && !part.starts_with(['.', '-'])
        };
        let is_revision =
            !revision.is_empty() && revision.split('/').all(is_name) && !revision.contains("..");
        (is_name(owner) && is_name(name) && is_revision)
            .then(|| Self { repository: repository.to_owned(), revision: revision.to_owned() })
    }

    /// Its folder in the cache.
    pub(crate) fn folder(&self) -> String {
        format!("models--{}", self.repository.replace('/', "--"))
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.revision.as_str() {
            MAIN => f.write_str(&self.repository),
            revision => write!(f, "{}@{revision}", self.repository),
        }
    }
}

#[test]
fn names_are_not_paths() {
    let id = |repository: &str, revision: &str| {
        Some(ModelId { repository: repository.to_owned(), revision: revision.to_owned() })
    };
    assert_eq!(ModelId::parse("org/tiny-1.5B"), id("org/tiny-1.5B", "main"));
    assert_eq!(ModelId::parse("org/tiny@refs/pr/3"), id("org/tiny", "refs/pr/3"));
    for path in
        ["tiny", "./tiny", "../a/b", "/a/b", "a/b/c", "a/../b", "org/tiny@", "org/tiny@../x", "~/b", ".a/b"]
    {
        assert_eq!(ModelId::parse(path), None, "{path}");
    }
}
