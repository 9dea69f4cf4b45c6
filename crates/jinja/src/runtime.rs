//! What operators, filters, methods and functions share: the meter, and the namespaces of one rendering.
//!
//! Invariant: nothing here knows statements or scopes. What may run a part of the template (a macro, a recursive loop)
//! belongs to the evaluator.

use std::cell::RefCell;
use std::rc::Rc;

use crate::ast::Name;
use crate::meter::Meter;
use crate::value::{Namespace, Value};

pub(crate) struct Runtime {
    pub meter: Meter,
    /// Every namespace, so that what they hold can be dropped without recursion in the end.
    namespaces: Vec<Namespace>,
}

impl Drop for Runtime {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            let held = std::mem::take(&mut *namespace.borrow_mut());
            drop(held);
        }
    }
}

impl Runtime {
    pub fn new(meter: Meter) -> Runtime {
        Runtime { meter, namespaces: Vec::new() }
    }

    /// A namespace, recorded so that it is emptied in the end.
    pub fn namespace(&mut self, entries: Vec<(Name, Value)>) -> Value {
        let namespace = Rc::new(RefCell::new(entries));
        self.namespaces.push(Rc::clone(&namespace));
        Value::Namespace(namespace)
    }
}
