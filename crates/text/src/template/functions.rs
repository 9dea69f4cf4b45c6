//! The functions a template finds without defining them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use jiff::fmt::strtime;

use super::arguments::{Bound, Given};
use super::eval::Evaluator;
use super::meter::Fault;
use super::value::Value;

/// Their names.
const GLOBALS: &[&str] =
    &["range", "dict", "namespace", "cycler", "joiner", "raise_exception", "strftime_now"];

/// The most items of a `range`, as in Jinja's sandbox.
const MAX_RANGE: i128 = 100_000;

/// The global function called `name`.
pub(super) fn global(name: &str) -> Option<&'static str> {
    GLOBALS.iter().find(|global| **global == name).copied()
}

impl Evaluator {
    pub fn call_function(&mut self, name: &str, given: Given) -> Result<Value, Fault> {
        match name {
            "range" => self.range(given),
            "dict" => self.make_dict(given),
            "namespace" => {
                let Value::Dict(dict) = self.make_dict(given)? else { return Fault::failed("not a dict") };
                let mut entries = Vec::new();
                for (key, value) in dict.iter() {
                    let Some(key) = key.as_str() else { return Fault::failed("keywords must be strings") };
                    entries.push((Arc::from(key), value.clone()));
                }
                Ok(self.namespace(entries))
            }
            "cycler" => {
                if given.positional.is_empty() {
                    return Fault::failed("at least one item has to be provided");
                }
                let items = self.meter.items(given.positional)?;
                Ok(Value::Cycler(Rc::new(RefCell::new((items, 0)))))
            }
            "joiner" => {
                let [separator] = given.bind(name, &["sep"])?;
                Ok(Value::Joiner(Rc::new(RefCell::new((separator.text_or(", ")?, false)))))
            }
            "raise_exception" => {
                let [message] = given.bind(name, &["message"])?;
                let message = message.unwrap_or(Value::None).to_text(&self.meter)?;
                Err(Fault::Raised(message.to_string()))
            }
            _ => {
                let [pattern] = given.bind(name, &["format"])?;
                let pattern = pattern.text_or("")?;
                if pattern.len() > 1024 {
                    return Err(Fault::Limit("length of a date format"));
                }
                match strtime::format(&*pattern, self.now) {
                    Ok(text) if text.len() <= 64 << 10 => self.meter.text(text),
                    Ok(_) => Err(Fault::Limit("length of a date")),
                    Err(error) => Fault::failed(format!("strftime_now: {error}")),
                }
            }
        }
    }

    fn range(&mut self, given: Given) -> Result<Value, Fault> {
        let [first, second, third] = given.bind("range", &["start", "stop", "step"])?;
        for bound in [&first, &second, &third].into_iter().flatten() {
            bound.defined()?;
            if bound.as_int().is_none() {
                let found = bound.type_name();
                return Fault::failed(format!("'{found}' object cannot be interpreted as an integer"));
            }
        }
        let (start, stop) = match &second {
            Some(_) => (first.int_or(0)?, second.int_or(0)?),
            None => (0, first.int_or(0)?),
        };
        let step = third.int_or(1)?;
        if step == 0 {
            return Fault::failed("range() arg 3 must not be zero");
        }
        let span = if step > 0 { stop.saturating_sub(start) } else { start.saturating_sub(stop) };
        let count = if span > 0 { (span - 1) / step.saturating_abs() + 1 } else { 0 };
        if count > MAX_RANGE {
            return Fault::failed(format!("range too big: the sandbox allows {MAX_RANGE} items"));
        }
        self.meter.spend(count as usize)?;
        self.meter.list((0..count).map(|index| Value::Int(start + index * step)).collect())
    }

    fn make_dict(&mut self, given: Given) -> Result<Value, Fault> {
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
                            return Fault::failed("dictionary update sequence needs pairs");
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
