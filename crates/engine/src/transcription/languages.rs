//! Languages by the codes of Whisper's tokens.

/// Codes and names. Source: transformers `models/whisper/tokenization_whisper.py`.
const TABLE: &str = include_str!("languages.tsv");

/// A language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Language {
    /// As in `<|en|>`.
    pub code: String,
    /// As `english`; the code where it has no name here.
    pub name: String,
}

impl Language {
    /// The language with this code or name, in any case.
    pub(crate) fn find(text: &str) -> Self {
        let text = text.trim().to_lowercase();
        let rows = TABLE.lines().filter_map(|row| row.split_once('\t'));
        let found = rows.into_iter().find(|(code, name)| *code == text || *name == text);
        let (code, name) = found.unwrap_or((&text, &text));
        Self { code: code.to_owned(), name: name.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_language_has_a_code_and_a_name() {
        for text in ["de", "German", " DE "] {
            let language = Language::find(text);
            assert_eq!((language.code.as_str(), language.name.as_str()), ("de", "german"), "{text}");
        }
        assert_eq!(Language::find("xx").name, "xx");
    }
}
