//! Attributes, indices and slices of values.
//!
//! Invariant: no attribute leads out of the values a template was given; methods that would change a value can be
//! named but not called.

use std::rc::Rc;
use std::sync::Arc;

use crate::ast::Name;
use crate::error::RenderError;
use crate::methods;
use crate::runtime::Runtime;
use crate::value::{LoopState, UndefinedReason, Value};

impl Runtime {
    /// `value.name`: a method or attribute first, then an entry, as Jinja looks.
    pub fn attribute(&self, value: &Value, name: &Name) -> Result<Value, RenderError> {
        value.defined()?;
        if let Some(method) = methods::find(value, name) {
            return Ok(match method {
                methods::Found::Method(method) => Value::Method(Rc::new((value.clone(), method))),
                methods::Found::Mutator => Value::Unsafe(Rc::new((value.type_name(), Arc::clone(name)))),
            });
        }
        let found = match value {
            Value::Dict(_) => {
                value.entry(&Value::Text(crate::value::Text::Literal(Arc::clone(name))), &self.meter)?
            }
            Value::Namespace(entries) => {
                let entries = entries.borrow();
                entries.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone())
            }
            Value::Loop(state) => loop_attribute(&state.borrow(), name),
            Value::Cycler(cycler) if &**name == "current" => {
                let cycler = cycler.borrow();
                cycler.0.get(cycler.1).cloned()
            }
            // The pairs that `groupby` gives have names in Jinja.
            Value::Tuple(pair) if pair.len() == 2 && matches!(&**name, "grouper" | "list") => {
                pair.get(usize::from(&**name == "list")).cloned()
            }
            Value::Macro(closure) if &**name == "name" => Some(Value::literal(&closure.definition.name)),
            _ => None,
        };
        Ok(found.unwrap_or_else(|| {
            Value::Undefined(UndefinedReason::Attribute(value.object_name(), Arc::clone(name)))
        }))
    }

    /// `value[index]`: an entry or item first, then an attribute.
    pub fn index(&self, value: &Value, index: &Value) -> Result<Value, RenderError> {
        value.defined()?;
        if let Some(found) = value.entry(index, &self.meter)? {
            return Ok(found);
        }
        if let Value::Text(name) = index {
            return self.attribute(value, &Arc::from(&**name));
        }
        let Some(position) = index.as_int() else {
            return Ok(Value::Undefined(UndefinedReason::Message("no such element")));
        };
        let found = match value {
            Value::List(items) | Value::Tuple(items) => {
                at(position, items.len()).and_then(|at| items.get(at)).cloned()
            }
            Value::Text(text) => {
                self.meter.spend_bytes(text.len())?;
                let length = value.len()?;
                match at(position, length).and_then(|at| text.chars().nth(at)) {
                    Some(character) => Some(self.meter.text(character.to_string())?),
                    None => None,
                }
            }
            _ => None,
        };
        Ok(found.unwrap_or(Value::Undefined(UndefinedReason::Element(value.object_name(), position))))
    }

    /// `value[start:stop:step]`.
    pub fn slice(&self, value: &Value, bounds: &[Option<Value>; 3]) -> Result<Value, RenderError> {
        value.defined()?;
        let mut numbers = [None; 3];
        for (number, bound) in numbers.iter_mut().zip(bounds) {
            *number = match bound {
                None | Some(Value::None) => None,
                Some(bound) => match bound.as_int() {
                    Some(bound) => Some(bound),
                    None => {
                        bound.defined()?;
                        return RenderError::failed("slice indices must be integers or None");
                    }
                },
            };
        }
        let step = numbers[2].unwrap_or(1);
        if step == 0 {
            return RenderError::failed("slice step cannot be zero");
        }
        match value {
            Value::List(items) => {
                let picked = positions(numbers, items.len());
                self.meter.spend(picked.len())?;
                self.meter.list(picked.map(|at| items[at].clone()).collect())
            }
            Value::Tuple(items) => {
                let picked = positions(numbers, items.len());
                self.meter.spend(picked.len())?;
                self.meter.tuple(picked.map(|at| items[at].clone()).collect())
            }
            Value::Text(text) => self.slice_text(text, numbers, step),
            _ => RenderError::failed(format!("'{}' object is not subscriptable", value.type_name())),
        }
    }

    fn slice_text(&self, text: &str, numbers: [Option<i128>; 3], step: i128) -> Result<Value, RenderError> {
        self.meter.spend_bytes(text.len())?;
        let mut out = self.meter.new_text()?;
        let length = if text.is_ascii() { text.len() } else { text.chars().count() };
        let picked = positions(numbers, length);
        if step == 1 {
            let byte =
                |character: usize| text.char_indices().nth(character).map_or(text.len(), |(byte, _)| byte);
            let (first, count) = (picked.first, picked.left);
            let whole = if text.is_ascii() { first..first + count } else { byte(first)..byte(first + count) };
            out.push(&text[whole])?;
        } else {
            self.meter.spend(length)?;
            self.meter.ensure_free(length.saturating_mul(4))?;
            let characters: Vec<char> = text.chars().collect();
            for at in picked {
                out.push(characters[at].encode_utf8(&mut [0; 4]))?;
            }
        }
        Ok(out.into_value())
    }
}

/// The place of a position that may count from the end.
fn at(position: i128, length: usize) -> Option<usize> {
    let position = if position < 0 { position + length as i128 } else { position };
    usize::try_from(position).ok().filter(|at| *at < length)
}

/// The places that a slice picks, in its order.
struct Positions {
    first: usize,
    step: i128,
    left: usize,
}

impl Positions {
    fn len(&self) -> usize {
        self.left
    }
}

impl Iterator for Positions {
    type Item = usize;
    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let at = self.first;
        self.first = usize::try_from(at as i128 + self.step).unwrap_or(0);
        Some(at)
    }
}

fn positions([start, stop, step]: [Option<i128>; 3], length: usize) -> Positions {
    let length = length as i128;
    let step = step.unwrap_or(1).clamp(-length - 1, length + 1);
    let (lowest, highest) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let clamp =
        |bound: i128| if bound < 0 { (bound.saturating_add(length)).max(lowest) } else { bound.min(highest) };
    let start = start.map_or(if step > 0 { 0 } else { length - 1 }, clamp);
    let stop = stop.map_or(if step > 0 { length } else { -1 }, clamp);
    let span = if step > 0 { stop - start } else { start - stop };
    let left = if span > 0 { (span - 1) / step.abs() + 1 } else { 0 };
    Positions { first: usize::try_from(start).unwrap_or(0), step, left: left as usize }
}

fn loop_attribute(state: &LoopState, name: &str) -> Option<Value> {
    let (index0, length) = (state.index0, state.items.len());
    let int = |value: usize| Some(Value::Int(value as i128));
    match name {
        "index" => int(index0 + 1),
        "index0" => int(index0),
        "revindex" => int(length - index0),
        "revindex0" => int(length - index0 - 1),
        "first" => Some(Value::Bool(index0 == 0)),
        "last" => Some(Value::Bool(index0 + 1 == length)),
        "length" => int(length),
        "depth" => int(state.depth0 + 1),
        "depth0" => int(state.depth0),
        "previtem" => Some(match index0.checked_sub(1) {
            Some(before) => state.items[before].clone(),
            None => Value::Undefined(UndefinedReason::Message("there is no previous item")),
        }),
        "nextitem" => Some(match state.items.get(index0 + 1) {
            Some(item) => item.clone(),
            None => Value::Undefined(UndefinedReason::Message("there is no next item")),
        }),
        _ => None,
    }
}
