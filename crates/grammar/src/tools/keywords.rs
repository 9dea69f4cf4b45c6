//! What keywords of a JSON schema say.

use serde_json::{Map, Value};

/// The members of an object's schema.
pub(super) fn members(schema: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

/// Whether a member must be there.
pub(super) fn is_required(schema: &Map<String, Value>, name: &str) -> bool {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().any(|required| required.as_str() == Some(name))
}

/// A member's schema with the definitions that its references may point to.
pub(super) fn with_definitions(member: &Value, schema: &Map<String, Value>) -> Map<String, Value> {
    let mut member = member.as_object().cloned().unwrap_or_default();
    for key in ["$defs", "definitions"] {
        if let Some(definitions) = schema.get(key) {
            member.insert(key.to_owned(), definitions.clone());
        }
    }
    member
}

/// The values of an enumeration.
pub(super) fn constants(schema: &Map<String, Value>) -> Option<Vec<Value>> {
    match (schema.get("const"), schema.get("enum").and_then(Value::as_array)) {
        (Some(value), _) => Some(vec![value.clone()]),
        (None, Some(values)) => Some(values.clone()),
        (None, None) => None,
    }
}
