//! Text that a client keeps and sends back unread: reasoning that is not displayed.
//!
//! It is encoded and not encrypted: it is the client's own conversation.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// What such a text begins with.
const PREFIX: &str = "omnibus1.";

/// The text as an opaque one.
pub fn encode(text: &str) -> String {
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(text))
}

/// The text of an opaque one of ours.
pub fn decode(opaque: &str) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(opaque.strip_prefix(PREFIX)?).ok()?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_texts_are_decoded() {
        assert_eq!(decode(&encode("déjà\nvu")).as_deref(), Some("déjà\nvu"));
        assert_eq!(decode("EqQBCgIYAhIM1gbcDa9GJwZA2b3h"), None);
        assert_eq!(decode("omnibus1.%%"), None);
    }
}
