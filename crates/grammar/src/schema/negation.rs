//! The values that a schema does not allow, as a schema, where that is short.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::budget::Budget;
use super::closed::CLOSED;
use super::keywords::TYPES;
use super::reader::Definitions;

/// Most alternatives of a negation.
const ALTERNATIVES_MAX: usize = 8;
/// Most references that are followed from one to the next.
const REFERENCES_MAX: usize = 4;
/// Most characters of texts that are excluded together.
const EXCLUDED_CHARS_MAX: usize = 400;

/// A schema of the values that a schema does not allow. `None` if none is short and exact.
pub(super) fn negation(schema: &Value, definitions: &Definitions, budget: &Budget) -> Option<Value> {
    negated(schema, (definitions, budget), REFERENCES_MAX)
}

/// How many alternatives a schema has at its top.
pub(super) fn alternatives(schema: &Value) -> usize {
    schema.get("anyOf").and_then(Value::as_array).map_or(1, Vec::len)
}

/// The definitions and the budget of a schema.
type Context<'a> = (&'a Definitions, &'a Budget);

fn negated(schema: &Value, context: Context<'_>, depth: usize) -> Option<Value> {
    if !context.1.negation() {
        return None;
    }
    let object = match schema {
        Value::Bool(allows) => return Some(Value::Bool(!allows)),
        Value::Object(object) => object,
        _ => return None,
    };
    let mut found = Vec::new();
    for (key, value) in object.iter().filter(|(key, _)| *key != CLOSED) {
        found.extend(keyword(key, value, context, depth)?);
    }
    found.retain(|one| *one != Value::Bool(false));
    match found.len() {
        0 => Some(Value::Bool(false)),
        1 => found.pop(),
        count if count <= ALTERNATIVES_MAX => Some(json!({ "anyOf": found })),
        _ => None,
    }
}

/// Alternatives that together are what a keyword does not allow.
fn keyword(key: &str, value: &Value, context: Context<'_>, depth: usize) -> Option<Vec<Value>> {
    let negated = |schema: &Value| negated(schema, context, depth);
    let below = |limit: &str| {
        value.as_u64().and_then(|count| count.checked_sub(1)).map(|most| (limit.to_owned(), most))
    };
    let one = |kind: &str, limit: &str, value: Value| Some(vec![json!({ "type": kind, limit: value })]);
    match key {
        "type" => other_types(value).map(|other| vec![other]),
        "const" => other_values(std::slice::from_ref(value)),
        "enum" => other_values(value.as_array()?),
        "required" => {
            let without =
                |name: &Value| Some(json!({ "type": "object", "properties": { name.as_str()?: false } }));
            value.as_array()?.iter().map(without).collect()
        }
        "properties" => {
            let members = value.as_object()?.iter().filter(|(_, member)| **member != Value::Bool(true));
            let other = |(name, member): (&String, &Value)| {
                let member = negated(member)?;
                Some(json!({ "type": "object", "properties": { name: member }, "required": [name] }))
            };
            members.map(other).collect()
        }
        "anyOf" => {
            let all: Option<Vec<Value>> = value.as_array()?.iter().map(negated).collect();
            Some(vec![json!({ "allOf": all? })])
        }
        "allOf" => value.as_array()?.iter().map(negated).collect(),
        "not" => Some(vec![value.clone()]),
        "$ref" => {
            let target = value.as_str()?.strip_prefix("#/$defs/")?;
            let definition = context.0.get(target)?;
            let negated = self::negated(&definition.schema, context, depth.checked_sub(1)?)?;
            Some(vec![negated])
        }
        "minLength" => below("maxLength").map(|(limit, most)| vec![json!({ "type": "string", limit: most })]),
        "minItems" => below("maxItems").map(|(limit, most)| vec![json!({ "type": "array", limit: most })]),
        "maxLength" => one("string", "minLength", (value.as_u64()? + 1).into()),
        "maxItems" => one("array", "minItems", (value.as_u64()? + 1).into()),
        "minimum" => one("number", "exclusiveMaximum", value.clone()),
        "maximum" => one("number", "exclusiveMinimum", value.clone()),
        "exclusiveMinimum" if value.is_number() => one("number", "maximum", value.clone()),
        "exclusiveMaximum" if value.is_number() => one("number", "minimum", value.clone()),
        _ => None,
    }
}

/// The values of other types. A type of whole numbers has no other numbers as a type.
fn other_types(value: &Value) -> Option<Value> {
    let named = |name: &str| match value {
        Value::Array(list) => list.iter().any(|one| one == name),
        one => one == name,
    };
    if named("integer") && !named("number") {
        return None;
    }
    let others: Vec<&str> = TYPES.into_iter().filter(|name| *name != "integer" && !named(name)).collect();
    Some(if others.is_empty() { Value::Bool(false) } else { json!({ "type": others }) })
}

