//! Reads a schema into one form: without annotations, and each reference to a definition below `$defs`.
//!
//! Definitions that nothing refers to are left out, so what is wrong in them does not matter.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::keywords::{Keyword, keyword, mistake};
use super::losses::Losses;
use super::references::{References, escaped};
use crate::error::GrammarError;

/// The definitions of a schema by name.
pub(super) type Definitions = BTreeMap<String, Definition>;

/// A schema in one form.
pub(super) struct Read {
    /// The root.
    pub root: Value,
    /// The definitions that references name.
    pub definitions: Definitions,
}

/// A part of the schema that references name.
pub(super) struct Definition {
    /// Where it is in the schema as it was sent.
    pub pointer: String,
    /// What it says.
    pub schema: Value,
}

/// Reads a schema. `depth_max`: the deepest nesting.
pub(super) fn read(schema: &Value, depth_max: usize, losses: &mut Losses) -> Result<Read, GrammarError> {
    let is_old = is_old(schema);
    let references = References::of(schema);
    let mut reader =
        Reader { references, depth_max, is_old, names: BTreeMap::new(), pending: Vec::new(), losses };
    let root = reader.schema(schema, "", 0)?;
    let mut definitions = BTreeMap::new();
    while let Some((name, pointer)) = reader.pending.pop() {
        let Some(part) = schema.pointer(&pointer) else { continue };
        let depth = pointer.matches('/').count();
        let part = reader.schema(part, &pointer, depth)?;
        definitions.insert(name, Definition { pointer, schema: part });
    }
    Ok(Read { root, definitions })
}

/// Whether what stands beside a reference has no effect: the drafts 3 to 7 say so.
fn is_old(schema: &Value) -> bool {
    let draft = schema.get("$schema").and_then(Value::as_str).unwrap_or_default();
    ["draft-03", "draft-04", "draft-05", "draft-06", "draft-07"].iter().any(|old| draft.contains(old))
}

struct Reader<'a, 'l> {
    references: References<'a>,
    depth_max: usize,
    is_old: bool,
    /// Names of definitions by pointer.
    names: BTreeMap<String, String>,
    /// Definitions that are not read yet, with their pointers.
    pending: Vec<(String, String)>,
    losses: &'l mut Losses,
}

impl Reader<'_, '_> {
    fn schema(&mut self, schema: &Value, at: &str, depth: usize) -> Result<Value, GrammarError> {
        if depth > self.depth_max {
            let most = self.depth_max;
            return Err(GrammarError::in_schema(at, format!("it is nested more than {most} levels deep")));
        }
        let object = match schema {
            Value::Object(object) => object,
            Value::Bool(_) => return Ok(schema.clone()),
            _ => return Err(GrammarError::in_schema(at, "a schema is an object or true or false")),
        };
        let mut kept = Map::new();
        for key in ["$ref", "$dynamicRef", "$recursiveRef"] {
            let Some(target) = object.get(key) else { continue };
            if let Some(name) = self.reference(target, at, &format!("{at}/{key}"))? {
                kept.insert("$ref".to_owned(), format!("#/$defs/{name}").into());
            }
            if self.is_old {
                return Ok(Value::Object(kept));
            }
        }
        for (key, value) in object {
            let place = format!("{at}/{}", escaped(key));
            let Some(known) = keyword(key) else { continue };
            if let Some(value) = self.value(known, value, &place, depth + 1)? {
                kept.insert(key.clone(), value);
            }
        }
        kept.retain(|key, value| !is_neutral(key, value));
        Ok(Value::Object(kept))
    }

