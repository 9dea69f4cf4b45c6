//! Parses a JSON body strictly: duplicate keys, invalid UTF-8 and non-finite numbers are refused.
//!
//! Invariant: depth and size are checked before memory is allocated for them; keys are unique.

use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::error::ApiError;

/// Nesting depth at which a body is refused.
pub const DEPTH_MAX: usize = 128;
/// Most values in one body, so that a small body cannot allocate a hundred times its size.
pub const VALUES_MAX: usize = 1 << 20;

/// Parses a body.
pub fn parse(body: &[u8]) -> Result<Value, ApiError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(ApiError::malformed("the body is empty; send a JSON object"));
    }
    count_values(body)?;
    let text = std::str::from_utf8(body).map_err(|error| {
        ApiError::malformed(format!("the body is not UTF-8 at byte {}", error.valid_up_to()))
    })?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Strict.deserialize(&mut reader).map_err(malformed)?;
    reader.end().map_err(malformed)?;
    Ok(value)
}

fn malformed(error: serde_json::Error) -> ApiError {
    ApiError::malformed(format!("the body is not valid JSON: {error}"))
}

/// How many values a body has, by the brackets and commas outside of strings. Fails for too many, and for too many levels.
pub fn count_values(body: &[u8]) -> Result<usize, ApiError> {
    let (mut depth, mut values) = (0_usize, 1_usize);
    let mut rest = body;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' => rest = after_string(rest),
            b'{' | b'[' => (depth, values) = (depth + 1, values + 1),
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
        if depth >= DEPTH_MAX {
            return Err(ApiError::malformed(format!("the body is nested {DEPTH_MAX} levels deep or more")));
        }
        if values > VALUES_MAX {
            return Err(ApiError::malformed(format!("the body has more than {VALUES_MAX} values")));
        }
    }
    Ok(values)
}

/// What follows the string that these bytes begin in.
fn after_string(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        let is_end = rest.get(at) == Some(&b'"');
        rest = rest.get(at + if is_end { 1 } else { 2 }..).unwrap_or_default();
        if is_end {
            return rest;
        }
    }
    &[]
}

struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(Strict)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(Strict)?;
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("the key `{key}` appears twice in one object")));
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(body: &[u8], expected: Expect) {
        let result = match parse(body) {
            Ok(value) => value.to_string(),
            Err(error) => error.message().to_owned(),
        };
        expected.assert_eq(&result);
    }

    #[test]
    fn ambiguous_json_is_refused() {
        check(b"{\"a\":[1,-2,0.5,\"\\u00e9\",null]}", expect![[r#"{"a":[1,-2,0.5,"é",null]}"#]]);
        check(b" \n", expect!["the body is empty; send a JSON object"]);
        check(
            b"{\"a\":1,\"a\":2}",
            expect![
                "the body is not valid JSON: the key `a` appears twice in one object at line 1 column 13"
            ],
        );
        check(
            b"{\"a\":\"\\ud800\"}",
            expect![[r#"the body is not valid JSON: unexpected end of hex escape at line 1 column 13"#]],
        );
        check(b"\"\xff\"", expect!["the body is not UTF-8 at byte 1"]);
        check(b"[NaN]", expect!["the body is not valid JSON: expected value at line 1 column 2"]);
        check(b"[1e999]", expect!["the body is not valid JSON: number out of range at line 1 column 6"]);
        check(b"{} {}", expect!["the body is not valid JSON: trailing characters at line 1 column 4"]);
    }

    #[test]
    fn depth_and_size_are_limited_before_parsing() {
        let brackets = "[".repeat(200);
        let quoted = format!("[\"\\\"{brackets}\", \"\\\\\", [0]]");
        assert!(parse(quoted.as_bytes()).is_ok(), "brackets in strings are no nesting");
        check(
            format!("[\"\\\\\", {brackets}").as_bytes(),
            expect!["the body is nested 128 levels deep or more"],
        );
        check("[".repeat(100_000).as_bytes(), expect!["the body is nested 128 levels deep or more"]);
        let deepest = format!("{}{}", "[".repeat(127), "]".repeat(127));
        assert!(parse(deepest.as_bytes()).is_ok());
        check(
            format!("[0{}]", ",0".repeat(VALUES_MAX)).as_bytes(),
            expect!["the body has more than 1048576 values"],
        );
        check(b"\"[[[[{{{{,,,,\\\"[[\"", expect![[r#""[[[[{{{{,,,,\"[[""#]]);
    }
}
