//! JSON schemas: what of them is enforced, and what is given to llguidance.
//!
//! Every schema is accepted. What limits values and cannot be enforced is named by its pointer, or is an error where all must
//! be enforced. An unknown keyword or format is an annotation, as JSON Schema has it.

mod budget;
mod closed;
mod conditions;
mod disjoint;
mod expressions;
mod formats;
mod keywords;
mod losses;
mod lowering;
mod members;
mod merging;
mod negation;
mod one_of;
mod reader;
mod references;
mod text;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::GrammarError;
use crate::limits::GrammarLimits;
use budget::Budget;
use losses::Losses;
use lowering::{Lowering, Room};
use merging::{Merged, placed};

/// What of a schema is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum SchemaUse {
    /// All of it. A keyword that cannot be enforced is an error.
    Strict,
    /// What can be.
    #[default]
    Lenient,
}

/// What is enforced of a schema.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Enforced {
    /// A schema that llguidance compiles.
    pub schema: Value,
    /// JSON pointers of the keywords that are not enforced.
    pub not_enforced: Vec<String>,
    /// Where each definition of the schema comes from.
    pub places: BTreeMap<String, String>,
}

/// Reads a schema from its text.
pub(crate) fn read(
    text: &str,
    schema_use: SchemaUse,
    limits: &GrammarLimits,
) -> Result<Enforced, GrammarError> {
    let schema: Value = serde_json::from_str(text)
        .map_err(|error| GrammarError::at("", format!("the schema is not valid JSON: {error}")))?;
    read_value(&schema, schema_use, limits)
}

/// Reads a schema, and closes its objects.
pub(crate) fn read_value(
    schema: &Value,
    schema_use: SchemaUse,
    limits: &GrammarLimits,
) -> Result<Enforced, GrammarError> {
    let mut losses = Losses::new(schema_use);
    let read = reader::read(schema, limits.depth, &mut losses)?;
    let Value::Object(root) = read.root else {
        let not_enforced = losses.into_pointers();
        return Ok(Enforced { schema: read.root, not_enforced, places: BTreeMap::new() });
    };
    let definitions = read.definitions;
    let (root, closed) = closed_with(root, &definitions);
    let mut lowering = Lowering {
        definitions: &definitions,
        merged: Merged::new(&definitions, &closed),
        budget: Budget::default(),
        losses: &mut losses,
    };
    let mut schema = lowering.schema(Value::Object(root), "", &mut Room::of_value())?;
    let mut lowered = Map::new();
    let mut places = BTreeMap::new();
    for (name, part) in &closed {
        let Some(definition) = definitions.get(name) else { continue };
        let part = lowering.schema(part.clone(), &definition.pointer, &mut Room::of_value())?;
        lowered.insert(name.clone(), part);
        places.insert(name.clone(), definition.pointer.clone());
    }
    while let Some((name, part, at)) = lowering.merged.pending.pop() {
        let part = match part {
            Value::Object(mut part) => {
                let at = placed(&mut part, &at);
                lowering.lower(part, &at, &mut Room::of_value())?
            }
            other => other,
        };
        lowered.insert(name.clone(), part);
        places.insert(name, at);
    }
    if let Value::Object(root) = &mut schema
        && !lowered.is_empty()
    {
        root.insert("$defs".to_owned(), Value::Object(lowered));
    }
    Ok(Enforced { schema, not_enforced: losses.into_pointers(), places })
}

