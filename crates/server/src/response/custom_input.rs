//! The input of a custom tool, read out of the arguments of the function that the model knows it as.
//!
//! Invariant: what was sent is a prefix of the whole input.

use serde_json::Value;

/// How arguments begin whose only member is the input. They are canonical JSON.
const HEAD: &str = "{\"input\":\"";

/// The input so far.
#[derive(Debug, Default)]
pub struct CustomInput {
    place: Place,
    /// JSON that was not read yet.
    pending: String,
    /// What was read and sent.
    sent: String,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the input's first character.
    #[default]
    Head,
    Inside,
    /// Behind it, or in arguments of another form, which are read when they are complete.
    Closed,
}

impl CustomInput {
    /// Takes more of the arguments. Returns what is new of the input.
    pub fn push(&mut self, json: &str) -> String {
        if self.place == Place::Closed {
            return String::new();
        }
        self.pending.push_str(json);
        if self.place == Place::Head {
            match self.pending.strip_prefix(HEAD) {
                Some(rest) => (self.place, self.pending) = (Place::Inside, rest.to_owned()),
                None if HEAD.starts_with(&self.pending) => return String::new(),
                None => {
                    self.place = Place::Closed;
                    return String::new();
                }
            }
        }
        let (whole, is_closed) = whole_characters(&self.pending);
        let Ok(text) =
            serde_json::from_str::<String>(&format!("\"{}\"", self.pending.get(..whole).unwrap_or_default()))
        else {
            // Half of a pair of escapes; the rest follows.
            return String::new();
        };
        self.pending.drain(..whole);
        if is_closed {
            self.place = Place::Closed;
        }
        self.sent.push_str(&text);
        text
    }

    /// The input of complete arguments, or of arguments that were cut.
    pub fn whole(&self, json: &str) -> String {
        let arguments: Option<Value> = serde_json::from_str(json).ok();
        match arguments.as_ref().and_then(|arguments| arguments.get("input")).and_then(Value::as_str) {
            Some(input) if input.starts_with(&self.sent) => input.to_owned(),
            _ if self.sent.is_empty() => json.to_owned(),
            _ => self.sent.clone(),
        }
    }

    /// What was not sent of the whole input.
    pub fn rest<'a>(&self, whole: &'a str) -> &'a str {
        whole.strip_prefix(&self.sent).unwrap_or_default()
    }
}

/// How many bytes of a string's inside are complete characters, and whether its end follows.
fn whole_characters(json: &str) -> (usize, bool) {
    let bytes = json.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let length = match (byte, bytes.get(at + 1)) {
            (b'"', _) => return (at, true),
            (b'\\', Some(b'u')) => 6,
            (b'\\', _) => 2,
            _ => 1,
        };
        if at + length > bytes.len() {
            return (at, false);
        }
        at += length;
    }
    (at, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_the_same_however_its_json_is_split() {
        for text in ["", "plain", "*** Begin\n+\"a\\\t\u{1}é日😀\n", "\\\"}"] {
            let json = serde_json::json!({ "input": text }).to_string();
            let bounds: Vec<usize> = (0..=json.len()).filter(|at| json.is_char_boundary(*at)).collect();
            for first in &bounds {
                for second in bounds.iter().filter(|second| *second >= first) {
                    let mut input = CustomInput::default();
                    let parts = [&json[..*first], &json[*first..*second], &json[*second..]];
                    let sent: String = parts.iter().map(|part| input.push(part)).collect();
                    assert_eq!((sent.as_str(), input.whole(&json).as_str()), (text, text));
                    assert_eq!(input.rest(text), "");
                }
            }
        }
    }

    #[test]
    fn pieces_are_sent_as_they_come() {
        let mut input = CustomInput::default();
        let sent: Vec<String> =
            ["{\"inp", "ut\":\"a", "b\\", "n", "c\"", "}"].iter().map(|part| input.push(part)).collect();
        assert_eq!(sent, ["", "a", "b", "\n", "c", ""]);
    }

    #[test]
    fn arguments_of_another_form_come_whole() {
        for (json, expected) in
            [("{\"other\":1}", "{\"other\":1}"), ("{\"a\":1,\"input\":\"x\"}", "x"), ("{\"inp", "{\"inp")]
        {
            let mut input = CustomInput::default();
            assert_eq!(input.push(json), "");
            let whole = input.whole(json);
            assert_eq!((whole.as_str(), input.rest(&whole)), (expected, expected));
        }
        let mut cut = CustomInput::default();
        cut.push("{\"input\":\"ab");
        assert_eq!(cut.whole("{\"input\":\"ab"), "ab");
    }
}
