//! Runs a parsed template: statements, expressions, scopes and calls.
//!
//! Invariant: every step is paid for at the meter, and the walk is at most [`MAX_DEPTH`] deep, whatever macros
//! call each other, so neither time nor the stack depends on the template's good will.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use jiff::civil::DateTime;

use super::arguments::Given;
use super::ast::{
    Arguments, Comparison, Expr, For, Macro, Name, Operator, PostfixOp, Recursion, Statement, StatementKind,
    Target,
};
use super::filters::escape;
use super::format;
use super::meter::{Draft, Fault, Limits, Meter};
use super::number;
use super::value::{Closure, List, LoopState, Missing, Namespace, Text, Value};

/// How deep statements, expressions and calls may be inside each other while running.
const MAX_DEPTH: usize = 300;

/// What a statement asks of the loop around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

/// The names that one part of a template sees first; the rest it finds in `parent`.
#[derive(Default)]
struct Scope {
    names: HashMap<Name, Value>,
    parent: Option<usize>,
    id: u64,
}

pub(super) struct Evaluator {
    pub meter: Meter,
    pub now: DateTime,
    out: Draft,
    output_bytes: usize,
    scopes: Vec<Scope>,
    /// The innermost scope of what runs now. A macro's is not on top of its caller's.
    scope: usize,
    next_scope_id: u64,
    depth: usize,
    line: u32,
    /// Every namespace, so that what they hold can be dropped without recursion in the end.
    namespaces: Vec<Namespace>,
}

/// A fault and the line of the statement that ran.
pub(super) struct Failure {
    pub line: u32,
    pub fault: Fault,
}

impl Drop for Evaluator {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            let held = std::mem::take(&mut *namespace.borrow_mut());
            drop(held);
        }
    }
}

impl Evaluator {
    pub fn new(
        meter: Meter,
        limits: &Limits,
        names: HashMap<Name, Value>,
        now: DateTime,
    ) -> Result<Self, Fault> {
        Ok(Evaluator {
            out: meter.draft()?,
            meter,
            now,
            output_bytes: limits.output_bytes,
            scopes: vec![Scope { names, parent: None, id: 0 }],
            scope: 0,
            next_scope_id: 1,
            depth: 0,
            line: 1,
            namespaces: Vec::new(),
        })
    }

    /// The text of the whole template.
    pub fn render(mut self, body: &[Statement]) -> Result<String, Failure> {
        match self.run(body) {
            Ok(_) => match self.meter.draft() {
                Ok(empty) => Ok(std::mem::replace(&mut self.out, empty).finish().0),
                Err(fault) => Err(Failure { line: self.line, fault }),
            },
            Err(fault) => Err(Failure { line: self.line, fault }),
        }
    }

