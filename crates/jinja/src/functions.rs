//! Global functions.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::arguments::{ArgumentDefaults, CallArguments};
use crate::error::RenderError;
use crate::runtime::Runtime;
use crate::value::{Function, HostFunction, Value};

/// Their names.
const GLOBALS: &[&str] = &["range", "dict", "namespace", "cycler", "joiner", "raise_exception"];

/// The most items of a `range`, as in Jinja's sandbox.
const MAX_RANGE: i128 = 100_000;

/// The global function called `name`.
pub(crate) fn global(name: &str) -> Option<&'static str> {
    GLOBALS.iter().find(|global| **global == name).copied()
}

impl Runtime {
    /// Calls a function by its value.
    pub fn call_function(&mut self, function: &Function, given: CallArguments) -> Result<Value, RenderError> {
        match function {
            Function::Builtin(name) => self.call_builtin(name, given),
            Function::Host(function) => self.call_host_function(function, given),
        }
    }

    fn call_builtin(&mut self, name: &str, given: CallArguments) -> Result<Value, RenderError> {
        match name {
            "range" => self.range(given),
            "dict" => self.make_dict(given),
            "namespace" => {
                let Value::Dict(dict) = self.make_dict(given)? else {
                    return RenderError::failed("not a dict");
                };
                let mut entries = Vec::new();
                for (key, value) in dict.iter() {
                    let Some(key) = key.as_str() else {
                        return RenderError::failed("keywords must be strings");
                    };
                    entries.push((Arc::from(key), value.clone()));
                }
                Ok(self.namespace(entries))
            }
            "cycler" => {
                if given.positional.is_empty() {
                    return RenderError::failed("at least one item has to be provided");
                }
                let items = self.meter.items(given.positional)?;
                Ok(Value::Cycler(Rc::new(RefCell::new((items, 0)))))
            }
            "joiner" => {
                let [separator] = given.bind(name, &["sep"])?;
                Ok(Value::Joiner(Rc::new(RefCell::new((separator.text_or(", ")?, false)))))
            }
            _ => {
                let [message] = given.bind(name, &["message"])?;
                let message = message.unwrap_or(Value::None).to_text(&self.meter)?;
                Err(RenderError::Raised(message.to_string()))
            }
        }
    }

    fn call_host_function(
        &mut self,
        function: &HostFunction,
        given: CallArguments,
    ) -> Result<Value, RenderError> {
        let [argument] = given.bind(function.name, &[function.parameter])?;
        let text = (function.function)(&argument.text_or("")?)?;
        self.meter.text(text)
    }

    fn range(&mut self, given: CallArguments) -> Result<Value, RenderError> {
        let [first, second, third] = given.bind("range", &["start", "stop", "step"])?;
        for bound in [&first, &second, &third].into_iter().flatten() {
            bound.defined()?;
            if bound.as_int().is_none() {
                let found = bound.type_name();
                return RenderError::failed(format!("'{found}' object cannot be interpreted as an integer"));
            }
        }
        let (start, stop) = match &second {
            Some(_) => (first.int_or(0)?, second.int_or(0)?),
            None => (0, first.int_or(0)?),
        };
        let step = third.int_or(1)?;
        if step == 0 {
            return RenderError::failed("range() arg 3 must not be zero");
        }
        let span = if step > 0 { stop.saturating_sub(start) } else { start.saturating_sub(stop) };
        let count = if span > 0 { (span - 1) / step.saturating_abs() + 1 } else { 0 };
        if count > MAX_RANGE {
            return RenderError::failed(format!("range too big: the sandbox allows {MAX_RANGE} items"));
        }
        self.meter.spend(count as usize)?;
        self.meter.list((0..count).map(|index| Value::Int(start + index * step)).collect())
    }

    fn make_dict(&mut self, given: CallArguments) -> Result<Value, RenderError> {
        let mut entries = Vec::new();
        for source in &given.positional {
            match source.defined()? {
                Value::Dict(dict) => {
                    for (key, value) in dict.iter() {
                        self.insert(&mut entries, key.clone(), value.clone())?;
                    }
                }
                _ => {
                    for pair in source.iterate(&self.meter)?.iter() {
                        let pair = pair.iterate(&self.meter)?;
                        let [key, value] = &**pair else {
                            return RenderError::failed("dictionary update sequence needs pairs");
                        };
                        self.insert(&mut entries, key.clone(), value.clone())?;
                    }
                }
            }
        }
        for (name, value) in given.named {
            self.insert(&mut entries, Value::literal(&name), value)?;
        }
        self.meter.dict(entries)
    }
}
