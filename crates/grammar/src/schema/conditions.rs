//! `not`, `if` and dependencies between members: written as alternatives, where these are few.

use serde_json::{Map, Value, json};

use super::lowering::{Conjunct, Lowering, Room};
use super::negation::{all_of, alternatives, negation};
use super::references::escaped;
use crate::error::GrammarError;

impl Lowering<'_> {
    /// Takes conditions out of a schema. What they come to is added to what also describes its value.
    pub(super) fn conditions(
        &mut self,
        object: &mut Map<String, Value>,
        at: &str,
        room: &mut Room,
        conjuncts: &mut Vec<Conjunct>,
    ) -> Result<(), GrammarError> {
        if let Some(excluded) = object.remove("not") {
            let at = format!("{at}/not");
            match self.exclusion(object, &excluded) {
                Some(Value::Bool(true)) => {}
                Some(other) if room.take(alternatives(&other)) => {
                    conjuncts.push(Conjunct { schema: other, at })
                }
                _ => self.losses.add(&at)?,
            }
        }
        let (then, otherwise) = (object.remove("then"), object.remove("else"));
        if let Some(condition) = object.remove("if")
            && (then.is_some() || otherwise.is_some())
        {
            let at = format!("{at}/if");
            match negation(&condition, self.definitions, &self.budget) {
                Some(opposite) if room.take(1 + alternatives(&opposite)) => {
                    let holds = all_of(std::iter::once(condition).chain(then).collect());
                    let fails = all_of(std::iter::once(opposite).chain(otherwise).collect());
                    conjuncts.push(Conjunct { schema: json!({ "anyOf": [holds, fails] }), at });
                }
                _ => self.losses.add(&at)?,
            }
        }
        for key in ["dependencies", "dependentRequired", "dependentSchemas"] {
            let Some(Value::Object(dependencies)) = object.remove(key) else { continue };
            for (name, dependency) in dependencies {
                let at = format!("{at}/{key}/{}", escaped(&name));
                self.dependency(object, (&name, dependency, at), room, conjuncts)?;
            }
        }
        Ok(())
    }

    /// What `not` leaves. Values that it excludes of an enumeration are taken out of that.
    fn exclusion(&self, object: &mut Map<String, Value>, excluded: &Value) -> Option<Value> {
        let only = excluded.as_object().filter(|excluded| excluded.len() == 1);
        let values = only.and_then(|only| match (only.get("const"), only.get("enum")) {
            (Some(value), _) => Some(vec![value.clone()]),
            (None, Some(Value::Array(values))) => Some(values.clone()),
            _ => None,
        });
        if let (Some(values), Some(Value::Array(own))) = (values, object.get_mut("enum")) {
            own.retain(|value| !values.contains(value));
            return Some(Value::Bool(true));
        }
        negation(excluded, self.definitions, &self.budget)
    }

    /// What must hold if an object has a member.
    fn dependency(
        &mut self,
        object: &Map<String, Value>,
        (name, dependency, at): (&str, Value, String),
        room: &mut Room,
        conjuncts: &mut Vec<Conjunct>,
    ) -> Result<(), GrammarError> {
        let required = object.get("required").and_then(Value::as_array);
        let is_required = |name: &Value| required.is_some_and(|required| required.contains(name));
        let dependency = match dependency {
            Value::Array(names) if names.iter().all(is_required) => return Ok(()),
            Value::Array(names) => json!({ "required": names }),
            schema => schema,
        };
        let has_it = json!({ "required": [name] });
        if is_required(&name.into()) {
            conjuncts.push(Conjunct { schema: dependency, at });
        } else if room.take(2) {
            let without = json!({ "properties": { name: false } });
            let with = all_of(vec![has_it, dependency]);
            conjuncts.push(Conjunct { schema: json!({ "anyOf": [without, with] }), at });
        } else {
            self.losses.add(&at)?;
        }
        Ok(())
    }
}
