//! Objects and numbers of JSON.

use serde_json::{Map, Value};

/// The fields of an object.
pub fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// The fields of both objects.
pub fn joined(first: Value, second: Value) -> Value {
    let mut fields = object(first);
    fields.extend(object(second));
    Value::Object(fields)
}

/// A float32 of the file as its shortest decimal: 1e-05, not 9.999999747378752e-06.
pub fn short(number: f64) -> f64 {
    (number as f32).to_string().parse().unwrap_or(number)
}