    fn deeper<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        if self.depth == MAX_DEPTH {
            return Err(Fault::Limit("recursion"));
        }
        self.depth += 1;
        let result = run(self);
        self.depth -= 1;
        result
    }

    fn emit(&mut self, text: &str) -> Result<(), Fault> {
        if self.out.len() + text.len() > self.output_bytes {
            return Err(Fault::Limit("output"));
        }
        self.out.push(text)
    }

    /// Runs `inside` with its output kept apart, and returns that.
    fn capture<T>(&mut self, inside: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<Value, Fault> {
        let outer = std::mem::replace(&mut self.out, self.meter.draft()?);
        let result = inside(self);
        let captured = std::mem::replace(&mut self.out, outer);
        result.map(|_| captured.into_value())
    }

    /// Runs `inside` in a fresh scope within `parent`.
    fn scoped<T>(
        &mut self,
        parent: usize,
        inside: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let outer = self.scope;
        self.next_scope_id += 1;
        self.scopes.push(Scope { names: HashMap::new(), parent: Some(parent), id: self.next_scope_id });
        self.scope = self.scopes.len() - 1;
        let result = inside(self);
        self.scopes.pop();
        self.scope = outer;
        result
    }

    fn define(&mut self, name: &Name, value: Value) {
        self.scopes[self.scope].names.insert(Arc::clone(name), value);
    }

    fn lookup(&self, name: &Name) -> Value {
        let mut scope = Some(self.scope);
        while let Some(index) = scope {
            if let Some(value) = self.scopes[index].names.get(name) {
                return value.clone();
            }
            scope = self.scopes[index].parent;
        }
        match super::functions::global(name) {
            Some(function) => Value::Function(function),
            None => Value::Undefined(Missing::Name(Arc::clone(name))),
        }
    }

    /// A namespace, known to the evaluator so that it is emptied in the end.
    pub fn namespace(&mut self, entries: Vec<(Name, Value)>) -> Value {
        let namespace = Rc::new(RefCell::new(entries));
        self.namespaces.push(Rc::clone(&namespace));
        Value::Namespace(namespace)
    }

    // Statements.

    fn run(&mut self, body: &[Statement]) -> Result<Flow, Fault> {
        for statement in body {
            self.line = statement.line;
            self.meter.spend(1)?;
            let flow = self.deeper(|this| this.statement(&statement.kind))?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn statement(&mut self, statement: &StatementKind) -> Result<Flow, Fault> {
        match statement {
            StatementKind::Text(text) => self.emit(text)?,
            StatementKind::Output(value) => self.output(value)?,
            StatementKind::If { branches, otherwise } => {
                for (condition, body) in branches {
                    if self.eval(condition)?.is_true() {
                        return self.run(body);
                    }
                }
                return self.run(otherwise);
            }
            StatementKind::For(definition) => self.for_statement(definition)?,
            StatementKind::Set { target, value } => {
                let value = self.eval(value)?;
                self.assign(target, value)?;
            }
            StatementKind::SetBlock { target, filters, body } => {
                let text = self.capture(|this| this.scoped(this.scope, |this| this.run(body)))?;
                let value = self.apply(text, filters)?;
                self.assign(target, value)?;
            }
            StatementKind::With { bindings, body } => return self.with(bindings, body),
            StatementKind::Macro(definition) => {
                let closure = self.closure(definition);
                self.define(&definition.name, closure);
            }
            StatementKind::Call { call, caller } => self.call_block(call, caller)?,
            StatementKind::Filter { filters, body } => {
                let text = self.capture(|this| this.scoped(this.scope, |this| this.run(body)))?;
                let text = self.apply(text, filters)?.to_text(&self.meter)?;
                self.emit(&text)?;
            }
            StatementKind::Scope(body) => return self.scoped(self.scope, |this| this.run(body)),
            StatementKind::Break => return Ok(Flow::Break),
            StatementKind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn output(&mut self, value: &Expr) -> Result<(), Fault> {
        let value = self.eval(value)?;
        if let Value::Unsafe(access) = &value {
            return Fault::failed(super::value::access_message(access));
        }
        let text = value.to_text(&self.meter)?;
        self.emit(&text)
    }

    fn with(&mut self, bindings: &[(Target, Expr)], body: &[Statement]) -> Result<Flow, Fault> {
        let mut values = Vec::new();
        for (_, value) in bindings {
            values.push(self.eval(value)?);
        }
        self.scoped(self.scope, |this| {
            for ((target, _), value) in bindings.iter().zip(values) {
                this.assign(target, value)?;
            }
            this.run(body)
        })
    }

    fn for_statement(&mut self, definition: &Arc<For>) -> Result<(), Fault> {
        let items = self.eval(&definition.items)?;
        self.for_each(definition, &items, 0, self.scope)
    }

    fn for_each(
        &mut self,
        definition: &Arc<For>,
        items: &Value,
        depth0: usize,
        scope: usize,
    ) -> Result<(), Fault> {
        let mut items = items.defined_or_empty()?.iterate(&self.meter)?;
        if definition.condition.is_some() {
            items = self.filtered(definition, &items, scope)?;
        }
        if items.is_empty() {
            return self.scoped(scope, |this| this.run(&definition.otherwise)).map(|_| ());
        }
        let state = Rc::new(RefCell::new(LoopState {
            items,
            index0: 0,
            depth0,
            changed: None,
            definition: Arc::clone(definition),
            scope,
        }));
        let result = self.scoped(scope, |this| this.iterations(definition, &state));
        // `loop.changed` may hold the loop itself.
        state.borrow_mut().changed = None;
        result
    }

    fn iterations(&mut self, definition: &For, state: &Rc<RefCell<LoopState>>) -> Result<(), Fault> {
        let name: Name = Arc::from("loop");
        let items = Rc::clone(&state.borrow().items);
        for (index, item) in items.iter().enumerate() {
            self.meter.spend(1)?;
            self.fresh_scope();
            state.borrow_mut().index0 = index;
            self.define(&name, Value::Loop(Rc::clone(state)));
            self.assign(&definition.target, item.clone())?;
            if self.run(&definition.body)? == Flow::Break {
                break;
            }
        }
        Ok(())
    }

    /// Empties the current scope and gives it a new identity, as each turn of a loop has its own names.
    fn fresh_scope(&mut self) {
        self.next_scope_id += 1;
        let scope = &mut self.scopes[self.scope];
        scope.names.clear();
        scope.id = self.next_scope_id;
    }

    fn filtered(&mut self, definition: &For, items: &List, scope: usize) -> Result<List, Fault> {
        let Some(condition) = &definition.condition else { return Ok(Rc::clone(items)) };
        let kept = self.scoped(scope, |this| {
            let mut kept = Vec::new();
            for item in items.iter() {
                this.fresh_scope();
                this.assign(&definition.target, item.clone())?;
                if this.eval(condition)?.is_true() {
                    kept.push(item.clone());
                }
            }
            Ok(kept)
        })?;
        self.meter.items(kept)
    }

    fn assign(&mut self, target: &Target, value: Value) -> Result<(), Fault> {
        match target {
            Target::Name(name) => self.define(name, value),
            Target::Attribute(name, attribute) => {
                let Value::Namespace(namespace) = self.lookup(name) else {
                    return Fault::failed("cannot assign attribute on non-namespace object");
                };
                let mut entries = namespace.borrow_mut();
                self.meter.spend(entries.len() / 8)?;
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
                let items = value.defined()?.iterate(&self.meter)?;
                if items.len() != targets.len() {
                    let (wanted, found) = (targets.len(), items.len());
                    return Fault::failed(format!("cannot unpack {found} values into {wanted} names"));
                }
                for (target, item) in targets.iter().zip(items.iter()) {
                    self.assign(target, item.clone())?;
                }
            }
        }
        Ok(())
    }

    fn closure(&self, definition: &Arc<Macro>) -> Value {
        let scope_id = self.scopes[self.scope].id;
        Value::Macro(Rc::new(Closure { definition: Arc::clone(definition), scope: self.scope, scope_id }))
    }

    fn call_block(&mut self, call: &Expr, caller: &Arc<Macro>) -> Result<(), Fault> {
        let Expr::Postfix(callee, ops) = call else { return Fault::failed("expected a call") };
        let Some((PostfixOp::Call(arguments), before)) = ops.split_last() else {
            return Fault::failed("expected a call");
        };
        let callee = self.eval(callee)?;
        let callee = self.apply(callee, before)?;
        let mut given = self.given(arguments)?;
        given.named.push((Arc::from("caller"), self.closure(caller)));
        let text = self.call(&callee, given)?.to_text(&self.meter)?;
        self.emit(&text)
    }

    // Calls.

    pub fn call(&mut self, callee: &Value, given: Given) -> Result<Value, Fault> {
        self.meter.spend(1)?;
        match callee {
            Value::Macro(closure) => self.deeper(|this| this.call_macro(closure, given)),
            Value::Function(name) => self.call_function(name, given),
            Value::Method(method) => {
                let result = self.call_method(&method.0, method.1, given)?;
                if matches!(method.0, Value::Text(Text::Markup(_))) {
                    result.into_markup(&self.meter)
                } else {
                    Ok(result)
                }
            }
            Value::Loop(state) => self.deeper(|this| this.recurse(state, given)),
            Value::Joiner(joiner) => {
                let mut joiner = joiner.borrow_mut();
                let used = std::mem::replace(&mut joiner.1, true);
                Ok(if used { Value::Text(joiner.0.clone()) } else { Value::literal("") })
            }
            _ => {
                callee.defined()?;
                Fault::failed(format!("'{}' object is not callable", callee.type_name()))
            }
        }
    }

    fn call_macro(&mut self, closure: &Closure, given: Given) -> Result<Value, Fault> {
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
    fn bind(&mut self, definition: &Macro, given: Given) -> Result<(), Fault> {
        let Given { positional, mut named } = given;
        let count = definition.parameters.len();
        if positional.len() > count && !definition.takes_varargs {
            let name = &definition.name;
            return Fault::failed(format!("macro '{name}' takes not more than {count} argument(s)"));
        }
        let mut positional = positional.into_iter();
        for (name, default) in &definition.parameters {
            let named_value =
                named.iter().position(|(given, _)| given == name).map(|at| named.swap_remove(at).1);
            let value = match (positional.next(), named_value, default) {
                (Some(value), _, _) | (None, Some(value), _) => value,
                (None, None, Some(default)) => self.eval(default)?,
                (None, None, None) => Value::Undefined(Missing::Parameter(Arc::clone(name))),
            };
            self.define(name, value);
        }
        let caller: Name = Arc::from("caller");
        let called_by = named.iter().position(|(name, _)| *name == caller).map(|at| named.swap_remove(at).1);
        let called_by = called_by.unwrap_or(Value::Undefined(Missing::First("No caller defined")));
        self.define(&caller, called_by);
        if definition.takes_varargs {
            let varargs = self.meter.tuple(positional.collect())?;
            self.define(&Arc::from("varargs"), varargs);
        }
        if definition.takes_kwargs {
            let entries = named.into_iter().map(|(name, value)| (Value::literal(&name), value)).collect();
            let kwargs = self.meter.dict(entries)?;
            self.define(&Arc::from("kwargs"), kwargs);
        } else if let Some((extra, _)) = named.first() {
            let name = &definition.name;
            return Fault::failed(format!("macro '{name}' takes no keyword argument '{extra}'"));
        }
        Ok(())
    }

    /// `loop(children)` in a recursive loop.
    fn recurse(&mut self, state: &Rc<RefCell<LoopState>>, given: Given) -> Result<Value, Fault> {
        let (definition, depth0, scope) = {
            let state = state.borrow();
            (Arc::clone(&state.definition), state.depth0, state.scope)
        };
        if definition.recursion == Recursion::None {
            return Fault::failed("the loop must have the 'recursive' marker to be called recursively");
        }
        let [items] = given.bind("loop", &["iterable"])?;
        let items = items.unwrap_or(Value::None);
        let scope = scope.min(self.scopes.len() - 1);
        self.capture(|this| this.for_each(&definition, &items, depth0 + 1, scope))
    }

    fn given(&mut self, arguments: &Arguments) -> Result<Given, Fault> {
        let mut given = Given::default();
        for value in &arguments.positional {
            given.positional.push(self.eval(value)?);
        }
        for (name, value) in &arguments.named {
            given.named.push((Arc::clone(name), self.eval(value)?));
        }
        if let Some(star) = &arguments.star {
            let items = self.eval(star)?.defined()?.iterate(&self.meter)?;
            self.meter.spend(items.len())?;
            given.positional.extend(items.iter().cloned());
        }
        if let Some(double_star) = &arguments.double_star {
            let Value::Dict(dict) = self.eval(double_star)? else {
                return Fault::failed("argument after ** must be a mapping");
            };
            self.meter.spend(dict.len())?;
            for (key, value) in dict.iter() {
                let Some(key) = key.as_str() else { return Fault::failed("keywords must be strings") };
                given.named.push((Arc::from(key), value.clone()));
            }
        }
        Ok(given)
    }

    // Expressions.

    fn eval(&mut self, expr: &Expr) -> Result<Value, Fault> {
        self.meter.spend(1)?;
        match expr {
            Expr::None => Ok(Value::None),
            Expr::Bool(value) => Ok(Value::Bool(*value)),
            Expr::Int(value) => Ok(Value::Int(*value)),
            Expr::Float(value) => Ok(Value::Float(*value)),
            Expr::Text(text) => Ok(Value::Text(Text::Literal(Arc::clone(text)))),
            Expr::Name(name) => Ok(self.lookup(name)),
            _ => self.deeper(|this| this.eval_compound(expr)),
        }
    }

    fn eval_all(&mut self, items: &[Expr]) -> Result<Vec<Value>, Fault> {
        items.iter().map(|item| self.eval(item)).collect()
    }

    fn eval_compound(&mut self, expr: &Expr) -> Result<Value, Fault> {
        match expr {
            Expr::List(items) => {
                let items = self.eval_all(items)?;
                self.meter.list(items)
            }
            Expr::Tuple(items) => {
                let items = self.eval_all(items)?;
                self.meter.tuple(items)
            }
            Expr::Dict(entries) => self.eval_dict(entries),
            Expr::Not(value) => Ok(Value::Bool(!self.eval(value)?.is_true())),
            Expr::Negate(value) => {
                let value = self.eval(value)?;
                // Zero minus zero has no sign.
                if let Value::Float(value) = value {
                    Ok(Value::Float(-value))
                } else {
                    number::compute(Operator::Subtract, &Value::Int(0), &value)
                }
            }
            Expr::Plus(value) => {
                let value = self.eval(value)?;
                number::compute(Operator::Add, &Value::Int(0), &value)
            }
            Expr::And(all) => self.first_where(all, false),
            Expr::Or(all) => self.first_where(all, true),
            Expr::Concat(all) => {
                let mut draft = self.meter.draft()?;
                for value in all {
                    self.eval(value)?.write(&mut draft)?;
                }
                Ok(draft.into_value())
            }
            Expr::Arithmetic(first, rest) => {
                let mut left = self.eval(first)?;
                for (operator, right) in rest {
                    let right = self.eval(right)?;
                    left = self.operate(*operator, &left, &right)?;
                }
                Ok(left)
            }
            Expr::Compare(first, rest) => self.eval_compare(first, rest),
            Expr::Choose { condition, then, otherwise } => {
                if self.eval(condition)?.is_true() {
                    return self.eval(then);
                }
                match otherwise {
                    Some(otherwise) => self.eval(otherwise),
                    None => Ok(Value::Undefined(Missing::Branch)),
                }
            }
            Expr::Postfix(value, ops) => {
                let value = self.eval(value)?;
                self.apply(value, ops)
            }
            _ => self.eval(expr),
        }
    }

    /// The first value whose truth is `wanted`, or the last.
    fn first_where(&mut self, all: &[Expr], wanted: bool) -> Result<Value, Fault> {
        let mut last = Value::None;
        for value in all {
            last = self.eval(value)?;
            if last.is_true() == wanted {
                break;
            }
        }
        Ok(last)
    }

    fn eval_dict(&mut self, entries: &[(Expr, Expr)]) -> Result<Value, Fault> {
        let mut made: Vec<(Value, Value)> = Vec::new();
        for (key, value) in entries {
            let (key, value) = (self.eval(key)?, self.eval(value)?);
            self.insert(&mut made, key, value)?;
        }
        self.meter.dict(made)
    }

    /// Sets `key` in the entries of a dict that is being made.
    pub fn insert(&self, entries: &mut Vec<(Value, Value)>, key: Value, value: Value) -> Result<(), Fault> {
        if matches!(key, Value::List(_) | Value::Dict(_)) {
            return Fault::failed(format!("unhashable type: '{}'", key.type_name()));
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

    fn eval_compare(&mut self, first: &Expr, rest: &[(Comparison, Expr)]) -> Result<Value, Fault> {
        let mut left = self.eval(first)?;
        for (comparison, right) in rest {
            let right = self.eval(right)?;
            if !self.compare(*comparison, &left, &right)? {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    pub fn compare(&self, comparison: Comparison, left: &Value, right: &Value) -> Result<bool, Fault> {
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

    fn contains(&self, whole: &Value, part: &Value) -> Result<bool, Fault> {
        match whole {
            Value::Text(text) => match part.as_str() {
                Some(part) => {
                    self.meter.spend_bytes(text.len())?;
                    Ok(text.contains(part))
                }
                None => Fault::failed(format!(
                    "'in <string>' requires string as left operand, not {}",
                    part.type_name()
                )),
            },
            Value::Dict(_) => Ok(whole.entry(part, &self.meter)?.is_some()),
            Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
                Fault::failed(format!("argument of type '{}' is not iterable", whole.type_name()))
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

    fn operate(&self, operator: Operator, left: &Value, right: &Value) -> Result<Value, Fault> {
        let meter = &self.meter;
        match (operator, left, right) {
            (Operator::Add, Value::Text(a), Value::Text(b)) => {
                let markup = |text: &Text| matches!(text, Text::Markup(_));
                let escapes = markup(a) != markup(b);
                let mut draft = meter.draft()?;
                for part in [a, b] {
                    if escapes && !markup(part) { escape(part, &mut draft)? } else { draft.push(part)? }
                }
                let sum = draft.into_value();
                if markup(a) || markup(b) { sum.into_markup(meter) } else { Ok(sum) }
            }
            (Operator::Add, Value::List(a), Value::List(b)) => meter.list(joined(meter, a, b)?),
            (Operator::Add, Value::Tuple(a), Value::Tuple(b)) => meter.tuple(joined(meter, a, b)?),
            (Operator::Add, Value::Text(_) | Value::List(_) | Value::Tuple(_), _) => {
                right.defined()?;
                let (to, other) = (left.type_name(), right.type_name());
                Fault::failed(format!("can only concatenate {to} (not \"{other}\") to {to}"))
            }
            (Operator::Multiply, Value::Text(text), Value::Int(times))
            | (Operator::Multiply, Value::Int(times), Value::Text(text)) => {
                let mut draft = meter.draft()?;
                draft.repeat(text, usize::try_from((*times).max(0)).unwrap_or(usize::MAX))?;
                Ok(draft.into_value())
            }
            (Operator::Multiply, Value::List(items), Value::Int(times))
            | (Operator::Multiply, Value::Int(times), Value::List(items)) => {
                let times = usize::try_from((*times).max(0)).unwrap_or(usize::MAX);
                let count = items.len().checked_mul(times).ok_or(Fault::Limit("memory"))?;
                drop(meter.lease(count.checked_mul(size_of::<Value>()).ok_or(Fault::Limit("memory"))?)?);
                meter.list(items.iter().cycle().take(count).cloned().collect())
            }
            (Operator::Modulo, Value::Text(text), _) => format::percent(text, right, self),
            _ => number::compute(operator, left, right),
        }
    }

    /// Applies attributes, indices, calls, filters and tests from left to right.
    fn apply(&mut self, mut value: Value, ops: &[PostfixOp]) -> Result<Value, Fault> {
        for op in ops {
            self.meter.spend(1)?;
            value = match op {
                PostfixOp::Attribute(name) => self.attribute(&value, name)?,
                PostfixOp::Index(index) => {
                    let index = self.eval(index)?;
                    self.index(&value, &index)?
                }
                PostfixOp::Slice(start, stop, step) => {
                    let mut bounds = [None, None, None];
                    for (bound, expr) in bounds.iter_mut().zip([start, stop, step]) {
                        if let Some(expr) = expr {
                            *bound = Some(self.eval(expr)?);
                        }
                    }
                    self.slice(&value, &bounds)?
                }
                PostfixOp::Call(arguments) => {
                    let given = self.given(arguments)?;
                    self.call(&value, given)?
                }
                PostfixOp::Filter(name, arguments) => {
                    let given = self.given(arguments)?;
                    self.deeper(|this| this.filter(name, &value, given))?
                }
                PostfixOp::Test { name, arguments, negated } => {
                    let given = self.given(arguments)?;
                    Value::Bool(self.test(name, &value, given)? != *negated)
                }
            };
        }
        Ok(value)
    }
}

fn joined(meter: &Meter, a: &[Value], b: &[Value]) -> Result<Vec<Value>, Fault> {
    drop(meter.lease((a.len() + b.len()) * size_of::<Value>())?);
    Ok(a.iter().chain(b).cloned().collect())
}
