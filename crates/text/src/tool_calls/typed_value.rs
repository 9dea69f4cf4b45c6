//! The value of a parameter that was written as bare text.

use super::schemas::Types;
use crate::syntax::{Input, JsonCopy, Quotes, push_json_string};

/// The JSON of a text, by the types that the schema allows.
///
/// A string stays one, whatever it looks like. What may be of any type is what it is as JSON, else a string. Where a
/// string is one of several types, the text is of another if it is written like it.
pub(crate) fn typed_value(text: &str, types: Types) -> String {
    let mut string = String::new();
    push_json_string(&mut string, text);
    if types == Types::STRING {
        return string;
    }
    if types == Types::ANY {
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        return if is_json { canonical(text).unwrap_or(string) } else { string };
    }
    match canonical(text) {
        Some(json) if types.has(Types::of_json(&json)) => json,
        // The model knows better than to write text for a number: a schema may say less than its description.
        _ => string,
    }
}

/// The one value that the text is, in JSON or Python.
fn canonical(text: &str) -> Option<String> {
    let mut input = Input::default();
    input.push(text);
    input.end();
    let mut json = String::new();
    JsonCopy::new(Quotes::Json).copy(&mut input, &mut json).ok()?;
    input.rest().trim().is_empty().then_some(json)
}
