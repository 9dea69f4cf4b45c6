//! Statements.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::Evaluator;
use crate::ast::{Expr, For, Macro, Name, PostfixOp, Statement, StatementKind, Target};
use crate::error::RenderError;
use crate::value::{List, LoopState, Value};

/// What a statement does to the loop around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ControlFlow {
    Next,
    Break,
    Continue,
}

impl Evaluator {
    pub(super) fn run(&mut self, body: &[Statement]) -> Result<ControlFlow, RenderError> {
        for statement in body {
            self.line = statement.line;
            self.runtime.meter.spend(1)?;
            let flow = self.descend(|this| this.statement(&statement.kind))?;
            if flow != ControlFlow::Next {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Next)
    }

    fn statement(&mut self, statement: &StatementKind) -> Result<ControlFlow, RenderError> {
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
                let text = self.apply(text, filters)?.to_text(&self.runtime.meter)?;
                self.emit(&text)?;
            }
            StatementKind::Scope(body) => return self.scoped(self.scope, |this| this.run(body)),
            StatementKind::Break => return Ok(ControlFlow::Break),
            StatementKind::Continue => return Ok(ControlFlow::Continue),
        }
        Ok(ControlFlow::Next)
    }

    fn output(&mut self, value: &Expr) -> Result<(), RenderError> {
        let value = self.eval(value)?;
        if let Value::Unsafe(access) = &value {
            return RenderError::failed(crate::value::access_message(access));
        }
        let text = value.to_text(&self.runtime.meter)?;
        self.emit(&text)
    }

    fn with(&mut self, bindings: &[(Target, Expr)], body: &[Statement]) -> Result<ControlFlow, RenderError> {
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

    fn for_statement(&mut self, definition: &Arc<For>) -> Result<(), RenderError> {
        let items = self.eval(&definition.items)?;
        self.for_each(definition, &items, 0, self.scope)
    }

    pub fn for_each(
        &mut self,
        definition: &Arc<For>,
        items: &Value,
        depth0: usize,
        scope: usize,
    ) -> Result<(), RenderError> {
        let mut items = items.defined_or_empty()?.iterate(&self.runtime.meter)?;
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

    fn iterations(&mut self, definition: &For, state: &Rc<RefCell<LoopState>>) -> Result<(), RenderError> {
        let name: Name = Arc::from("loop");
        let items = Rc::clone(&state.borrow().items);
        for (index, item) in items.iter().enumerate() {
            self.runtime.meter.spend(1)?;
            self.reset_scope();
            state.borrow_mut().index0 = index;
            self.define(&name, Value::Loop(Rc::clone(state)));
            self.assign(&definition.target, item.clone())?;
            if self.run(&definition.body)? == ControlFlow::Break {
                break;
            }
        }
        Ok(())
    }

    fn filtered(&mut self, definition: &For, items: &List, scope: usize) -> Result<List, RenderError> {
        let Some(condition) = &definition.condition else { return Ok(Rc::clone(items)) };
        let kept = self.scoped(scope, |this| {
            let mut kept = Vec::new();
            for item in items.iter() {
                this.reset_scope();
                this.assign(&definition.target, item.clone())?;
                if this.eval(condition)?.is_true() {
                    kept.push(item.clone());
                }
            }
            Ok(kept)
        })?;
        self.runtime.meter.items(kept)
    }

    fn call_block(&mut self, call: &Expr, caller: &Arc<Macro>) -> Result<(), RenderError> {
        let Expr::Postfix(callee, ops) = call else { return RenderError::failed("expected a call") };
        let Some((PostfixOp::Call(arguments), before)) = ops.split_last() else {
            return RenderError::failed("expected a call");
        };
        let callee = self.eval(callee)?;
        let callee = self.apply(callee, before)?;
        let mut given = self.call_arguments(arguments)?;
        given.named.push((Arc::from("caller"), self.closure(caller)));
        let text = self.call(&callee, given)?.to_text(&self.runtime.meter)?;
        self.emit(&text)
    }
}
