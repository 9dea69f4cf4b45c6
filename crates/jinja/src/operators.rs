//! Operators on values: comparison, containment, addition and the like.

use std::cmp::Ordering;

use crate::ast::{Comparison, Operator};
use crate::error::RenderError;
use crate::meter::Meter;
use crate::runtime::Runtime;
use crate::strings::escape;
use crate::value::{Text, Value};
use crate::{arithmetic, format};

impl Runtime {
    /// Sets `key` in the entries of a dict that is being made.
    pub fn insert(
        &self,
        entries: &mut Vec<(Value, Value)>,
        key: Value,
        value: Value,
    ) -> Result<(), RenderError> {
        if matches!(key, Value::List(_) | Value::Dict(_)) {
            return RenderError::failed(format!("unhashable type: '{}'", key.type_name()));
        }
        self.meter.spend(entries.len() / 8)?;
        for (found, old) in entries.iter_mut() {
            if found.equals(&key, &self.meter)? {
                *old = value;
                return Ok(());
            }
        }
        entries.push((key, value));
        Ok(())
    }

    pub fn compare(&self, comparison: Comparison, left: &Value, right: &Value) -> Result<bool, RenderError> {
        let meter = &self.meter;
        let order = |symbol| left.order(right, symbol, meter);
        Ok(match comparison {
            Comparison::Equal => left.equals(right, meter)?,
            Comparison::NotEqual => !left.equals(right, meter)?,
            Comparison::Less => order("<")? == Some(Ordering::Less),
            Comparison::LessEqual => matches!(order("<=")?, Some(Ordering::Less | Ordering::Equal)),
            Comparison::Greater => order(">")? == Some(Ordering::Greater),
            Comparison::GreaterEqual => matches!(order(">=")?, Some(Ordering::Greater | Ordering::Equal)),
            Comparison::In => self.contains(right, left)?,
            Comparison::NotIn => !self.contains(right, left)?,
        })
    }

    fn contains(&self, whole: &Value, part: &Value) -> Result<bool, RenderError> {
        match whole {
            Value::Text(text) => match part.as_str() {
                Some(part) => {
                    self.meter.spend_bytes(text.len())?;
                    Ok(text.contains(part))
                }
                None => RenderError::failed(format!(
                    "'in <string>' requires string as left operand, not {}",
                    part.type_name()
                )),
            },
            Value::Dict(_) => Ok(whole.entry(part, &self.meter)?.is_some()),
            Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
                RenderError::failed(format!("argument of type '{}' is not iterable", whole.type_name()))
            }
            _ => {
                for item in whole.iterate(&self.meter)?.iter() {
                    self.meter.spend(1)?;
                    if item.equals(part, &self.meter)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }

    pub fn operate(&self, operator: Operator, left: &Value, right: &Value) -> Result<Value, RenderError> {
        let meter = &self.meter;
        match (operator, left, right) {
            (Operator::Add, Value::Text(a), Value::Text(b)) => {
                let markup = |text: &Text| matches!(text, Text::Markup(_));
                let escapes = markup(a) != markup(b);
                let mut out = meter.new_text()?;
                for part in [a, b] {
                    if escapes && !markup(part) { escape(part, &mut out)? } else { out.push(part)? }
                }
                let sum = out.into_value();
                if markup(a) || markup(b) { sum.into_markup(meter) } else { Ok(sum) }
            }
            (Operator::Add, Value::List(a), Value::List(b)) => meter.list(joined(meter, a, b)?),
            (Operator::Add, Value::Tuple(a), Value::Tuple(b)) => meter.tuple(joined(meter, a, b)?),
            (Operator::Add, Value::Text(_) | Value::List(_) | Value::Tuple(_), _) => {
                right.defined()?;
                let (to, other) = (left.type_name(), right.type_name());
                RenderError::failed(format!("can only concatenate {to} (not \"{other}\") to {to}"))
            }
            (Operator::Multiply, Value::Text(text), Value::Int(times))
            | (Operator::Multiply, Value::Int(times), Value::Text(text)) => {
                let mut out = meter.new_text()?;
                out.repeat(text, usize::try_from((*times).max(0)).unwrap_or(usize::MAX))?;
                Ok(out.into_value())
            }
            (Operator::Multiply, Value::List(items), Value::Int(times))
            | (Operator::Multiply, Value::Int(times), Value::List(items)) => {
                let times = usize::try_from((*times).max(0)).unwrap_or(usize::MAX);
                let count = items.len().checked_mul(times).ok_or(RenderError::Limit("memory"))?;
                meter.ensure_free(
                    count.checked_mul(size_of::<Value>()).ok_or(RenderError::Limit("memory"))?,
                )?;
                meter.list(items.iter().cycle().take(count).cloned().collect())
            }
            (Operator::Modulo, Value::Text(text), _) => format::percent(text, right, self),
            _ => arithmetic::compute(operator, left, right),
        }
    }
}

fn joined(meter: &Meter, a: &[Value], b: &[Value]) -> Result<Vec<Value>, RenderError> {
    meter.ensure_free((a.len() + b.len()) * size_of::<Value>())?;
    Ok(a.iter().chain(b).cloned().collect())
}
