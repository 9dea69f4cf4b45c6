//! What a template computes with: Python's values, as far as a sandboxed template can tell them apart.
//!
//! Invariants: values never change once made (only a namespace does, and its evaluator empties it in the end, so
//! nothing leaks); containers nest at most [`MAX_DEPTH`] deep, so walking or dropping one cannot exhaust the
//! stack; each holds a lease for its bytes.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use super::ast::{For, Macro, Name};
use super::meter::{Draft, Fault, Lease, Meter};
use super::number::float_repr;

/// How deep lists and dicts may nest.
pub(super) const MAX_DEPTH: u16 = 150;

/// Bytes a slot of a container takes.
const SLOT: usize = size_of::<Value>();

#[derive(Clone, Debug)]
pub(super) enum Value {
    Undefined(Missing),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(Text),
    List(List),
    Tuple(List),
    Dict(Dict),
    /// What `d.items()`, `d.keys()`, `d.values()` give, named by Python's type.
    View(&'static str, List),
    /// What lazy filters give. Reading it empties it.
    Generator(Rc<RefCell<Option<List>>>),
    Namespace(Namespace),
    Macro(Rc<Closure>),
    Loop(Rc<RefCell<LoopState>>),
    Cycler(Rc<RefCell<(List, usize)>>),
    Joiner(Rc<RefCell<(Text, bool)>>),
    Function(&'static str),
    Method(Rc<(Value, &'static str)>),
    /// A method that would change its value, which the sandbox refuses.
    Unsafe(Rc<(&'static str, Name)>),
}

/// Why a value is undefined: the text of the error that using it gives.
#[derive(Clone, Debug)]
pub(super) enum Missing {
    Name(Name),
    Attribute(&'static str, Name),
    Element(&'static str, i128),
    Branch,
    Parameter(Name),
    First(&'static str),
}

impl Missing {
    pub fn message(&self) -> String {
        match self {
            Missing::Name(name) => format!("'{name}' is undefined"),
            Missing::Attribute(of, name) => format!("'{of}' has no attribute '{name}'"),
            Missing::Element(of, index) => format!("{of} has no element {index}"),
            Missing::Branch => {
                "the inline if-expression evaluated to false and no else section was defined".into()
            }
            Missing::Parameter(name) => format!("parameter '{name}' was not provided"),
            Missing::First(what) => (*what).to_owned(),
        }
    }
}

/// A string: a literal of the template, or one that was computed and holds a lease.
#[derive(Clone, Debug)]
pub(super) enum Text {
    Literal(Name),
    Computed(Rc<(String, Lease)>),
    /// What `safe` gives: text added to it is escaped for HTML. Python's `Markup`.
    Markup(Rc<(String, Lease)>),
}

impl Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        match self {
            Text::Literal(text) => text,
            Text::Computed(text) | Text::Markup(text) => &text.0,
        }
    }
}

/// Items with the depth of what they hold.
#[derive(Debug)]
pub(super) struct Held<T> {
    items: Vec<T>,
    depth: u16,
    _lease: Lease,
}

impl<T> Deref for Held<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.items
    }
}

pub(super) type List = Rc<Held<Value>>;
/// What a namespace holds: the one thing a template can change.
pub(super) type Namespace = Rc<RefCell<Vec<(Name, Value)>>>;
pub(super) type Dict = Rc<Held<(Value, Value)>>;

/// A macro with the scope that it was defined in.
#[derive(Debug)]
pub(super) struct Closure {
    pub definition: Arc<Macro>,
    pub scope: usize,
    /// Tells whether the scope at that index is still the same one.
    pub scope_id: u64,
}

/// What `loop` is inside a `for`.
#[derive(Debug)]
pub(super) struct LoopState {
    pub items: List,
    pub index0: usize,
    pub depth0: usize,
    pub changed: Option<List>,
    /// The loop and the scope around it.
    pub definition: Arc<For>,
    pub scope: usize,
}

fn held<T>(
    items: Vec<T>,
    meter: &Meter,
    depth_of: impl Fn(&T) -> u16,
    slot: usize,
) -> Result<Rc<Held<T>>, Fault> {
    let lease = meter.lease(48 + items.len() * slot)?;
    let depth = items.iter().map(depth_of).max().unwrap_or(0) + 1;
    if depth > MAX_DEPTH {
        return Err(Fault::Limit("nesting of lists and dicts"));
    }
    Ok(Rc::new(Held { items, depth, _lease: lease }))
}

impl Meter {
    pub fn text(&self, text: String) -> Result<Value, Fault> {
        let lease = self.lease(48 + text.len())?;
        Ok(Value::Text(Text::Computed(Rc::new((text, lease)))))
    }

    pub fn items(&self, items: Vec<Value>) -> Result<List, Fault> {
        held(items, self, Value::depth, SLOT)
    }

    pub fn list(&self, items: Vec<Value>) -> Result<Value, Fault> {
        self.items(items).map(Value::List)
    }

    pub fn tuple(&self, items: Vec<Value>) -> Result<Value, Fault> {
        self.items(items).map(Value::Tuple)
    }

    pub fn generator(&self, items: Vec<Value>) -> Result<Value, Fault> {
        Ok(Value::Generator(Rc::new(RefCell::new(Some(self.items(items)?)))))
    }

    /// A dict of entries whose keys differ already.
    pub fn dict(&self, entries: Vec<(Value, Value)>) -> Result<Value, Fault> {
        let depth = |(key, value): &(Value, Value)| key.depth().max(value.depth());
        held(entries, self, depth, 2 * SLOT).map(Value::Dict)
    }

    /// The value of a JSON document, its containers as deep as they may be.
    pub fn json(&self, json: &serde_json::Value) -> Result<Value, Fault> {
        self.json_below(json, MAX_DEPTH)
    }

    fn json_below(&self, json: &serde_json::Value, depth_left: u16) -> Result<Value, Fault> {
        let Some(below) = depth_left.checked_sub(1) else {
            return Err(Fault::Limit("nesting of lists and dicts"));
        };
        match json {
            serde_json::Value::Null => Ok(Value::None),
            serde_json::Value::Bool(value) => Ok(Value::Bool(*value)),
            serde_json::Value::Number(number) => Ok(if let Some(value) = number.as_i128() {
                Value::Int(value)
            } else {
                Value::Float(number.as_f64().unwrap_or(f64::NAN))
            }),
            serde_json::Value::String(text) => self.text(text.clone()),
            serde_json::Value::Array(items) => {
                let items =
                    items.iter().map(|item| self.json_below(item, below)).collect::<Result<_, _>>()?;
                self.list(items)
            }
            serde_json::Value::Object(map) => {
                let entry = |(key, value): (&String, &serde_json::Value)| {
                    Ok((self.text(key.clone())?, self.json_below(value, below)?))
                };
                self.dict(map.iter().map(entry).collect::<Result<_, _>>()?)
            }
        }
    }
}

impl Value {
    pub fn literal(text: &str) -> Value {
        Value::Text(Text::Literal(Arc::from(text)))
    }

    fn depth(&self) -> u16 {
        match self {
            Value::List(list) | Value::Tuple(list) | Value::View(_, list) => list.depth,
            Value::Dict(dict) => dict.depth,
            Value::Generator(list) => list.borrow().as_ref().map_or(1, |list| list.depth),
            Value::Method(method) => method.0.depth() + 1,
            Value::Cycler(cycler) => cycler.borrow().0.depth + 1,
            Value::Loop(state) => state.borrow().items.depth + 1,
            // The evaluator holds all namespaces until the end and empties them one by one.
            Value::Namespace(_) => 1,
            _ => 0,
        }
    }

    /// Python's truth of a value.
    pub fn is_true(&self) -> bool {
        match self {
            Value::Undefined(_) | Value::None | Value::Unsafe(_) => false,
            Value::Bool(value) => *value,
            Value::Int(value) => *value != 0,
            Value::Float(value) => *value != 0.0,
            Value::Text(text) => !text.is_empty(),
            Value::List(list) | Value::Tuple(list) | Value::View(_, list) => !list.is_empty(),
            Value::Dict(dict) => !dict.is_empty(),
            _ => true,
        }
    }

    /// Python's name of the type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Undefined(_) | Value::Unsafe(_) => "Undefined",
            Value::None => "NoneType",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Text(_) => "str",
            Value::List(_) => "list",
            Value::Tuple(_) => "tuple",
            Value::Dict(_) => "dict",
            Value::View(name, _) => name,
            Value::Generator(_) => "generator",
            Value::Namespace(_) => "Namespace",
            Value::Macro(_) => "Macro",
            Value::Loop(_) => "LoopContext",
            Value::Cycler(_) => "Cycler",
            Value::Joiner(_) => "Joiner",
            Value::Function(_) => "function",
            Value::Method(_) => "builtin_function_or_method",
        }
    }

    /// How Jinja calls the object in the error of a missing attribute.
    pub fn object_name(&self) -> &'static str {
        match self {
            Value::None => "None",
            Value::Bool(_) => "bool object",
            Value::Int(_) => "int object",
            Value::Float(_) => "float object",
            Value::Text(_) => "str object",
            Value::List(_) => "list object",
            Value::Tuple(_) => "tuple object",
            Value::Dict(_) => "dict object",
            Value::Namespace(_) => "jinja2.utils.Namespace object",
            _ => "object",
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The integer a value is where Python takes one: bools are integers too.
    pub fn as_int(&self) -> Option<i128> {
        match self {
            Value::Int(value) => Some(*value),
            Value::Bool(value) => Some(i128::from(*value)),
            _ => None,
        }
    }

    pub fn as_float(&self) -> Option<f64> {
        match self {
            Value::Float(value) => Some(*value),
            _ => self.as_int().map(|value| value as f64),
        }
    }

    /// Errors if the value is undefined, with the reason.
    pub fn defined(&self) -> Result<&Value, Fault> {
        match self {
            Value::Undefined(missing) => Fault::failed(missing.message()),
            Value::Unsafe(access) => Fault::failed(access_message(access)),
            _ => Ok(self),
        }
    }

    /// What a loop may run over: undefined is empty, but not what the sandbox refuses.
    pub fn defined_or_empty(&self) -> Result<&Value, Fault> {
        match self {
            Value::Unsafe(access) => Fault::failed(access_message(access)),
            _ => Ok(self),
        }
    }

    /// The number of items, as Python's `len`.
    pub fn len(&self) -> Result<usize, Fault> {
        match self {
            Value::Undefined(_) => Ok(0),
            Value::Text(text) if text.is_ascii() => Ok(text.len()),
            Value::Text(text) => Ok(text.chars().count()),
            Value::List(list) | Value::Tuple(list) | Value::View(_, list) => Ok(list.len()),
            Value::Dict(dict) => Ok(dict.len()),
            Value::Loop(state) => Ok(state.borrow().items.len()),
            _ => Fault::failed(format!("object of type '{}' has no len()", self.type_name())),
        }
    }

    /// The items a loop over the value sees.
    pub fn iterate(&self, meter: &Meter) -> Result<List, Fault> {
        match self {
            Value::Undefined(_) => meter.items(Vec::new()),
            Value::List(list) | Value::Tuple(list) | Value::View(_, list) => Ok(Rc::clone(list)),
            Value::Dict(dict) => {
                meter.spend(dict.len())?;
                meter.items(dict.iter().map(|(key, _)| key.clone()).collect())
            }
            Value::Generator(list) => list.borrow_mut().take().map_or_else(|| meter.items(Vec::new()), Ok),
            Value::Text(text) => {
                let character = |c: char| meter.text(c.to_string());
                meter.items(text.chars().map(character).collect::<Result<_, _>>()?)
            }
            _ => Fault::failed(format!("'{}' object is not iterable", self.type_name())),
        }
    }

    /// A dict's value of a key.
    pub fn entry(&self, key: &Value, meter: &Meter) -> Result<Option<Value>, Fault> {
        let Value::Dict(dict) = self else { return Ok(None) };
        meter.spend(dict.len() / 8 + 1)?;
        for (found, value) in dict.iter() {
            if found.equals(key, meter)? {
                return Ok(Some(value.clone()));
            }
        }
        Ok(None)
    }

    pub fn equals(&self, other: &Value, meter: &Meter) -> Result<bool, Fault> {
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
    pub fn order(&self, other: &Value, symbol: &str, meter: &Meter) -> Result<Option<Ordering>, Fault> {
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
        Fault::failed(format!("'{symbol}' not supported between instances of '{left}' and '{right}'"))
    }

    /// Python's `str(value)`.
    pub fn write(&self, out: &mut Draft) -> Result<(), Fault> {
        match self {
            Value::Undefined(_) | Value::Unsafe(_) => Ok(()),
            Value::Text(text) => out.push(text),
            _ => self.write_repr(out),
        }
    }

    /// Python's `repr(value)`.
    pub fn write_repr(&self, out: &mut Draft) -> Result<(), Fault> {
        match self {
            Value::Undefined(_) | Value::Unsafe(_) => out.push("Undefined"),
            Value::None => out.push("None"),
            Value::Bool(true) => out.push("True"),
            Value::Bool(false) => out.push("False"),
            Value::Int(value) => out.push(&value.to_string()),
            Value::Float(value) => out.push(&float_repr(*value)),
            Value::Text(text) => write_quoted(text, out),
            Value::List(list) => write_items("[", list, "]", out),
            Value::Tuple(list) => write_items("(", list, if list.len() == 1 { ",)" } else { ")" }, out),
            Value::View(name, list) => {
                out.push(name)?;
                write_items("([", list, "])", out)
            }
            Value::Dict(dict) => {
                out.push("{")?;
                for (index, (key, value)) in dict.iter().enumerate() {
                    out.push(if index == 0 { "" } else { ", " })?;
                    key.write_repr(out)?;
                    out.push(": ")?;
                    value.write_repr(out)?;
                }
                out.push("}")
            }
            // What a namespace holds may hold the namespace, and nobody prints one.
            _ => {
                out.push("<")?;
                out.push(self.type_name())?;
                out.push(" object>")
            }
        }
    }

    /// Python's `str(value)` as a value; text is itself.
    pub fn to_text(&self, meter: &Meter) -> Result<Text, Fault> {
        if let Value::Text(text) = self {
            return Ok(text.clone());
        }
        let mut draft = meter.draft()?;
        self.write(&mut draft)?;
        Ok(Text::Computed(Rc::new(draft.finish())))
    }
}

impl Value {
    /// The same text as markup; other values as they are.
    pub fn into_markup(self, meter: &Meter) -> Result<Value, Fault> {
        Ok(match self {
            Value::Text(Text::Computed(text)) => Value::Text(Text::Markup(text)),
            Value::Text(Text::Literal(text)) => {
                let mut draft = meter.draft()?;
                draft.push(&text)?;
                Value::Text(Text::Markup(Rc::new(draft.finish())))
            }
            other => other,
        })
    }
}

impl Draft {
    pub fn into_value(self) -> Value {
        Value::Text(Text::Computed(Rc::new(self.finish())))
    }
}

pub(super) fn access_message(access: &(&'static str, Name)) -> String {
    format!("access to attribute '{}' of '{}' object is unsafe.", access.1, access.0)
}

fn write_items(open: &str, items: &[Value], close: &str, out: &mut Draft) -> Result<(), Fault> {
    out.push(open)?;
    for (index, item) in items.iter().enumerate() {
        out.push(if index == 0 { "" } else { ", " })?;
        item.write_repr(out)?;
    }
    out.push(close)
}

/// A string as Python's `repr` quotes it.
fn write_quoted(text: &str, out: &mut Draft) -> Result<(), Fault> {
    let quote = if text.contains('\'') && !text.contains('"') { "\"" } else { "'" };
    out.push(quote)?;
    let mut plain = 0;
    for (at, character) in text.char_indices() {
        let escaped = match character {
            '\n' => "\\n".to_owned(),
            '\r' => "\\r".to_owned(),
            '\t' => "\\t".to_owned(),
            '\\' => "\\\\".to_owned(),
            _ if quote.starts_with(character) => format!("\\{character}"),
            _ if is_printable(character) => continue,
            _ if (character as u32) < 0x100 => format!("\\x{:02x}", character as u32),
            _ if (character as u32) < 0x10000 => format!("\\u{:04x}", character as u32),
            _ => format!("\\U{:08x}", character as u32),
        };
        out.push(&text[plain..at])?;
        out.push(&escaped)?;
        plain = at + character.len_utf8();
    }
    out.push(&text[plain..])?;
    out.push(quote)
}

/// Nearly Python's `str.isprintable`: all but controls, formats, separators and private use.
fn is_printable(character: char) -> bool {
    match character {
        ' ' => true,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' => false,
        '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e000}'..='\u{f8ff}' => false,
        '\u{e0000}'..='\u{e007f}' | '\u{f0000}'.. => false,
        _ => !character.is_control() && !character.is_whitespace(),
    }
}
