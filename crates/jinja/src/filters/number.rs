//! Filters of one number.

use crate::arguments::{ArgumentDefaults, CallArguments};
use crate::error::RenderError;
use crate::float;
use crate::runtime::Runtime;
use crate::strings::parse_int;
use crate::value::Value;

impl Runtime {
    pub fn number_filter(
        &mut self,
        name: &str,
        value: &Value,
        given: CallArguments,
    ) -> Result<Value, RenderError> {
        match name {
            "int" => {
                let [default, base] = given.bind(name, &["default", "base"])?;
                let base = base.int_or(10)?;
                let parsed = match value {
                    Value::Float(value) if value.is_finite() => Some(*value as i128),
                    Value::Text(text) => {
                        self.meter.spend_bytes(text.len())?;
                        parse_int(text, base)
                            .or_else(|| text.trim().parse::<f64>().ok().map(|value| value as i128))
                    }
                    _ => value.as_int(),
                };
                Ok(parsed.map(Value::Int).or(default).unwrap_or(Value::Int(0)))
            }
            "float" => {
                let [default] = given.bind(name, &["default"])?;
                self.meter.spend_bytes(value.as_str().map_or(0, str::len))?;
                let parsed = match value {
                    Value::Text(text) => text.trim().replace('_', "").parse().ok(),
                    _ => value.as_float(),
                };
                Ok(parsed.map(Value::Float).or(default).unwrap_or(Value::Float(0.0)))
            }
            "abs" => {
                let [] = given.bind(name, &[])?;
                match value {
                    Value::Float(value) => Ok(Value::Float(value.abs())),
                    _ => match value.as_int().and_then(i128::checked_abs) {
                        Some(value) => Ok(Value::Int(value)),
                        None => RenderError::failed(format!(
                            "bad operand type for abs(): '{}'",
                            value.type_name()
                        )),
                    },
                }
            }
            _ => {
                let [precision, method] = given.bind(name, &["precision", "method"])?;
                let Some(number) = value.as_float() else {
                    value.defined()?;
                    return RenderError::failed(format!(
                        "type {} doesn't define __round__ method",
                        value.type_name()
                    ));
                };
                let precision = precision.int_or(0)?.clamp(-300, 300) as i32;
                let scale = 10f64.powi(precision);
                Ok(match &*method.text_or("common")? {
                    "common" if precision >= 0 && value.as_int().is_some() => {
                        Value::Int(value.as_int().unwrap_or_default())
                    }
                    "common" => Value::Float(float::round(number, precision)),
                    "ceil" => Value::Float((number * scale).ceil() / scale),
                    "floor" => Value::Float((number * scale).floor() / scale),
                    _ => return RenderError::failed("method must be common, ceil or floor"),
                })
            }
        }
    }
}
