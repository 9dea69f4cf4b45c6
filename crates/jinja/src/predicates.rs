//! The tests of Jinja, as in `value is defined`.

use std::rc::Rc;

use crate::arguments::CallArguments;
use crate::arithmetic;
use crate::ast::{Comparison, Operator};
use crate::error::RenderError;
use crate::runtime::Runtime;
use crate::value::Value;

impl Runtime {
    /// `value is name(…)`.
    pub fn test(&mut self, name: &str, value: &Value, given: CallArguments) -> Result<bool, RenderError> {
        if let Some(comparison) = comparison(name) {
            let [other] = given.bind(name, &["other"])?;
            return self.compare(comparison, value, &other.unwrap_or(Value::None));
        }
        match name {
            "divisibleby" => {
                let [by] = given.bind(name, &["num"])?;
                let rest = arithmetic::compute(Operator::Modulo, value, &by.unwrap_or(Value::None))?;
                self.compare(Comparison::Equal, &rest, &Value::Int(0))
            }
            "sameas" => {
                let [other] = given.bind(name, &["other"])?;
                Ok(same(value, &other.unwrap_or(Value::None)))
            }
            _ => {
                let [] = given.bind(name, &[])?;
                self.plain_test(name, value)
            }
        }
    }

    fn plain_test(&mut self, name: &str, value: &Value) -> Result<bool, RenderError> {
        Ok(match name {
            "defined" => !matches!(value, Value::Undefined(_) | Value::Unsafe(_)),
            "undefined" => matches!(value, Value::Undefined(_) | Value::Unsafe(_)),
            "none" => matches!(value, Value::None),
            "boolean" => matches!(value, Value::Bool(_)),
            "true" => matches!(value, Value::Bool(true)),
            "false" => matches!(value, Value::Bool(false)),
            "integer" => matches!(value, Value::Int(_)),
            "float" => matches!(value, Value::Float(_)),
            "number" => matches!(value, Value::Int(_) | Value::Float(_) | Value::Bool(_)),
            "string" => matches!(value, Value::Text(_)),
            "mapping" => matches!(value, Value::Dict(_)),
            "sequence" => {
                matches!(
                    value,
                    Value::Text(_) | Value::List(_) | Value::Tuple(_) | Value::Dict(_) | Value::Undefined(_)
                )
            }
            "iterable" => matches!(
                value,
                Value::Text(_)
                    | Value::List(_)
                    | Value::Tuple(_)
                    | Value::Dict(_)
                    | Value::View(..)
                    | Value::Generator(_)
                    | Value::Loop(_)
                    | Value::Undefined(_)
            ),
            "callable" => {
                matches!(
                    value,
                    Value::Macro(_)
                        | Value::Function(_)
                        | Value::Method(_)
                        | Value::Joiner(_)
                        | Value::Loop(_)
                )
            }
            "odd" | "even" => {
                let rest = arithmetic::compute(Operator::Modulo, value, &Value::Int(2))?;
                self.compare(Comparison::Equal, &rest, &Value::Int(i128::from(name == "odd")))?
            }
            "lower" | "upper" => {
                let text = value.to_text(&self.meter)?;
                self.meter.spend_bytes(text.len())?;
                let cased = |is: fn(char) -> bool| text.chars().any(is);
                let (lower, upper) = (cased(char::is_lowercase), cased(char::is_uppercase));
                if name == "lower" { lower && !upper } else { upper && !lower }
            }
            "escaped" => false,
            _ => return RenderError::failed(format!("No test named '{name}' found.")),
        })
    }
}

fn comparison(name: &str) -> Option<Comparison> {
    Some(match name {
        "eq" | "equalto" | "==" => Comparison::Equal,
        "ne" | "!=" => Comparison::NotEqual,
        "lt" | "lessthan" | "<" => Comparison::Less,
        "le" | "<=" => Comparison::LessEqual,
        "gt" | "greaterthan" | ">" => Comparison::Greater,
        "ge" | ">=" => Comparison::GreaterEqual,
        "in" => Comparison::In,
        _ => return None,
    })
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::None, Value::None) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Text(a), Value::Text(b)) => std::ptr::eq::<str>(&**a, &**b),
        (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => Rc::ptr_eq(a, b),
        (Value::Dict(a), Value::Dict(b)) => Rc::ptr_eq(a, b),
        (Value::Namespace(a), Value::Namespace(b)) => Rc::ptr_eq(a, b),
        _ => false,
    }
}
