//! JSON schemas: which keywords are supported, and what is given to llguidance.
//!
//! A keyword that limits values is honoured or refused with its path; annotations have no effect and are left out.

mod closed;

use serde_json::{Map, Value};

use crate::error::GrammarError;
use crate::limits::GrammarLimits;

/// What a keyword's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keyword {
    /// A schema, or for `items` of old drafts a list of them.
    Schema,
    /// Schemas by name.
    Schemas,
    /// A list of schemas.
    List,
    /// A value that llguidance checks.
    Plain,
    /// The name of a format.
    Format,
    /// A reference to another part of the schema.
    Reference,
    /// It says nothing about which values are valid.
    Annotation,
}

/// The supported keywords. All others are refused, but for those of [`is_neutral`].
const KEYWORDS: &[(&str, Keyword)] = &[
    ("properties", Keyword::Schemas),
    ("patternProperties", Keyword::Schemas),
    ("$defs", Keyword::Schemas),
    ("definitions", Keyword::Schemas),
    ("additionalProperties", Keyword::Schema),
    ("items", Keyword::Schema),
    ("additionalItems", Keyword::Schema),
    ("prefixItems", Keyword::List),
    ("anyOf", Keyword::List),
    ("oneOf", Keyword::List),
    ("allOf", Keyword::List),
    ("$ref", Keyword::Reference),
    ("format", Keyword::Format),
    ("type", Keyword::Plain),
    ("const", Keyword::Plain),
    ("enum", Keyword::Plain),
    ("required", Keyword::Plain),
    ("minProperties", Keyword::Plain),
    ("maxProperties", Keyword::Plain),
    ("minItems", Keyword::Plain),
    ("maxItems", Keyword::Plain),
    ("minLength", Keyword::Plain),
    ("maxLength", Keyword::Plain),
    ("pattern", Keyword::Plain),
    ("minimum", Keyword::Plain),
    ("maximum", Keyword::Plain),
    ("exclusiveMinimum", Keyword::Plain),
    ("exclusiveMaximum", Keyword::Plain),
    ("multipleOf", Keyword::Plain),
    ("$schema", Keyword::Plain),
    ("$id", Keyword::Plain),
    ("id", Keyword::Plain),
    ("$anchor", Keyword::Plain),
    ("title", Keyword::Annotation),
    ("description", Keyword::Annotation),
    ("default", Keyword::Annotation),
    ("example", Keyword::Annotation),
    ("examples", Keyword::Annotation),
    ("deprecated", Keyword::Annotation),
    ("readOnly", Keyword::Annotation),
    ("writeOnly", Keyword::Annotation),
    ("contentMediaType", Keyword::Annotation),
    ("contentEncoding", Keyword::Annotation),
    ("discriminator", Keyword::Annotation),
    ("$comment", Keyword::Annotation),
    ("$vocabulary", Keyword::Annotation),
];

/// The supported formats.
const FORMATS: &[&str] =
    &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

/// What a tool's schema is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaUse {
    /// Arguments match it. What is not supported is an error.
    Strict,
    /// Arguments match what is supported of it.
    Lenient,
}

/// Reads a schema, checks it, and leaves out its annotations.
pub(crate) fn read(text: &str, limits: &GrammarLimits) -> Result<Value, GrammarError> {
    let schema = serde_json::from_str(text)
        .map_err(|error| GrammarError::at("", format!("the schema is not valid JSON: {error}")))?;
    read_value(schema, SchemaUse::Strict, limits)
}

/// Checks a schema, leaves out its annotations, and closes its objects.
pub(crate) fn read_value(
    schema: Value,
    schema_use: SchemaUse,
    limits: &GrammarLimits,
) -> Result<Value, GrammarError> {
    let mut schema = Checker { depth_max: limits.depth, schema_use }.schema(schema, &Path::default())?;
    closed::close(&mut schema);
    Ok(schema)
}

struct Checker {
    depth_max: usize,
    schema_use: SchemaUse,
}

/// A place in the schema.
#[derive(Debug, Clone, Default)]
struct Path {
    text: String,
    depth: usize,
}

impl Path {
    fn join(&self, key: &str) -> Self {
        let separator = if self.text.is_empty() || key.starts_with('[') { "" } else { "." };
        Self { text: format!("{}{separator}{key}", self.text), depth: self.depth + 1 }
    }

    fn error(&self, message: impl Into<String>) -> GrammarError {
        GrammarError::at(self.text.clone(), message)
    }
}

impl Checker {
    fn schema(&self, schema: Value, path: &Path) -> Result<Value, GrammarError> {
        if path.depth > self.depth_max {
            let most = self.depth_max;
            return Err(path.error(format!("the schema is nested more than {most} levels deep")));
        }
        let object = match schema {
            Value::Object(object) => object,
            Value::Bool(_) => return Ok(schema),
            _ => return Err(path.error("a schema is an object or true or false")),
        };
        let mut kept = Map::new();
        for (key, value) in object {
            let at = path.join(&key);
            match (self.keyword(&key, value, &at), self.schema_use) {
                (Ok(Some(value)), _) => {
                    kept.insert(key, value);
                }
                (Ok(None), _) | (Err(_), SchemaUse::Lenient) => {}
                (Err(error), SchemaUse::Strict) => return Err(error),
            }
        }
        Ok(Value::Object(kept))
    }

