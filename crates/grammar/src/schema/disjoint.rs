//! Whether no value matches two schemas at once.

use std::cell::Cell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::budget::Budget;
use super::reader::Definitions;

/// How deep members are compared.
const DEPTH_MAX: usize = 4;
/// Most schemas that describe one value and are compared.
const PARTS_MAX: usize = 32;
/// Most comparisons for one answer.
const COMPARISONS_MAX: usize = 2_000;

/// Whether no value matches both schemas. False where that is not seen.
pub(super) fn disjoint(one: &Value, other: &Value, definitions: &Definitions, budget: &Budget) -> bool {
    Comparison { definitions, budget, compared: Cell::new(0) }.disjoint(one, other, DEPTH_MAX)
}

struct Comparison<'a> {
    definitions: &'a Definitions,
    budget: &'a Budget,
    compared: Cell<usize>,
}

/// A schema with the schemas that describe the same value.
#[derive(Default)]
struct Parts<'a> {
    objects: Vec<&'a Map<String, Value>>,
    is_false: bool,
}

impl<'a> Comparison<'a> {
    fn disjoint(&self, one: &'a Value, other: &'a Value, depth: usize) -> bool {
        let (parts, others) = (self.parts(one), self.parts(other));
        let is_apart = |branch| self.disjoint_parts(branch, &parts, depth);
        self.disjoint_parts(one, &others, depth)
            || others.alternatives().any(|branches| branches.iter().all(is_apart))
    }

    /// Whether a schema and parts of another are disjoint.
    fn disjoint_parts(&self, one: &'a Value, parts: &Parts<'a>, depth: usize) -> bool {
        let Some(depth) = depth.checked_sub(1).filter(|_| self.is_within_budget()) else { return false };
        let one = self.parts(one);
        if one.is_false || parts.is_false {
            return true;
        }
        let (types, others) = (self.types(&one, depth), self.types(parts, depth));
        if types.is_disjoint(&others) {
            return true;
        }
        if let (Some(values), Some(others)) = (one.values(), parts.values())
            && !values.iter().any(|value| others.iter().any(|other| is_equal(value, other)))
        {
            return true;
        }
        let is_object = |types: &BTreeSet<&str>| types.iter().all(|name| *name == "object");
        if one
            .alternatives()
            .any(|branches| branches.iter().all(|branch| self.disjoint_parts(branch, parts, depth)))
        {
            return true;
        }
        (is_object(&types) || is_object(&others)) && self.disjoint_members(&one, parts, depth)
    }

    /// Whether a member that one of them requires cannot be as both say.
    fn disjoint_members(&self, one: &Parts<'a>, other: &Parts<'a>, depth: usize) -> bool {
        let names: BTreeSet<&str> = one.required().chain(other.required()).collect();
        names.into_iter().any(|name| {
            let others = other.member(name);
            let is_false = |schemas: &[&Value]| schemas.iter().any(|schema| **schema == Value::Bool(false));
            let own = one.member(name);
            is_false(&own)
                || is_false(&others)
                || own.iter().any(|own| others.iter().any(|other| self.disjoint(own, other, depth)))
        })
    }

    fn is_within_budget(&self) -> bool {
        self.compared.set(self.compared.get() + 1);
        self.compared.get() <= COMPARISONS_MAX && self.budget.comparison()
    }

