//! Schemas of all kinds: what is generated for them is valid but for what is not enforced, which is named.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use omnibus_grammar::{Grammar, GrammarLimits, check};
use serde_json::{Value, json};

use crate::common::walk;

/// Walks through a schema's grammar and validates what they write. `lost`: what is not enforced.
fn check_schema(schema: Value, lost: &[&str]) {
    let grammar = Grammar::json_schema(&schema);
    assert_eq!(check(&grammar, &GrammarLimits::default()).unwrap(), lost, "{schema}");
    let enforced = without(schema, lost);
    let options = jsonschema::options().should_validate_formats(true).should_ignore_unknown_formats(true);
    let validator = options.build(&enforced).unwrap();
    for seed in 0..12 {
        let text = walk(&grammar, seed).text;
        let value: Value = match serde_json::from_str(&text) {
            Err(error) if error.to_string().contains("out of range") => continue,
            result => result.unwrap_or_else(|error| panic!("{error}: {text}")),
        };
        let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?} in {text} of {enforced}");
    }
}

/// The schema without the keywords at these pointers. Of `oneOf`, `anyOf` is left.
fn without(mut schema: Value, pointers: &[&str]) -> Value {
    for pointer in pointers {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = schema.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        let removed = parent.remove(key).unwrap();
        if key == "oneOf" {
            parent.insert("anyOf".to_owned(), removed);
        }
    }
    schema
}

fn kind(kind: &str) -> Value {
    json!({ "type": "object", "properties": { "kind": { "const": kind }, "size": { "type": "boolean" } },
        "required": ["kind"], "additionalProperties": false })
}

#[test]
fn alternatives() {
    check_schema(json!({"oneOf": [kind("a"), kind("b"), {"type": "null"}]}), &[]);
    check_schema(json!({"oneOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]}), &[]);
    check_schema(
        json!({"oneOf": [{"type": "boolean"}, {"type": "boolean", "title": "again"}, {"items": {"type": "null"}}]}),
        &["/oneOf"],
    );
    let members = json!({"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}});
    check_schema(
        json!({"type": "object", "properties": members, "additionalProperties": false,
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}, {"required": ["c"]}]}),
        &[],
    );
}

#[test]
fn conditions() {
    let members = json!({"kind": {"enum": ["a", "b", "c"]}, "size": {"enum": [1, 2, 3]}});
    check_schema(
        json!({"type": "object", "properties": members, "required": ["kind"], "additionalProperties": false,
            "if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["size"]},
            "else": {"properties": {"size": {"const": 2}}}}),
        &[],
    );
    check_schema(
        json!({"type": "object", "properties": members, "additionalProperties": false,
            "dependentRequired": {"kind": ["size"]}, "not": {"required": ["size", "kind"]}}),
        &[],
    );
    check_schema(json!({"enum": ["a", 1, null, true], "not": {"enum": [1, "a"]}}), &[]);
    check_schema(json!({"type": "string", "maxLength": 3, "not": {"enum": ["", "a", "ab"]}}), &[]);
    check_schema(json!({"type": "array", "maxItems": 2, "not": {"contains": {"type": "null"}}}), &["/not"]);
}

#[test]
fn members() {
    let text = json!({"type": "string", "maxLength": 3});
    check_schema(
        json!({"type": "object", "propertyNames": {"pattern": "^[a-c]{1,3}$"}, "maxProperties": 2,
            "additionalProperties": text}),
        &[],
    );
    check_schema(
        json!({"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": text}),
        &[],
    );
    check_schema(
        json!({"type": "object", "patternProperties": {"^a[ab]{0,2}$": {"type": "boolean"}, "^[a-c]{0,2}b$": {"enum": [true, 3]}},
            "additionalProperties": false}),
        &[],
    );
    check_schema(
        json!({"type": "object", "allOf": [{"properties": {"a": {"type": "boolean"}}}],
            "properties": {"b": text}, "unevaluatedProperties": false}),
        &[],
    );
    check_schema(json!({"type": "object", "properties": {"a": text, "b": text}, "minProperties": 1}), &[]);
    check_schema(
        json!({"type": "object", "properties": {"a": text, "b": text, "c": text}, "additionalProperties": false,
            "minProperties": 2}),
        &["/minProperties"],
    );
}

#[test]
fn lists_and_texts() {
    check_schema(json!({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": true}), &["/uniqueItems"]);
    check_schema(
        json!({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": true, "maxItems": 1}),
        &[],
    );
    check_schema(json!({"type": "string", "pattern": r"^(?!a)[a-c]\/\w{2}$"}), &["/pattern"]);
    check_schema(json!({"type": "string", "pattern": r"^[a-c]\/[[\w]{2}\_{0,1}$"}), &[]);
    for format in [
        "date",
        "time",
        "date-time",
        "email",
        "hostname",
        "uri-reference",
        "json-pointer",
        "relative-json-pointer",
        "uuid",
        "ipv4",
        "ipv6",
        "duration",
    ] {
        check_schema(json!({"type": "string", "format": format, "maxLength": 60}), &[]);
    }
    check_schema(
        json!({"type": "integer", "minimum": -9_223_372_036_854_775_808_i64, "maximum": u64::MAX}),
        &[],
    );
}

#[test]
fn references() {
    let tree = json!({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object",
        "properties": {"left": {"$ref": "#/$defs/tree", "maxProperties": 1}, "leaf": {"type": "boolean"}},
        "required": ["leaf"], "additionalProperties": false}}});
    check_schema(tree, &["/$defs/tree/properties/left/maxProperties"]);
    let beside = json!({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object",
        "properties": {"next": {"allOf": [{"$ref": "#/$defs/node"}, {"required": ["end"]}]}, "end": {"type": "null"}},
        "additionalProperties": false}}});
    check_schema(beside, &[]);
    check_schema(json!({"items": {"$ref": "other.json"}, "type": "array", "maxItems": 1}), &["/items/$ref"]);
    check_schema(json!({"$ref": "#here", "$defs": {"a/b": {"$anchor": "here", "type": "boolean"}}}), &[]);
}
