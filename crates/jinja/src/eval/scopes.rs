//! Names: the scopes of loops, macros and blocks, and assignment.

use std::collections::HashMap;
use std::sync::Arc;

use super::Evaluator;
use crate::ast::{Name, Target};
use crate::error::RenderError;
use crate::value::{Function, UndefinedReason, Value};

/// The names of one part of a template. A name that is absent here is looked up in `parent`.
#[derive(Default)]
pub(super) struct Scope {
    pub names: HashMap<Name, Value>,
    pub parent: Option<usize>,
    pub id: u64,
}

impl Evaluator {
    /// Runs `inside` in a fresh scope within `parent`.
    pub fn scoped<T>(
        &mut self,
        parent: usize,
        inside: impl FnOnce(&mut Self) -> Result<T, RenderError>,
    ) -> Result<T, RenderError> {
        let outer = self.scope;
        self.next_scope_id += 1;
        self.scopes.push(Scope { names: HashMap::new(), parent: Some(parent), id: self.next_scope_id });
        self.scope = self.scopes.len() - 1;
        let result = inside(self);
        self.scopes.pop();
        self.scope = outer;
        result
    }

    /// Empties the current scope and gives it a new identity, because each iteration of a loop has names of its own.
    pub fn reset_scope(&mut self) {
        self.next_scope_id += 1;
        let scope = &mut self.scopes[self.scope];
        scope.names.clear();
        scope.id = self.next_scope_id;
    }

    pub fn define(&mut self, name: &Name, value: Value) {
        self.scopes[self.scope].names.insert(Arc::clone(name), value);
    }

    pub fn lookup(&self, name: &Name) -> Value {
        let mut scope = Some(self.scope);
        while let Some(index) = scope {
            if let Some(value) = self.scopes[index].names.get(name) {
                return value.clone();
            }
            scope = self.scopes[index].parent;
        }
        match crate::functions::global(name) {
            Some(function) => Value::Function(Function::Builtin(function)),
            None => Value::Undefined(UndefinedReason::Name(Arc::clone(name))),
        }
    }

    pub fn assign(&mut self, target: &Target, value: Value) -> Result<(), RenderError> {
        match target {
            Target::Name(name) => self.define(name, value),
            Target::Attribute(name, attribute) => {
                let Value::Namespace(namespace) = self.lookup(name) else {
                    return RenderError::failed("cannot assign attribute on non-namespace object");
                };
                let mut entries = namespace.borrow_mut();
                self.runtime.meter.spend(entries.len() / 8)?;
                match entries.iter_mut().find(|(found, _)| found == attribute) {
                    Some((_, old)) => {
                        let old = std::mem::replace(old, value);
                        // What the old value holds may lead back here when it is dropped.
                        drop(entries);
                        drop(old);
                    }
                    None => entries.push((Arc::clone(attribute), value)),
                }
            }
            Target::Tuple(targets) => {
                let items = value.defined()?.iterate(&self.runtime.meter)?;
                if items.len() != targets.len() {
                    let (wanted, found) = (targets.len(), items.len());
                    return RenderError::failed(format!("cannot unpack {found} values into {wanted} names"));
                }
                for (target, item) in targets.iter().zip(items.iter()) {
                    self.assign(target, item.clone())?;
                }
            }
        }
        Ok(())
    }
}
