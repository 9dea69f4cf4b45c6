//! Equality and order of values, as in Python.

use std::cmp::Ordering;
use std::rc::Rc;

use super::Value;
use crate::error::RenderError;
use crate::meter::Meter;

impl Value {
    pub fn equals(&self, other: &Value, meter: &Meter) -> Result<bool, RenderError> {
        Ok(match (self, other) {
            (Value::Text(a), Value::Text(b)) => {
                if a.len() > 64 {
                    meter.spend_bytes(a.len())?;
                }
                **a == **b
            }
            (Value::None, Value::None) | (Value::Undefined(_), Value::Undefined(_)) => true,
            (Value::List(a), Value::List(b))
            | (Value::Tuple(a), Value::Tuple(b))
            | (Value::View(_, a), Value::View(_, b)) => {
                meter.spend(a.len())?;
                if a.len() != b.len() {
                    return Ok(false);
                }
                for (a, b) in a.iter().zip(b.iter()) {
                    if !a.equals(b, meter)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Value::Dict(a), Value::Dict(b)) => {
                if a.len() != b.len() {
                    return Ok(false);
                }
                for (key, value) in a.iter() {
                    match other.entry(key, meter)? {
                        Some(found) if found.equals(value, meter)? => {}
                        _ => return Ok(false),
                    }
                }
                true
            }
            (Value::Namespace(a), Value::Namespace(b)) => Rc::ptr_eq(a, b),
            (Value::Macro(a), Value::Macro(b)) => Rc::ptr_eq(a, b),
            (Value::Int(a), Value::Int(b)) => a == b,
            _ => match (self.as_float(), other.as_float()) {
                (Some(a), Some(b)) => a == b,
                _ => false,
            },
        })
    }

    /// Python's order; `symbol` is the operator that its error names.
    pub fn order(&self, other: &Value, symbol: &str, meter: &Meter) -> Result<Option<Ordering>, RenderError> {
        match (self, other) {
            (Value::Int(a), Value::Int(b)) => return Ok(Some(a.cmp(b))),
            (Value::Text(a), Value::Text(b)) => {
                meter.spend_bytes(a.len().min(b.len()))?;
                return Ok(Some((**a).cmp(&**b)));
            }
            (Value::List(a), Value::List(b)) | (Value::Tuple(a), Value::Tuple(b)) => {
                for (a, b) in a.iter().zip(b.iter()) {
                    meter.spend(1)?;
                    if !a.equals(b, meter)? {
                        return a.order(b, symbol, meter);
                    }
                }
                return Ok(Some(a.len().cmp(&b.len())));
            }
            _ => {}
        }
        if let (Some(a), Some(b)) = (self.as_float(), other.as_float()) {
            return Ok(a.partial_cmp(&b));
        }
        self.defined()?;
        other.defined()?;
        let (left, right) = (self.type_name(), other.type_name());
        RenderError::failed(format!("'{symbol}' not supported between instances of '{left}' and '{right}'"))
    }
}
