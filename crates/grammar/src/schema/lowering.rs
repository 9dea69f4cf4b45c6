//! Turns a schema that was read into one that llguidance compiles, and adds what it leaves out to the losses.
//!
//! Values of the result are values of the schema but for what the losses name. It may have fewer: where two patterns match
//! one name, a member of that name is as both say.

use serde_json::{Map, Value, json};

use super::budget::Budget;
use super::closed::CLOSED;
use super::losses::Losses;
use super::merging::{Merged, placed};
use super::reader::Definitions;
use super::references::escaped;
use crate::error::GrammarError;

/// Lowers the parts of one schema.
pub(super) struct Lowering<'a> {
    /// The definitions as they were read.
    pub definitions: &'a Definitions,
    /// Definitions that are made.
    pub merged: Merged<'a>,
    /// The work that is left.
    pub budget: Budget,
    pub losses: &'a mut Losses,
}

/// How many more alternatives a value's schemas may be split into. A schema of each way that conditions can turn out is
/// their product.
pub(super) struct Room(usize);

/// Most alternatives of one value that conditions are written as.
const ALTERNATIVES_MAX: usize = 16;

/// The largest bound of numbers, with 18 digits.
const BOUND_MAX: i64 = 1_000_000_000_000_000_000;

impl Room {
    /// The room of a value.
    pub fn of_value() -> Self {
        Self(ALTERNATIVES_MAX)
    }

    /// Whether there is room for a split into so many alternatives. If so it is taken.
    pub fn take(&mut self, alternatives: usize) -> bool {
        let left = self.0 / alternatives.max(1);
        if left > 0 {
            self.0 = left;
        }
        left > 0
    }
}

/// A schema with the pointer of the keyword that it is made from.
pub(super) struct Conjunct {
    pub schema: Value,
    pub at: String,
}

impl Lowering<'_> {
    /// What is enforced of the schema at a pointer.
    pub fn schema(&mut self, schema: Value, at: &str, room: &mut Room) -> Result<Value, GrammarError> {
        let Value::Object(mut object) = schema else { return Ok(schema) };
        let at = placed(&mut object, at);
        match self.merged.reference(&object, &at) {
            Some(reference) => Ok(reference),
            None => self.lower(object, &at, room),
        }
    }

    /// The schema of a value without references to definitions that contain it.
    pub fn lower(
        &mut self,
        mut object: Map<String, Value>,
        at: &str,
        room: &mut Room,
    ) -> Result<Value, GrammarError> {
        let mut conjuncts = Vec::new();
        self.conditions(&mut object, at, room, &mut conjuncts)?;
        self.one_of(&mut object, at, room, &mut conjuncts)?;
        self.unevaluated(&mut object, at)?;
        self.names(&mut object, at)?;
        self.patterns_of_names(&mut object, at)?;
        self.counts(&mut object, at)?;
        bounds(&mut object);
        self.items(&mut object, at)?;
        self.text(&mut object, at, &mut conjuncts)?;
        let mut lowered = Map::new();
        for (key, value) in object {
            let place = format!("{at}/{}", escaped(&key));
            let value = self.value(&key, value, &place, room)?;
            lowered.insert(key, value);
        }
        let mut all = Vec::new();
        for Conjunct { schema, at } in conjuncts {
            let schema = self.schema(schema, &at, room)?;
            if schema != Value::Bool(true) {
                all.push(schema);
            }
        }
        if !all.is_empty() {
            match lowered.entry("allOf").or_insert_with(|| json!([])) {
                Value::Array(list) => list.extend(all),
                other => *other = Value::Array(all),
            }
        }
        one_form_of_items(&mut lowered);
        if lowered.remove(CLOSED).is_some() {
            lowered.insert("additionalProperties".to_owned(), Value::Bool(false));
        }
        Ok(Value::Object(lowered))
    }

    fn value(&mut self, key: &str, value: Value, at: &str, room: &mut Room) -> Result<Value, GrammarError> {
        match (key, value) {
            ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => self.list(list, at, room).map(Value::Array),
            ("prefixItems" | "items", Value::Array(list)) => {
                let mut lowered = Vec::new();
                for (index, item) in list.into_iter().enumerate() {
                    lowered.push(self.schema(item, &format!("{at}/{index}"), &mut Room::of_value())?);
                }
                Ok(Value::Array(lowered))
            }
            ("properties" | "patternProperties", Value::Object(members)) => {
                let mut lowered = Map::new();
                for (name, member) in members {
                    let place = format!("{at}/{}", escaped(&name));
                    lowered.insert(name, self.schema(member, &place, &mut Room::of_value())?);
                }
                Ok(Value::Object(lowered))
            }
            ("items" | "additionalItems" | "additionalProperties", schema) => {
                self.schema(schema, at, &mut Room::of_value())
            }
            (_, plain) => Ok(plain),
        }
    }

    /// Schemas that describe one value.
    fn list(&mut self, list: Vec<Value>, at: &str, room: &mut Room) -> Result<Vec<Value>, GrammarError> {
        let mut lowered = Vec::new();
        for (index, schema) in list.into_iter().enumerate() {
            lowered.push(self.schema(schema, &format!("{at}/{index}"), room)?);
        }
        Ok(lowered)
    }
}

/// A list of items as `prefixItems` with `items` for what follows, as drafts write it since 2020.
fn one_form_of_items(schema: &mut Map<String, Value>) {
    let others = schema.remove("additionalItems");
    if schema.get("items").is_some_and(Value::is_array) {
        if let Some(first) = schema.remove("items") {
            schema.insert("prefixItems".to_owned(), first);
        }
        if let Some(others) = others {
            schema.insert("items".to_owned(), others);
        }
    }
}

/// Bounds further out than any that llguidance can write are taken as the last that it can.
fn bounds(schema: &mut Map<String, Value>) {
    let clamp = |schema: &mut Map<String, Value>, key: &str, is_beyond: fn(f64) -> bool, bound: i64| {
        if schema.get(key).and_then(Value::as_f64).is_some_and(is_beyond) {
            schema.insert(key.to_owned(), bound.into());
        }
    };
    for key in ["minimum", "exclusiveMinimum"] {
        clamp(schema, key, |bound| bound < -(BOUND_MAX as f64), -BOUND_MAX);
    }
    for key in ["maximum", "exclusiveMaximum"] {
        clamp(schema, key, |bound| bound > BOUND_MAX as f64, BOUND_MAX);
    }
}
