//! Objects that say nothing of other members have none when they are generated, as with xgrammar and llama.cpp: a model that may
//! invent keys does.
//!
//! An object stays open where a schema beside it may describe more of its members (`allOf` and its references), where it
//! names no member, or where what it requires could not be written otherwise.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::references::escaped;

/// The mark of an object that is closed. It is no keyword: what is enforced of other keywords follows from the schema as it
/// was sent.
pub(super) const CLOSED: &str = "\0closed";

/// Keywords beside `properties` that may describe members of the same object.
const BESIDE: [&str; 11] = [
    "additionalProperties",
    "unevaluatedProperties",
    "patternProperties",
    "propertyNames",
    "allOf",
    "anyOf",
    "oneOf",
    "$ref",
    "if",
    "dependencies",
    "dependentSchemas",
];

/// Keywords whose schemas describe the same value as the schema that they are in.
const SAME_VALUE: [&str; 9] =
    ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependencies", "dependentSchemas"];

/// Closes the objects of a schema.
pub(super) fn close(schema: &mut Value) {
    let mut shared = BTreeSet::new();
    collect_shared(schema, Beside::Nothing, &mut shared);
    let root = if shared.contains("#") { Beside::Members } else { Beside::Nothing };
    close_at(schema, root, "#", &shared);
}

/// What describes members of the same object besides a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    Members,
}

/// What is beside the schemas of a keyword that describe the same value.
fn beside_branches(object: &Map<String, Value>, key: &str, beside: Beside) -> Beside {
    let others = ["properties", "allOf", "anyOf", "oneOf", "$ref"];
    let has_others = others.iter().any(|other| *other != key && object.contains_key(*other));
    if !matches!(key, "anyOf" | "oneOf" | "$ref") || has_others { Beside::Members } else { beside }
}

/// The targets of references that describe members beside others.
fn collect_shared(schema: &Value, beside: Beside, shared: &mut BTreeSet<String>) {
    let Value::Object(object) = schema else { return };
    if let Some(target) = object.get("$ref").and_then(Value::as_str)
        && beside_branches(object, "$ref", beside) == Beside::Members
    {
        shared.insert(target.to_owned());
    }
    for (key, value) in object {
        let inner = match SAME_VALUE.contains(&key.as_str()) {
            true => beside_branches(object, key, beside),
            false => Beside::Nothing,
        };
        children(key, value).for_each(|(_, child)| collect_shared(child, inner, shared));
    }
}

fn close_at(schema: &mut Value, beside: Beside, pointer: &str, shared: &BTreeSet<String>) {
    let Value::Object(object) = schema else { return };
    let branches: Vec<(String, Beside)> =
        SAME_VALUE.iter().map(|key| ((*key).to_owned(), beside_branches(object, key, beside))).collect();
    for (key, value) in object.iter_mut() {
        let of_branch = branches.iter().find(|(branch, _)| branch == key).map(|(_, beside)| *beside);
        for (place, child) in children_mut(key, value) {
            let pointer = format!("{pointer}/{place}");
            let is_shared = shared.contains(&pointer);
            let inner = if is_shared { Beside::Members } else { of_branch.unwrap_or(Beside::Nothing) };
            close_at(child, inner, &pointer, shared);
        }
    }
    if beside == Beside::Nothing && is_complete(object) {
        object.insert(CLOSED.to_owned(), Value::Bool(true));
    }
}

/// Whether a schema names all members that its object may need.
fn is_complete(object: &Map<String, Value>) -> bool {
    let Some(Value::Object(members)) = object.get("properties") else { return false };
    let required = object.get("required").and_then(Value::as_array);
    let is_named = |name: &Value| name.as_str().is_some_and(|name| members.contains_key(name));
    let least = object.get("minProperties").and_then(Value::as_u64).unwrap_or(0);
    !members.is_empty()
        && least <= 1
        && BESIDE.iter().all(|key| !object.contains_key(*key))
        && required.is_none_or(|required| required.iter().all(is_named))
}