/// The root and the definitions, with their objects closed.
fn closed_with(
    mut root: Map<String, Value>,
    definitions: &reader::Definitions,
) -> (Map<String, Value>, Map<String, Value>) {
    let parts = definitions.iter().map(|(name, definition)| (name.clone(), definition.schema.clone()));
    root.insert("$defs".to_owned(), Value::Object(parts.collect()));
    let mut whole = Value::Object(root);
    closed::close(&mut whole);
    let Value::Object(mut root) = whole else { return (Map::new(), Map::new()) };
    match root.remove("$defs") {
        Some(Value::Object(parts)) => (root, parts),
        _ => (root, Map::new()),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn read_as(schema: &str, schema_use: SchemaUse) -> String {
        match read(schema, schema_use, &GrammarLimits::default()) {
            Ok(Enforced { schema, not_enforced, .. }) if not_enforced.is_empty() => schema.to_string(),
            Ok(Enforced { schema, not_enforced, .. }) => {
                format!("{schema} without {}", not_enforced.join(", "))
            }
            Err(error) => format!("{}: {}", error.path, error.message),
        }
    }

    fn check(schema: &str, expected: Expect) {
        expected.assert_eq(&read_as(schema, SchemaUse::Lenient));
    }

    fn check_strict(schema: &str, expected: Expect) {
        expected.assert_eq(&read_as(schema, SchemaUse::Strict));
    }

    #[test]
    fn annotations_are_left_out_and_members_of_such_names_stay() {
        check_strict(
            r##"{"title": "T", "type": "object", "x-order": 1, "version": 2, "properties": {"title": {"type": "string",
                "description": "D", "uniqueItems": false, "format": "color"}}, "propertyNames": {"type": "string"}}"##,
            expect![[
                r#"{"type":"object","properties":{"title":{"type":"string"}},"additionalProperties":false}"#
            ]],
        );
    }

    #[test]
    fn what_is_not_enforced_is_named_by_its_pointer() {
        let unique = r#"{"properties": {"a/b": {"anyOf": [{"type": "array", "uniqueItems": true}]}}, "required": ["a/b"]}"#;
        check(
            unique,
            expect![[
                r#"{"properties":{"a/b":{"anyOf":[{"type":"array"}]}},"required":["a/b"],"additionalProperties":false} without /properties/a~1b/anyOf/0/uniqueItems"#
            ]],
        );
        check_strict(
            unique,
            expect![
                "properties.a/b.anyOf[0].uniqueItems: at `/properties/a~1b/anyOf/0/uniqueItems`: the keyword `uniqueItems` cannot be enforced here"
            ],
        );
        check_strict(
            r#"{"items": {"format": "regex"}}"#,
            expect!["items.format: at `/items/format`: the format `regex` cannot be enforced"],
        );
        let remote = r#"{"$ref": "https://example.com/a.json"}"#;
        check(remote, expect!["{} without /$ref"]);
        check_strict(
            remote,
            expect![
                "$ref: at `/$ref`: `https://example.com/a.json` is outside of the schema; use `#/$defs/…`"
            ],
        );
    }

    #[test]
    fn a_definition_that_nothing_refers_to_does_not_matter() {
        check_strict(
            r#"{"type": "null", "$defs": {"a": {"$ref": "b.json"}}}"#,
            expect![[r#"{"type":"null"}"#]],
        );
    }

    #[test]
    fn what_is_no_schema_is_an_error_at_its_place() {
        check(
            r#"{"properties": 3}"#,
            expect!["properties: at `/properties`: it must be an object of schemas"],
        );
        check("[]", expect![": at the root of the schema: a schema is an object or true or false"]);
        check(
            r#"{"items": [{"minLength": -1}]}"#,
            expect![
                "items[0].minLength: at `/items/0/minLength`: it must be a whole number that is not negative"
            ],
        );
        check(
            r#"{"type": "text"}"#,
            expect![
                "type: at `/type`: it must be null, boolean, integer, number, string, array, object, or a list of these"
            ],
        );
    }

    #[test]
    fn references_become_definitions_and_forms_of_old_drafts_those_of_new_ones() {
        check_strict(
            r##"{"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/a", "type": "null",
                "definitions": {"a": {"items": [{"$ref": "#b"}], "additionalItems": false}, "c": {"$id": "#b"}}}"##,
            expect![[
                r##"{"$ref":"#/$defs/a_0","$defs":{"a_0":{"prefixItems":[{"$ref":"#/$defs/c_1"}],"items":false},"c_1":{}}}"##
            ]],
        );
    }

    #[test]
    fn conditions_become_alternatives() {
        check_strict(
            r#"{"if": {"required": ["a"]}, "then": {"required": ["b"]}}"#,
            expect![[
                r#"{"allOf":[{"anyOf":[{"allOf":[{"required":["a"]},{"required":["b"]}]},{"type":"object","properties":{"a":false}}]}]}"#
            ]],
        );
        check_strict(
            r#"{"oneOf": [{"required": ["a"]}, {"type": "string"}, {"type": "null"}], "not": {"type": "array"}}"#,
            expect![[
                r#"{"anyOf":[{"allOf":[{"required":["a"]},{"type":["null","boolean","number","array","object"]},{"type":["boolean","number","string","array","object"]}]},{"allOf":[{"type":"string"},{"type":"object","properties":{"a":false}}]},{"allOf":[{"type":"null"},{"type":"object","properties":{"a":false}}]}],"allOf":[{"type":["null","boolean","number","string","object"]}]}"#
            ]],
        );
        check(
            r#"{"oneOf": [{"type": "integer"}, {"type": "number"}]}"#,
            expect![[r#"{"anyOf":[{"type":"integer"},{"type":"number"}]} without /oneOf"#]],
        );
    }

    #[test]
    fn an_object_of_too_many_optional_members_is_named() {
        let members: Vec<String> = (0..3_001).map(|index| format!(r#""p{index}": {{}}"#)).collect();
        check(
            &format!(r#"{{"items": {{"properties": {{{}}}}}}}"#, members.join(",")),
            expect![
                "items.properties: at `/items/properties`: 3001 members are not required; an object may have 3000 such"
            ],
        );
    }

    #[test]
    fn depth_is_limited() {
        let deep = format!("{}{{}}{}", r#"{"items":"#.repeat(65), "}".repeat(65));
        let error = read(&deep, SchemaUse::Lenient, &GrammarLimits::default()).unwrap_err();
        assert!(error.message.contains("64 levels"), "{error:?}");
    }
}
