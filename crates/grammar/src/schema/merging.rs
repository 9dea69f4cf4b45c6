//! References to definitions that contain themselves, beside schemas that describe the same value.
//!
//! llguidance follows such a reference while it is still compiling the definition, and gives up. So the value's schemas become
//! a definition of their own, in which the reference is replaced by what it means. It is named by its place, so a place within
//! itself refers back to it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::closed::CLOSED;
use super::reader::Definitions;

/// The mark of a definition that replaces a reference: its pointer. It is no keyword.
const PLACE: &str = "\0place";

/// Most references of one schema that are replaced.
const REPLACED_MAX: usize = 500;

/// Keywords whose schemas describe the same value as the schema that they are in.
const IN_PLACE: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Definitions that are made while a schema is lowered.
pub(super) struct Merged<'a> {
    /// The definitions as they were read.
    definitions: &'a Definitions,
    /// What they say, with their objects closed.
    bodies: &'a Map<String, Value>,
    /// The definitions that contain themselves.
    recursive: BTreeSet<String>,
    /// The index of that of each place.
    places: BTreeMap<String, usize>,
    /// Definitions that are not lowered yet: name, schema and place.
    pub pending: Vec<(String, Value, String)>,
    /// References that were replaced so far.
    replaced: usize,
}

/// A schema without the mark of its place, and its place.
pub(super) fn placed<'a>(object: &mut Map<String, Value>, at: &'a str) -> std::borrow::Cow<'a, str> {
    match object.remove(PLACE) {
        Some(Value::String(place)) => place.into(),
        _ => at.into(),
    }
}

impl<'a> Merged<'a> {
    /// None yet.
    pub fn new(definitions: &'a Definitions, bodies: &'a Map<String, Value>) -> Self {
        let recursive = recursive(definitions);
        Self { definitions, bodies, recursive, places: BTreeMap::new(), pending: Vec::new(), replaced: 0 }
    }

    /// A reference to a definition of its own, for a schema with a reference that needs it.
    pub fn reference(&mut self, object: &Map<String, Value>, at: &str) -> Option<Value> {
        let is_alone = object.keys().filter(|key| *key != CLOSED).count() <= 1
            && object.get("allOf").and_then(Value::as_array).is_none_or(|all| all.len() <= 1);
        if is_alone || !self.refers_to_itself(object) {
            return None;
        }
        let index = match self.places.get(at) {
            Some(index) => *index,
            None => {
                let index = self.places.len();
                self.places.insert(at.to_owned(), index);
                let schema = self.replaced(object, &mut Vec::new());
                self.pending.push((name(index), schema, at.to_owned()));
                index
            }
        };
        Some(json!({ "$ref": format!("#/$defs/{}", name(index)) }))
    }

    /// Whether a schema of the value is a reference to a definition that contains itself.
    fn refers_to_itself(&self, object: &Map<String, Value>) -> bool {
        target(object).is_some_and(|name| self.recursive.contains(name))
            || in_place(object).any(|branch| self.refers_to_itself(branch))
    }

    /// The schema with such references replaced. `within`: the definitions that are being replaced.
    fn replaced(&mut self, object: &Map<String, Value>, within: &mut Vec<String>) -> Value {
        let mut object = object.clone();
        for key in IN_PLACE {
            let Some(Value::Array(list)) = object.get_mut(key) else { continue };
            for branch in list {
                if let Value::Object(inner) = branch {
                    *branch = self.replaced(inner, within);
                }
            }
        }
        let Some(name) = target(&object).filter(|name| self.recursive.contains(*name)).map(str::to_owned)
        else {
            return Value::Object(object);
        };
        object.remove("$ref");
        let place = self.definitions.get(&name).map(|definition| definition.pointer.clone());
        let body = match self.bodies.get(&name) {
            // A value that is itself: it limits nothing.
            _ if within.contains(&name) => return Value::Object(object),
            _ if self.replaced >= REPLACED_MAX => json!({ "$ref": format!("#/$defs/{name}") }),
            Some(Value::Object(body)) => {
                self.replaced += 1;
                let mut body = body.clone();
                body.insert(PLACE.to_owned(), place.into());
                within.push(name);
                let body = self.replaced(&body, within);
                within.pop();
                body
            }
            other => other.cloned().unwrap_or(Value::Bool(true)),
        };
        if object.is_empty() {
            return body;
        }
        match object.entry("allOf").or_insert_with(|| json!([])) {
            Value::Array(list) => list.insert(0, body),
            other => *other = json!([body]),
        }
        Value::Object(object)
    }
}

fn name(index: usize) -> String {
    format!("merged_{index}")
}

fn target(object: &Map<String, Value>) -> Option<&str> {
    object.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix("#/$defs/"))
}

fn in_place(object: &Map<String, Value>) -> impl Iterator<Item = &Map<String, Value>> {
    let lists = IN_PLACE.iter().filter_map(|key| object.get(*key)?.as_array());
    lists.flatten().filter_map(Value::as_object)
}

/// The definitions that contain a reference to themselves, directly or through others, and those between two such.
fn recursive(definitions: &Definitions) -> BTreeSet<String> {
    let mut targets: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut referring: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, definition) in definitions {
        let mut found = BTreeSet::new();
        collect(&definition.schema, &mut found);
        found.iter().for_each(|target| referring.entry(target).or_default().push(name));
        targets.insert(name, found);
    }
    // What refers to nothing is in no circle, nor is what refers to such only.
    let mut counts: BTreeMap<&str, usize> =
        targets.iter().map(|(name, found)| (*name, found.len())).collect();
    let mut ends: Vec<&str> =
        counts.iter().filter(|(_, count)| **count == 0).map(|(name, _)| *name).collect();
    while let Some(end) = ends.pop() {
        counts.remove(end);
        for name in referring.get(end).into_iter().flatten() {
            let Some(count) = counts.get_mut(name) else { continue };
            *count = count.saturating_sub(1);
            if *count == 0 {
                ends.push(name);
            }
        }
    }
    counts.into_keys().map(str::to_owned).collect()
}

fn collect<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(object) => {
            found.extend(target(object));
            object.values().for_each(|value| collect(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, found)),
        _ => {}
    }
}
