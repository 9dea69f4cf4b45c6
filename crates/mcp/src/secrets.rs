//! Values that no message may hold: those of a server's environment and headers.

/// Shorter values are no secrets, and stand in many texts.
const LENGTH_MIN: usize = 6;

/// The secrets of one server.
#[derive(Clone, Default)]
pub struct Secrets(Vec<String>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} secrets", self.0.len())
    }
}

impl Secrets {
    /// These values, and the tokens in them: a header's value has a word before its token.
    pub fn new<'a>(values: impl Iterator<Item = &'a String>) -> Self {
        let parts = |value: &'a String| std::iter::once(value.as_str()).chain(value.split_whitespace());
        let mut all: Vec<String> =
            values.flat_map(parts).filter(|part| part.len() >= LENGTH_MIN).map(str::to_owned).collect();
        // The longest first: a part of a secret may be another.
        all.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        all.dedup();
        Self(all)
    }

    /// The text without them.
    pub fn redacted(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_and_its_token_are_removed() {
        let secrets = Secrets::new(["Bearer sk-123456".to_owned(), "1".to_owned()].iter());
        assert_eq!(secrets.redacted("1: got Bearer sk-123456, or sk-123456"), "1: got ***, or ***");
        assert_eq!(format!("{secrets:?}"), "3 secrets");
    }
}