    fn parts(&self, schema: &'a Value) -> Parts<'a> {
        let mut parts = Parts::default();
        let mut pending = vec![schema];
        while let Some(schema) = pending.pop() {
            let object = match schema {
                Value::Object(object) => object,
                other => {
                    parts.is_false |= *other == Value::Bool(false);
                    continue;
                }
            };
            if parts.objects.len() >= PARTS_MAX {
                break;
            }
            parts.objects.push(object);
            pending.extend(object.get("allOf").and_then(Value::as_array).into_iter().flatten());
            let target = object.get("$ref").and_then(Value::as_str);
            let name = target.and_then(|target| target.strip_prefix("#/$defs/"));
            pending.extend(name.and_then(|name| self.definitions.get(name)).map(|found| &found.schema));
        }
        parts
    }

    /// The types of values that may match.
    fn types(&self, parts: &Parts<'a>, depth: usize) -> BTreeSet<&'a str> {
        let mut types = BTreeSet::from(["null", "boolean", "number", "string", "array", "object"]);
        for object in &parts.objects {
            let named: Option<BTreeSet<&str>> = match object.get("type") {
                Some(Value::String(one)) => Some(BTreeSet::from([as_type(one)])),
                Some(Value::Array(list)) => {
                    Some(list.iter().filter_map(Value::as_str).map(as_type).collect())
                }
                _ => None,
            };
            let of_values = values(object).map(|values| values.into_iter().map(type_of).collect());
            for allowed in [named, of_values].into_iter().flatten() {
                types.retain(|name| allowed.contains(name));
            }
        }
        if depth > 0 {
            for branches in parts.alternatives() {
                let of_branch = |branch| self.types(&self.parts(branch), depth - 1);
                let allowed: BTreeSet<&str> = branches.iter().flat_map(of_branch).collect();
                types.retain(|name| allowed.contains(name));
            }
        }
        types
    }
}

impl<'a> Parts<'a> {
    /// The values that it names, if it names all.
    fn values(&self) -> Option<Vec<&'a Value>> {
        self.objects.iter().find_map(|object| values(object))
    }

    fn alternatives(&self) -> impl Iterator<Item = &'a Vec<Value>> + '_ {
        let lists = self.objects.iter().flat_map(|object| [object.get("anyOf"), object.get("oneOf")]);
        lists.flatten().filter_map(Value::as_array)
    }

    fn required(&self) -> impl Iterator<Item = &'a str> + '_ {
        let lists = self.objects.iter().filter_map(|object| object.get("required")?.as_array());
        lists.flatten().filter_map(Value::as_str)
    }

    /// What describes a member.
    fn member(&self, name: &str) -> Vec<&'a Value> {
        let described = self.objects.iter().filter_map(|object| {
            let own = object.get("properties").and_then(|members| members.get(name));
            own.or_else(|| {
                object.get("additionalProperties").filter(|_| !object.contains_key("patternProperties"))
            })
        });
        described.collect()
    }
}

fn values(object: &Map<String, Value>) -> Option<Vec<&Value>> {
    match (object.get("const"), object.get("enum").and_then(Value::as_array)) {
        (Some(value), _) => Some(vec![value]),
        (None, Some(values)) => Some(values.iter().collect()),
        (None, None) => None,
    }
}

fn as_type(name: &str) -> &str {
    if name == "integer" { "number" } else { name }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Whether two values are equal as JSON Schema compares them: 1 is 1.0.
fn is_equal(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one == other,
        // Lists and objects may hold such numbers.
        (None, None) => {
            one == other || ((one.is_array() || one.is_object()) && type_of(one) == type_of(other))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(one: Value, other: Value, expected: bool) {
        let definitions = Definitions::from([(
            "text".to_owned(),
            crate::schema::reader::Definition {
                pointer: "/$defs/text".to_owned(),
                schema: json!({"type": "string"}),
            },
        )]);
        assert_eq!(disjoint(&one, &other, &definitions, &Budget::default()), expected, "{one} and {other}");
        assert_eq!(disjoint(&other, &one, &definitions, &Budget::default()), expected, "{other} and {one}");
    }

    #[test]
    fn types_values_and_required_members_tell_schemas_apart() {
        check(json!({"type": "string"}), json!({"type": ["null", "array"]}), true);
        check(json!({"type": "integer"}), json!({"type": "number"}), false);
        check(json!({"enum": [1, "a"]}), json!({"const": "b"}), true);
        check(json!({"enum": [1, "a"]}), json!({"const": 1.0}), false);
        check(json!({"$ref": "#/$defs/text"}), json!({"type": "object"}), true);
        check(json!({"anyOf": [{"type": "null"}, {"type": "array"}]}), json!({"$ref": "#/$defs/text"}), true);
        let kind = |kind: &str| json!({"type": "object", "properties": {"kind": {"const": kind}}, "required": ["kind"]});
        check(kind("a"), kind("b"), true);
        check(json!({"allOf": [kind("a")]}), kind("b"), true);
        check(kind("a"), kind("a"), false);
        check(
            json!({"properties": {"kind": {"const": "a"}}}),
            json!({"properties": {"kind": {"const": "b"}}}),
            false,
        );
        check(kind("a"), json!({"type": "object", "additionalProperties": false}), true);
        check(json!({"required": ["a"]}), json!({"required": ["b"]}), false);
        check(json!(false), json!({}), true);
    }
}