    /// What is kept of a keyword's value. `None` for one that limits nothing.
    fn keyword(&self, key: &str, value: Value, at: &Path) -> Result<Option<Value>, GrammarError> {
        let known = KEYWORDS.iter().find(|(name, _)| *name == key).map(|(_, keyword)| *keyword);
        let value = match known {
            Some(Keyword::Annotation) => return Ok(None),
            None if is_neutral(key, &value) => return Ok(None),
            None => return Err(at.error(format!("the keyword `{key}` is not supported"))),
            Some(Keyword::Plain) => value,
            Some(Keyword::Format) => format(value, at)?,
            Some(Keyword::Reference) => reference(value, at)?,
            Some(Keyword::Schema) if value.is_array() => self.list(value, at)?,
            Some(Keyword::Schema) => self.schema(value, at)?,
            Some(Keyword::List) => self.list(value, at)?,
            Some(Keyword::Schemas) => self.schemas(value, at)?,
        };
        Ok(Some(value))
    }

    fn list(&self, value: Value, path: &Path) -> Result<Value, GrammarError> {
        let Value::Array(list) = value else { return Err(path.error("it must be a list of schemas")) };
        let item = |(at, item)| self.schema(item, &path.join(&format!("[{at}]")));
        list.into_iter().enumerate().map(item).collect::<Result<Vec<_>, _>>().map(Value::Array)
    }

    fn schemas(&self, value: Value, path: &Path) -> Result<Value, GrammarError> {
        let Value::Object(object) = value else {
            return Err(path.error("it must be an object of schemas"));
        };
        let member = |(name, schema): (String, Value)| {
            let schema = self.schema(schema, &path.join(&name))?;
            Ok((name, schema))
        };
        object.into_iter().map(member).collect::<Result<Map<_, _>, _>>().map(Value::Object)
    }
}

/// Whether a keyword that is not supported limits nothing with this value, as schema generators write some.
fn is_neutral(key: &str, value: &Value) -> bool {
    match key {
        "uniqueItems" | "nullable" | "unevaluatedProperties" | "unevaluatedItems" => {
            *value == Value::Bool(key.starts_with("unevaluated"))
        }
        "propertyNames" => {
            let is_string = || value.get("type").and_then(Value::as_str) == Some("string");
            let len = value.as_object().map(Map::len);
            *value == Value::Bool(true) || len == Some(0) || (len == Some(1) && is_string())
        }
        _ => key.starts_with("x-"),
    }
}

fn format(value: Value, path: &Path) -> Result<Value, GrammarError> {
    match value.as_str() {
        Some(name) if FORMATS.contains(&name) => Ok(value),
        Some(name) => {
            let known = FORMATS.join(", ");
            Err(path.error(format!("the format `{name}` is not supported; these are: {known}")))
        }
        None => Err(path.error("a format is a string")),
    }
}

fn reference(value: Value, path: &Path) -> Result<Value, GrammarError> {
    match value.as_str() {
        Some(target) if target.starts_with('#') => Ok(value),
        Some(target) => Err(path.error(format!("`{target}` is outside of the schema; use `#/$defs/…`"))),
        None => Err(path.error("a reference is a string")),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(schema: &str, expected: Expect) {
        let result = match read(schema, &GrammarLimits::default()) {
            Ok(value) => value.to_string(),
            Err(error) => format!("{}: {}", error.path, error.message),
        };
        expected.assert_eq(&result);
    }

    #[test]
    fn annotations_are_left_out_and_members_of_the_same_name_stay() {
        check(
            r##"{"title": "T", "type": "object", "x-order": 1, "properties": {"title": {"type": "string",
                "description": "D", "uniqueItems": false}}, "propertyNames": {"type": "string"}}"##,
            expect![[
                r#"{"type":"object","properties":{"title":{"type":"string"}},"additionalProperties":false}"#
            ]],
        );
    }

    #[test]
    fn what_is_not_supported_is_named_with_its_path() {
        check(
            r#"{"properties": {"a": {"anyOf": [{"type": "array", "uniqueItems": true}]}}}"#,
            expect!["properties.a.anyOf[0].uniqueItems: the keyword `uniqueItems` is not supported"],
        );
        check(r#"{"$defs": {"a": {"not": {}}}}"#, expect!["$defs.a.not: the keyword `not` is not supported"]);
        check(
            r#"{"items": {"format": "color"}}"#,
            expect![
                "items.format: the format `color` is not supported; these are: date-time, time, date, duration, email, hostname, ipv4, ipv6, uuid, uri"
            ],
        );
        check(
            r#"{"$ref": "https://example.com/a.json"}"#,
            expect!["$ref: `https://example.com/a.json` is outside of the schema; use `#/$defs/…`"],
        );
        check(r#"{"properties": 3}"#, expect!["properties: it must be an object of schemas"]);
        check("[]", expect![": a schema is an object or true or false"]);
    }

    #[test]
    fn depth_is_limited() {
        let deep = format!("{}{{}}{}", r#"{"items":"#.repeat(65), "}".repeat(65));
        let error = read(&deep, &GrammarLimits::default()).unwrap_err();
        assert!(error.message.contains("64 levels"), "{error:?}");
    }
}
