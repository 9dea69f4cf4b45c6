//! Arguments of a call, checked against the tool's schema.

use jsonschema::Validator;
use serde_json::{Map, Value};

use crate::error::CallError;

/// Most errors that are named.
const ERRORS_MAX: usize = 3;
/// Most characters of one.
const ERROR_CHARS_MAX: usize = 300;

/// Arguments that match a schema.
#[derive(Debug, Clone, PartialEq)]
pub struct Arguments(pub(crate) Map<String, Value>);

impl Arguments {
    /// Reads the JSON that a model wrote. Empty text is an empty object.
    pub fn read(json: &str, schema: &Map<String, Value>) -> Result<Self, CallError> {
        if json.trim().is_empty() {
            return Self::check(Map::new(), schema);
        }
        match serde_json::from_str(json) {
            Ok(Value::Object(fields)) => Self::check(fields, schema),
            Ok(_) => Err(CallError::Arguments("they must be a JSON object".to_owned())),
            Err(error) => Err(CallError::Arguments(format!("they are not JSON: {error}"))),
        }
    }

    /// Checks arguments. A schema that cannot be used checks nothing: the server does.
    pub fn check(fields: Map<String, Value>, schema: &Map<String, Value>) -> Result<Self, CallError> {
        let value = Value::Object(fields);
        if let Some(validator) = validator(schema) {
            let errors: Vec<String> =
                validator.iter_errors(&value).take(ERRORS_MAX).map(|error| line(&error)).collect();
            if !errors.is_empty() {
                return Err(CallError::Arguments(errors.join("; ")));
            }
        }
        match value {
            Value::Object(fields) => Ok(Self(fields)),
            _ => Ok(Self(Map::new())),
        }
    }
}

fn line(error: &jsonschema::ValidationError<'_>) -> String {
    let at = error.instance_path().to_string();
    let text = if at.is_empty() { error.to_string() } else { format!("{at}: {error}") };
    text.chars().take(ERROR_CHARS_MAX).collect()
}

fn validator(schema: &Map<String, Value>) -> Option<Validator> {
    match jsonschema::validator_for(&Value::Object(schema.clone())) {
        Ok(validator) => Some(validator),
        Err(error) => {
            tracing::debug!(%error, "the schema of a tool is not valid");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Map<String, Value>, String> {
        let schema = serde_json::json!({
            "type": "object", "required": ["city"], "additionalProperties": false,
            "properties": {"city": {"type": "string"}, "days": {"$ref": "#/$defs/days"}},
            "$defs": {"days": {"type": "integer", "maximum": 7}},
        });
        let Value::Object(schema) = schema else { unreachable!() };
        Arguments::read(json, &schema).map(|arguments| arguments.0).map_err(|error| error.to_string())
    }

    #[test]
    fn arguments_match_the_schema_or_say_where_not() {
        assert_eq!(read(r#"{"city": "Oslo", "days": 3}"#).unwrap()["days"], 3);
        for (json, part) in [
            ("", "\"city\" is a required property"),
            ("[]", "must be a JSON object"),
            ("{\"city\"", "not JSON"),
            (r#"{"city": 1}"#, "/city: 1 is not of type \"string\""),
            (r#"{"city": "Oslo", "days": 9}"#, "/days: 9 is greater than the maximum of 7"),
            (r#"{"city": "Oslo", "x": 1}"#, "'x' was unexpected"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(part), "{json}: {error}");
        }
    }

    #[test]
    fn a_schema_that_is_none_is_left_to_the_server() {
        let Value::Object(schema) = serde_json::json!({"type": 5}) else { unreachable!() };
        assert!(Arguments::read("{\"a\": 1}", &schema).is_ok());
        let Value::Object(remote) = serde_json::json!({"$ref": "http://127.0.0.1:1/x"}) else {
            unreachable!()
        };
        assert!(Arguments::read("{}", &remote).is_ok());
    }
}