/// The values that are none of these: texts, null, true and false.
fn other_values(values: &[Value]) -> Option<Vec<Value>> {
    let mut texts = Vec::new();
    let mut flags = Vec::new();
    let mut types = vec!["array", "object", "number", "null"];
    for value in values {
        match value {
            Value::String(text) => texts.push(text.chars().collect::<Vec<char>>()),
            Value::Bool(flag) => flags.push(*flag),
            Value::Null => types.retain(|name| *name != "null"),
            _ => return None,
        }
    }
    let mut found = Vec::new();
    if texts.is_empty() {
        types.push("string");
    } else if texts.iter().map(Vec::len).sum::<usize>() <= EXCLUDED_CHARS_MAX {
        texts.sort();
        texts.dedup();
        found.push(json!({ "type": "string", "pattern": format!("^{}$", none_of(&texts)) }));
    } else {
        return None;
    }
    match flags.as_slice() {
        [] => types.push("boolean"),
        flags => found.extend(
            [true, false].iter().filter(|flag| !flags.contains(flag)).map(|flag| json!({ "const": flag })),
        ),
    }
    found.push(json!({ "type": types }));
    Some(found)
}

/// An expression of the texts that are none of these, which are sorted.
fn none_of(texts: &[Vec<char>]) -> String {
    let mut children: BTreeMap<char, Vec<Vec<char>>> = BTreeMap::new();
    let mut excludes_end = false;
    for text in texts {
        match text.split_first() {
            Some((first, rest)) => children.entry(*first).or_default().push(rest.to_vec()),
            None => excludes_end = true,
        }
    }
    let heads: String = children.keys().map(|char| in_class(*char)).collect();
    let mut ways = vec![match heads.is_empty() {
        true => "[\\s\\S]+".to_owned(),
        false => format!("[^{heads}][\\s\\S]*"),
    }];
    ways.extend(children.iter().map(|(char, rest)| format!("[{}]{}", in_class(*char), none_of(rest))));
    format!("(?:{}){}", ways.join("|"), if excludes_end { "" } else { "?" })
}

/// A character within a class.
fn in_class(char: char) -> String {
    match char {
        'a'..='z' | 'A'..='Z' | '0'..='9' | ' ' | '_' => char.to_string(),
        _ if (char as u32) < 0x1_0000 => format!("\\u{:04x}", char as u32),
        _ => char.to_string(),
    }
}

/// A schema that every one of these describes.
pub(super) fn all_of(schemas: Vec<Value>) -> Value {
    let mut kept: Vec<Value> = schemas.into_iter().filter(|schema| *schema != Value::Bool(true)).collect();
    match kept.len() {
        0 => Value::Bool(true),
        1 => kept.pop().unwrap_or(Value::Bool(true)),
        _ => Value::Object(Map::from_iter([("allOf".to_owned(), Value::Array(kept))])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each value is allowed by a schema or by its negation.
    fn check(schema: Value, values: &[Value]) {
        let negation = negation(&schema, &BTreeMap::new(), &Budget::default())
            .unwrap_or_else(|| panic!("no negation of {schema}"));
        for value in values {
            let allows = |schema: &Value| jsonschema::is_valid(schema, value);
            assert_ne!(allows(&schema), allows(&negation), "{value} under {schema}: {negation}");
        }
    }

    #[test]
    fn a_negation_allows_what_the_schema_does_not() {
        let values = [
            json!("a"),
            json!("ab"),
            json!("abc"),
            json!(""),
            json!("b]"),
            json!(1),
            json!(1.5),
            json!(null),
            json!(true),
            json!(false),
            json!([]),
            json!([1]),
            json!({}),
            json!({"a": "a"}),
            json!({"a": 1, "b": 2}),
        ];
        for schema in [
            json!(true),
            json!({"type": "string"}),
            json!({"type": ["null", "number"]}),
            json!({"const": "ab"}),
            json!({"enum": ["a", "ab", "", "b]", null, true]}),
            json!({"required": ["a"]}),
            json!({"required": ["a", "b"]}),
            json!({"properties": {"a": {"const": "a"}}, "required": ["a"]}),
            json!({"anyOf": [{"type": "string"}, {"required": ["b"]}]}),
            json!({"allOf": [{"type": "object"}, {"not": {"required": ["b"]}}]}),
            json!({"minLength": 2}),
            json!({"type": "number", "minimum": 1.2}),
            json!({"maxItems": 0}),
        ] {
            check(schema, &values);
        }
    }

    #[test]
    fn what_has_no_short_negation_has_none() {
        for schema in
            [json!({"type": "integer"}), json!({"const": 1}), json!({"items": {}}), json!({"pattern": "a"})]
        {
            assert_eq!(negation(&schema, &BTreeMap::new(), &Budget::default()), None, "{schema}");
        }
    }
}