    /// What is kept of a keyword's value.
    fn value(
        &mut self,
        known: Keyword,
        value: &Value,
        at: &str,
        depth: usize,
    ) -> Result<Option<Value>, GrammarError> {
        if is_draft_3(known, value) {
            self.losses.add(at)?;
            return Ok(None);
        }
        if let Some(right) = mistake(known, value) {
            return Err(GrammarError::in_schema(at, format!("it must be {right}")));
        }
        let value = match known {
            Keyword::Schema => self.schema(value, at, depth)?,
            Keyword::Items if value.is_array() => self.list(value, at, depth)?,
            Keyword::Items => self.schema(value, at, depth)?,
            Keyword::List => self.list(value, at, depth)?,
            Keyword::Schemas | Keyword::Dependencies => self.schemas(known, value, at, depth)?,
            Keyword::Count => value.as_u64().or(value.as_f64().map(|count| count as u64)).into(),
            _ => value.clone(),
        };
        Ok(Some(value))
    }

    fn list(&mut self, value: &Value, at: &str, depth: usize) -> Result<Value, GrammarError> {
        let Value::Array(list) = value else {
            return Err(GrammarError::in_schema(at, "it must be a list of schemas"));
        };
        let item = |(index, item)| self.schema(item, &format!("{at}/{index}"), depth + 1);
        list.iter().enumerate().map(item).collect::<Result<Vec<_>, _>>().map(Value::Array)
    }

    fn schemas(
        &mut self,
        known: Keyword,
        value: &Value,
        at: &str,
        depth: usize,
    ) -> Result<Value, GrammarError> {
        let Value::Object(object) = value else {
            return Err(GrammarError::in_schema(at, "it must be an object of schemas"));
        };
        let mut kept = Map::new();
        for (name, schema) in object {
            let place = format!("{at}/{}", escaped(name));
            let names = match schema {
                Value::Array(list) => Some(list.iter().all(Value::is_string)),
                Value::String(_) => Some(true),
                _ => None,
            };
            let schema = match names {
                Some(true) if known == Keyword::Dependencies => match schema {
                    Value::Array(_) => schema.clone(),
                    one => Value::Array(vec![one.clone()]),
                },
                _ => self.schema(schema, &place, depth + 1)?,
            };
            kept.insert(name.clone(), schema);
        }
        Ok(Value::Object(kept))
    }

    /// The name of the definition that a reference means. `None` if it is not in the schema.
    fn reference(&mut self, target: &Value, at: &str, place: &str) -> Result<Option<String>, GrammarError> {
        let Some(target) = target.as_str() else {
            return Err(GrammarError::in_schema(place, "a reference is a string"));
        };
        let Some(pointer) = self.references.resolve(target, at) else {
            let local = target.starts_with('#');
            let why = if local { "is not in the schema" } else { "is outside of the schema" };
            self.losses.add_because(place, &format!("`{target}` {why}; use `#/$defs/…`"))?;
            return Ok(None);
        };
        if let Some(name) = self.names.get(&pointer) {
            return Ok(Some(name.clone()));
        }
        let last = pointer.rsplit('/').next().unwrap_or_default();
        let plain: String = last.chars().filter(|char| char.is_ascii_alphanumeric()).take(40).collect();
        let name = format!("{plain}_{}", self.names.len());
        self.names.insert(pointer.clone(), name.clone());
        self.pending.push((name.clone(), pointer));
        Ok(Some(name))
    }
}

/// Whether a value has a form of draft 3: `required: true` in a member, the type `any`.
fn is_draft_3(known: Keyword, value: &Value) -> bool {
    match known {
        Keyword::Names => value.is_boolean(),
        Keyword::Types => *value == "any",
        _ => false,
    }
}

/// Whether a keyword limits nothing with this value, as schema generators write some.
fn is_neutral(key: &str, value: &Value) -> bool {
    let is_empty =
        |schema: &Value| *schema == Value::Bool(true) || schema.as_object().is_some_and(Map::is_empty);
    match key {
        "propertyNames" => {
            let only = value.as_object().filter(|object| object.len() == 1);
            is_empty(value)
                || only.is_some_and(|object| object.get("type").is_some_and(|kind| *kind == "string"))
        }
        "unevaluatedProperties" | "unevaluatedItems" => is_empty(value),
        _ => false,
    }
}
