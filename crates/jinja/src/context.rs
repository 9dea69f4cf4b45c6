//! The names and values that a rendering starts with.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::ast::Name;
use crate::error::{Error, RenderError};
use crate::limits::Limits;
use crate::meter::Meter;
use crate::value::{Function, HostFunction, Value};

/// The names a template finds, their values counted against the limits of one rendering.
///
/// A value that does not fit is an [`Error::Limit`] at line 1.
#[derive(Debug)]
pub struct Context {
    pub(crate) limits: Limits,
    pub(crate) meter: Meter,
    pub(crate) names: HashMap<Name, Value>,
}

/// A value of the [`Context`] that made it.
#[derive(Debug, Clone)]
pub struct ContextValue(Value);

impl ContextValue {
    /// Python's `None`.
    pub const NONE: ContextValue = ContextValue(Value::None);
}

impl From<bool> for ContextValue {
    fn from(value: bool) -> Self {
        ContextValue(Value::Bool(value))
    }
}

impl Context {
    /// No names yet.
    pub fn new(limits: &Limits) -> Context {
        Context { limits: *limits, meter: Meter::new(limits), names: HashMap::new() }
    }

    /// Gives a name its value. A later definition replaces an earlier one.
    pub fn define(&mut self, name: &str, value: ContextValue) {
        self.names.insert(Arc::from(name), value.0);
    }

    /// Gives a name a function of one string, which a call passes by position or as `parameter`.
    pub fn define_function(
        &mut self,
        name: &'static str,
        parameter: &'static str,
        function: impl Fn(&str) -> Result<String, RenderError> + 'static,
    ) {
        let function = HostFunction { name, parameter, function: Box::new(function) };
        self.names.insert(Arc::from(name), Value::Function(Function::Host(Rc::new(function))));
    }

    /// A string.
    pub fn text(&self, text: &str) -> Result<ContextValue, Error> {
        counted(self.meter.text(text.to_owned()))
    }

    /// A list.
    pub fn list(&self, items: Vec<ContextValue>) -> Result<ContextValue, Error> {
        counted(self.meter.list(items.into_iter().map(|item| item.0).collect()))
    }

    /// A dict with its entries in this order. The keys must differ.
    pub fn dict(&self, entries: Vec<(&str, ContextValue)>) -> Result<ContextValue, Error> {
        let entry = |(key, value): (&str, ContextValue)| Ok((self.meter.text(key.to_owned())?, value.0));
        let entries = entries.into_iter().map(entry).collect::<Result<_, _>>();
        counted(entries.and_then(|entries| self.meter.dict(entries)))
    }

    /// A JSON document.
    pub fn json(&self, json: &serde_json::Value) -> Result<ContextValue, Error> {
        counted(self.meter.json(json))
    }
}

fn counted(value: Result<Value, RenderError>) -> Result<ContextValue, Error> {
    value.map(ContextValue).map_err(|error| error.at(1))
}
