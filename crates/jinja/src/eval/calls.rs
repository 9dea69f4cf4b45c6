//! Calls: macros, recursive loops, and the arguments of every call.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::Evaluator;
use crate::arguments::CallArguments;
use crate::ast::{Arguments, Macro, Name, Recursion};
use crate::error::RenderError;
use crate::value::{Closure, LoopState, Text, UndefinedReason, Value};

impl Evaluator {
    pub fn closure(&self, definition: &Arc<Macro>) -> Value {
        let scope_id = self.scopes[self.scope].id;
        Value::Macro(Rc::new(Closure { definition: Arc::clone(definition), scope: self.scope, scope_id }))
    }

    pub fn call(&mut self, callee: &Value, given: CallArguments) -> Result<Value, RenderError> {
        self.runtime.meter.spend(1)?;
        match callee {
            Value::Macro(closure) => self.descend(|this| this.call_macro(closure, given)),
            Value::Function(name) => self.runtime.call_function(name, given),
            Value::Method(method) => {
                let result = self.runtime.call_method(&method.0, method.1, given)?;
                if matches!(method.0, Value::Text(Text::Markup(_))) {
                    result.into_markup(&self.runtime.meter)
                } else {
                    Ok(result)
                }
            }
            Value::Loop(state) => self.descend(|this| this.recurse(state, given)),
            Value::Joiner(joiner) => {
                let mut joiner = joiner.borrow_mut();
                let used = std::mem::replace(&mut joiner.1, true);
                Ok(if used { Value::Text(joiner.0.clone()) } else { Value::literal("") })
            }
            _ => {
                callee.defined()?;
                RenderError::failed(format!("'{}' object is not callable", callee.type_name()))
            }
        }
    }

    fn call_macro(&mut self, closure: &Closure, given: CallArguments) -> Result<Value, RenderError> {
        let alive = self.scopes.get(closure.scope).is_some_and(|scope| scope.id == closure.scope_id);
        let parent = if alive { closure.scope } else { 0 };
        let definition = &closure.definition;
        self.capture(|this| {
            this.scoped(parent, |this| {
                this.bind(definition, given)?;
                this.run(&definition.body)
            })
        })
    }

    /// Gives the macro's parameters their values; defaults see the parameters before them.
    fn bind(&mut self, definition: &Macro, given: CallArguments) -> Result<(), RenderError> {
        let CallArguments { positional, mut named } = given;
        let count = definition.parameters.len();
        if positional.len() > count && !definition.takes_varargs {
            let name = &definition.name;
            return RenderError::failed(format!("macro '{name}' takes not more than {count} argument(s)"));
        }
        let mut positional = positional.into_iter();
        for (name, default) in &definition.parameters {
            let named_value =
                named.iter().position(|(given, _)| given == name).map(|at| named.swap_remove(at).1);
            let value = match (positional.next(), named_value, default) {
                (Some(value), _, _) | (None, Some(value), _) => value,
                (None, None, Some(default)) => self.eval(default)?,
                (None, None, None) => Value::Undefined(UndefinedReason::Parameter(Arc::clone(name))),
            };
            self.define(name, value);
        }
        let caller: Name = Arc::from("caller");
        let called_by = named.iter().position(|(name, _)| *name == caller).map(|at| named.swap_remove(at).1);
        let called_by = called_by.unwrap_or(Value::Undefined(UndefinedReason::Message("No caller defined")));
        self.define(&caller, called_by);
        if definition.takes_varargs {
            let varargs = self.runtime.meter.tuple(positional.collect())?;
            self.define(&Arc::from("varargs"), varargs);
        }
        if definition.takes_kwargs {
            let entries = named.into_iter().map(|(name, value)| (Value::literal(&name), value)).collect();
            let kwargs = self.runtime.meter.dict(entries)?;
            self.define(&Arc::from("kwargs"), kwargs);
        } else if let Some((extra, _)) = named.first() {
            let name = &definition.name;
            return RenderError::failed(format!("macro '{name}' takes no keyword argument '{extra}'"));
        }
        Ok(())
    }

    /// `loop(children)` in a recursive loop.
    fn recurse(
        &mut self,
        state: &Rc<RefCell<LoopState>>,
        given: CallArguments,
    ) -> Result<Value, RenderError> {
        let (definition, depth0, scope) = {
            let state = state.borrow();
            (Arc::clone(&state.definition), state.depth0, state.scope)
        };
        if definition.recursion == Recursion::None {
            return RenderError::failed("the loop must have the 'recursive' marker to be called recursively");
        }
        let [items] = given.bind("loop", &["iterable"])?;
        let items = items.unwrap_or(Value::None);
        let scope = scope.min(self.scopes.len() - 1);
        self.capture(|this| this.for_each(&definition, &items, depth0 + 1, scope))
    }

    pub fn call_arguments(&mut self, arguments: &Arguments) -> Result<CallArguments, RenderError> {
        let mut given = CallArguments::default();
        for value in &arguments.positional {
            given.positional.push(self.eval(value)?);
        }
        for (name, value) in &arguments.named {
            given.named.push((Arc::clone(name), self.eval(value)?));
        }
        if let Some(star) = &arguments.star {
            let items = self.eval(star)?.defined()?.iterate(&self.runtime.meter)?;
            self.runtime.meter.spend(items.len())?;
            given.positional.extend(items.iter().cloned());
        }
        if let Some(double_star) = &arguments.double_star {
            let Value::Dict(dict) = self.eval(double_star)? else {
                return RenderError::failed("argument after ** must be a mapping");
            };
            self.runtime.meter.spend(dict.len())?;
            for (key, value) in dict.iter() {
                let Some(key) = key.as_str() else { return RenderError::failed("keywords must be strings") };
                given.named.push((Arc::from(key), value.clone()));
            }
        }
        Ok(given)
    }
}