/// The schemas in a keyword's value, with their place below the schema.
fn children<'a>(key: &str, value: &'a Value) -> Box<dyn Iterator<Item = (String, &'a Value)> + 'a> {
    let key = key.to_owned();
    match (key.as_str(), value) {
        (
            "properties" | "patternProperties" | "dependencies" | "dependentSchemas" | "$defs",
            Value::Object(members),
        ) => Box::new(members.iter().map(move |(name, child)| (format!("{key}/{}", escaped(name)), child))),
        ("const" | "enum", _) => Box::new(std::iter::empty()),
        (_, Value::Array(list)) => {
            Box::new(list.iter().enumerate().map(move |(at, child)| (format!("{key}/{at}"), child)))
        }
        (_, Value::Object(_)) => Box::new(std::iter::once((key, value))),
        _ => Box::new(std::iter::empty()),
    }
}

fn children_mut<'a>(
    key: &str,
    value: &'a mut Value,
) -> Box<dyn Iterator<Item = (String, &'a mut Value)> + 'a> {
    let key = key.to_owned();
    match (key.as_str(), value) {
        (
            "properties" | "patternProperties" | "dependencies" | "dependentSchemas" | "$defs",
            Value::Object(members),
        ) => {
            Box::new(members.iter_mut().map(move |(name, child)| (format!("{key}/{}", escaped(name)), child)))
        }
        ("const" | "enum", _) => Box::new(std::iter::empty()),
        (_, Value::Array(list)) => {
            Box::new(list.iter_mut().enumerate().map(move |(at, child)| (format!("{key}/{at}"), child)))
        }
        (_, child @ Value::Object(_)) => Box::new(std::iter::once((key, child))),
        _ => Box::new(std::iter::empty()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The pointers of the objects that are closed.
    fn closed(mut schema: Value) -> Vec<String> {
        close(&mut schema);
        let mut found = Vec::new();
        walk(&schema, "#", &mut found);
        found.sort();
        found
    }

    fn walk(schema: &Value, pointer: &str, found: &mut Vec<String>) {
        let Value::Object(object) = schema else { return };
        if object.contains_key(CLOSED) {
            found.push(pointer.to_owned());
        }
        for (key, value) in object {
            children(key, value).for_each(|(place, child)| walk(child, &format!("{pointer}/{place}"), found));
        }
    }

    #[test]
    fn objects_that_name_their_members_are_closed_everywhere() {
        let inner = json!({"type": "object", "properties": {"b": {"properties": {"c": {}}}}});
        let schema = json!({"properties": {"a": {"items": inner}}, "anyOf": [], "$defs": {}});
        assert_eq!(closed(schema), ["#/properties/a/items", "#/properties/a/items/properties/b"]);
        let choice = json!({"anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]});
        assert_eq!(closed(choice), ["#/anyOf/0", "#/anyOf/1"]);
    }

    #[test]
    fn what_says_that_it_is_open_or_names_nothing_stays_open() {
        for schema in [
            json!({"type": "object"}),
            json!({"properties": {}}),
            json!({"properties": {"a": {}}, "additionalProperties": true}),
            json!({"properties": {"a": {}}, "patternProperties": {"^x": {}}}),
            json!({"properties": {"a": {}}, "required": ["a", "b"]}),
            json!({"properties": {"a": {}}, "minProperties": 2}),
            json!({"enum": [{"properties": {"a": {}}}]}),
        ] {
            assert_eq!(closed(schema.clone()), [""; 0], "{schema}");
        }
    }

    #[test]
    fn parts_of_one_object_stay_open() {
        let parts = json!({"allOf": [{"properties": {"a": {}}}, {"$ref": "#/$defs/b"}],
            "$defs": {"b": {"properties": {"b": {}}}, "c": {"properties": {"c": {}}}}});
        assert_eq!(closed(parts), ["#/$defs/c"]);
        let beside = json!({"properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}}]});
        assert_eq!(closed(beside), [""; 0]);
        let nested = json!({"allOf": [{"anyOf": [{"properties": {"a": {"properties": {"b": {}}}}}]}]});
        assert_eq!(closed(nested), ["#/allOf/0/anyOf/0/properties/a"]);
    }
}
