//! JSON as Python writes it.

/// Python's `Infinity` and `NaN` become strings: JSON lacks both, and configs are written with them.
pub fn as_json(text: &str) -> String {
    let mut json = String::with_capacity(text.len());
    let (mut quoted, mut escaped, mut rest) = (false, false, text);
    while let Some(next) = rest.chars().next() {
        let found = [("-Infinity", "\"-Infinity\""), ("Infinity", "\"Infinity\""), ("NaN", "\"NaN\"")]
            .into_iter()
            .find(|(word, _)| !quoted && rest.starts_with(word));
        if let Some((word, instead)) = found {
            json.push_str(instead);
            rest = &rest[word.len()..];
            continue;
        }
        match next {
            '"' if !escaped => quoted = !quoted,
            _ => {}
        }
        escaped = quoted && next == '\\' && !escaped;
        json.push(next);
        rest = &rest[next.len_utf8()..];
    }
    json
}

#[cfg(test)]
mod tests {
    use super::as_json;

    #[test]
    fn only_bare_words_change() {
        let python = r#"{"limit": [0.0, Infinity, -Infinity], "NaN": NaN, "note": "\"Infinity\" and NaN"}"#;
        let json =
            r#"{"limit": [0.0, "Infinity", "-Infinity"], "NaN": "NaN", "note": "\"Infinity\" and NaN"}"#;
        assert_eq!(as_json(python), json);
    }
}
