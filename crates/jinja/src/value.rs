//! The values a template computes with: Python's values, as far as a sandboxed template can tell them apart.
//!
//! Invariants: values never change once made (only a namespace does, and [`crate::runtime`] empties it in the end, so
//! nothing leaks); containers nest no deeper than the limit, so walking or dropping one cannot exhaust the stack; each
//! holds a reservation for its bytes.

mod order;
mod repr;

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use crate::ast::{For, Macro, Name};
use crate::error::RenderError;
use crate::meter::{Meter, Reservation, TextBuilder};
/// Bytes a slot of a container takes.
const SLOT: usize = size_of::<Value>();

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Undefined(UndefinedReason),
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
    /// The result of a lazy filter. Iterating over it empties it.
    Generator(Rc<RefCell<Option<List>>>),
    Namespace(Namespace),
    Macro(Rc<Closure>),
    Loop(Rc<RefCell<LoopState>>),
    Cycler(Rc<RefCell<(List, usize)>>),
    Joiner(Rc<RefCell<(Text, bool)>>),
    Function(Function),
    Method(Rc<(Value, &'static str)>),
    /// A method that would change its value, which the sandbox refuses.
    Unsafe(Rc<(&'static str, Name)>),
}

/// Why a value is undefined: the text of the error that using it gives.
#[derive(Clone, Debug)]
pub(crate) enum UndefinedReason {
    Name(Name),
    Attribute(&'static str, Name),
    Element(&'static str, i128),
    Branch,
    Parameter(Name),
    Message(&'static str),
}

impl UndefinedReason {
    pub fn message(&self) -> String {
        match self {
            UndefinedReason::Name(name) => format!("'{name}' is undefined"),
            UndefinedReason::Attribute(of, name) => format!("'{of}' has no attribute '{name}'"),
            UndefinedReason::Element(of, index) => format!("{of} has no element {index}"),
            UndefinedReason::Branch => {
                "the inline if-expression evaluated to false and no else section was defined".into()
            }
            UndefinedReason::Parameter(name) => format!("parameter '{name}' was not provided"),
            UndefinedReason::Message(what) => (*what).to_owned(),
        }
    }
}

/// A string: a literal of the template, or one that was computed and holds a reservation.
#[derive(Clone, Debug)]
pub(crate) enum Text {
    Literal(Name),
    Computed(Rc<(String, Reservation)>),
    /// The result of `safe`: text added to it is escaped for HTML. Python's `Markup`.
    Markup(Rc<(String, Reservation)>),
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

/// A function that a template finds without defining it.
#[derive(Clone, Debug)]
pub(crate) enum Function {
    Builtin(&'static str),
    Host(Rc<HostFunction>),
}

/// A function from one string to another that may fail.
type StringFunction = dyn Fn(&str) -> Result<String, RenderError>;

/// A [`StringFunction`] that the caller of the rendering gave.
pub(crate) struct HostFunction {
    pub name: &'static str,
    pub parameter: &'static str,
    pub function: Box<StringFunction>,
}

impl fmt::Debug for HostFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostFunction({})", self.name)
    }
}

/// Items with the depth of what they hold.
#[derive(Debug)]
pub(crate) struct Container<T> {
    items: Vec<T>,
    depth: u16,
    _reservation: Reservation,
}

impl<T> Deref for Container<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.items
    }
}

pub(crate) type List = Rc<Container<Value>>;
/// The entries of a namespace: the only value a template can change.
pub(crate) type Namespace = Rc<RefCell<Vec<(Name, Value)>>>;
pub(crate) type Dict = Rc<Container<(Value, Value)>>;

/// A macro with the scope that it was defined in.
#[derive(Debug)]
pub(crate) struct Closure {
    pub definition: Arc<Macro>,
    pub scope: usize,
    /// Tells whether the scope at that index is still the same one.
    pub scope_id: u64,
}

/// The state of `loop` inside a `for`.
#[derive(Debug)]
pub(crate) struct LoopState {
    pub items: List,
    pub index0: usize,
    pub depth0: usize,
    pub changed: Option<List>,
    /// The loop and the scope around it.
    pub definition: Arc<For>,
    pub scope: usize,
}

fn container<T>(
    items: Vec<T>,
    meter: &Meter,
    depth_of: impl Fn(&T) -> u16,
    slot: usize,
) -> Result<Rc<Container<T>>, RenderError> {
    let reservation = meter.reserve(48 + items.len() * slot)?;
    let depth = items.iter().map(depth_of).max().unwrap_or(0) + 1;
    if depth > meter.value_depth() {
        return Err(RenderError::Limit("nesting of lists and dicts"));
    }
    Ok(Rc::new(Container { items, depth, _reservation: reservation }))
}

impl Meter {
    pub fn text(&self, text: String) -> Result<Value, RenderError> {
        let reservation = self.reserve(48 + text.len())?;
        Ok(Value::Text(Text::Computed(Rc::new((text, reservation)))))
    }

    pub fn items(&self, items: Vec<Value>) -> Result<List, RenderError> {
        container(items, self, Value::depth, SLOT)
    }

    pub fn list(&self, items: Vec<Value>) -> Result<Value, RenderError> {
        self.items(items).map(Value::List)
    }

    pub fn tuple(&self, items: Vec<Value>) -> Result<Value, RenderError> {
        self.items(items).map(Value::Tuple)
    }

    pub fn generator(&self, items: Vec<Value>) -> Result<Value, RenderError> {
        Ok(Value::Generator(Rc::new(RefCell::new(Some(self.items(items)?)))))
    }

    /// A dict of entries with different keys.
    pub fn dict(&self, entries: Vec<(Value, Value)>) -> Result<Value, RenderError> {
        let depth = |(key, value): &(Value, Value)| key.depth().max(value.depth());
        container(entries, self, depth, 2 * SLOT).map(Value::Dict)
    }

    /// The value of a JSON document, its containers as deep as they may be.
    pub fn json(&self, json: &serde_json::Value) -> Result<Value, RenderError> {
        self.json_below(json, self.value_depth())
    }

    fn json_below(&self, json: &serde_json::Value, depth_left: u16) -> Result<Value, RenderError> {
        let Some(below) = depth_left.checked_sub(1) else {
            return Err(RenderError::Limit("nesting of lists and dicts"));
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

    /// Jinja's name of the object in the error of a missing attribute.
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
    pub fn defined(&self) -> Result<&Value, RenderError> {
        match self {
            Value::Undefined(missing) => RenderError::failed(missing.message()),
            Value::Unsafe(access) => RenderError::failed(access_message(access)),
            _ => Ok(self),
        }
    }

    /// The value, for a loop: undefined is empty, and an unsafe attribute is an error.
    pub fn defined_or_empty(&self) -> Result<&Value, RenderError> {
        match self {
            Value::Unsafe(access) => RenderError::failed(access_message(access)),
            _ => Ok(self),
        }
    }

    /// The number of items, as Python's `len`.
    pub fn len(&self) -> Result<usize, RenderError> {
        match self {
            Value::Undefined(_) => Ok(0),
            Value::Text(text) if text.is_ascii() => Ok(text.len()),
            Value::Text(text) => Ok(text.chars().count()),
            Value::List(list) | Value::Tuple(list) | Value::View(_, list) => Ok(list.len()),
            Value::Dict(dict) => Ok(dict.len()),
            Value::Loop(state) => Ok(state.borrow().items.len()),
            _ => RenderError::failed(format!("object of type '{}' has no len()", self.type_name())),
        }
    }

    /// The items a loop over the value sees.
    pub fn iterate(&self, meter: &Meter) -> Result<List, RenderError> {
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
            _ => RenderError::failed(format!("'{}' object is not iterable", self.type_name())),
        }
    }

    /// A dict's value of a key.
    pub fn entry(&self, key: &Value, meter: &Meter) -> Result<Option<Value>, RenderError> {
        let Value::Dict(dict) = self else { return Ok(None) };
        meter.spend(dict.len() / 8 + 1)?;
        for (found, value) in dict.iter() {
            if found.equals(key, meter)? {
                return Ok(Some(value.clone()));
            }
        }
        Ok(None)
    }
}

impl Value {
    /// A text as markup; other values as they are.
    pub fn into_markup(self, meter: &Meter) -> Result<Value, RenderError> {
        Ok(match self {
            Value::Text(Text::Computed(text)) => Value::Text(Text::Markup(text)),
            Value::Text(Text::Literal(text)) => {
                let mut out = meter.new_text()?;
                out.push(&text)?;
                Value::Text(Text::Markup(Rc::new(out.finish())))
            }
            other => other,
        })
    }
}

impl TextBuilder {
    pub fn into_value(self) -> Value {
        Value::Text(Text::Computed(Rc::new(self.finish())))
    }
}

pub(crate) fn access_message(access: &(&'static str, Name)) -> String {
    format!("access to attribute '{}' of '{}' object is unsafe.", access.1, access.0)
}
