//! Expressions.

use std::sync::Arc;

use super::Evaluator;
use crate::arithmetic;
use crate::ast::{Comparison, Expr, Operator, PostfixOp};
use crate::error::RenderError;
use crate::value::{Text, UndefinedReason, Value};

impl Evaluator {
    pub fn eval(&mut self, expr: &Expr) -> Result<Value, RenderError> {
        self.runtime.meter.spend(1)?;
        match expr {
            Expr::None => Ok(Value::None),
            Expr::Bool(value) => Ok(Value::Bool(*value)),
            Expr::Int(value) => Ok(Value::Int(*value)),
            Expr::Float(value) => Ok(Value::Float(*value)),
            Expr::Text(text) => Ok(Value::Text(Text::Literal(Arc::clone(text)))),
            Expr::Name(name) => Ok(self.lookup(name)),
            _ => self.descend(|this| this.eval_compound(expr)),
        }
    }

    fn eval_all(&mut self, items: &[Expr]) -> Result<Vec<Value>, RenderError> {
        items.iter().map(|item| self.eval(item)).collect()
    }

    fn eval_compound(&mut self, expr: &Expr) -> Result<Value, RenderError> {
        match expr {
            Expr::List(items) => {
                let items = self.eval_all(items)?;
                self.runtime.meter.list(items)
            }
            Expr::Tuple(items) => {
                let items = self.eval_all(items)?;
                self.runtime.meter.tuple(items)
            }
            Expr::Dict(entries) => self.eval_dict(entries),
            Expr::Not(value) => Ok(Value::Bool(!self.eval(value)?.is_true())),
            Expr::Negate(value) => {
                let value = self.eval(value)?;
                // Zero minus zero has no sign.
                if let Value::Float(value) = value {
                    Ok(Value::Float(-value))
                } else {
                    arithmetic::compute(Operator::Subtract, &Value::Int(0), &value)
                }
            }
            Expr::Plus(value) => {
                let value = self.eval(value)?;
                arithmetic::compute(Operator::Add, &Value::Int(0), &value)
            }
            Expr::And(all) => self.first_where(all, false),
            Expr::Or(all) => self.first_where(all, true),
            Expr::Concat(all) => {
                let mut out = self.runtime.meter.new_text()?;
                for value in all {
                    self.eval(value)?.write(&mut out)?;
                }
                Ok(out.into_value())
            }
            Expr::Arithmetic(first, rest) => {
                let mut left = self.eval(first)?;
                for (operator, right) in rest {
                    let right = self.eval(right)?;
                    left = self.runtime.operate(*operator, &left, &right)?;
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
                    None => Ok(Value::Undefined(UndefinedReason::Branch)),
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
    fn first_where(&mut self, all: &[Expr], wanted: bool) -> Result<Value, RenderError> {
        let mut last = Value::None;
        for value in all {
            last = self.eval(value)?;
            if last.is_true() == wanted {
                break;
            }
        }
        Ok(last)
    }

    fn eval_dict(&mut self, entries: &[(Expr, Expr)]) -> Result<Value, RenderError> {
        let mut made: Vec<(Value, Value)> = Vec::new();
        for (key, value) in entries {
            let (key, value) = (self.eval(key)?, self.eval(value)?);
            self.runtime.insert(&mut made, key, value)?;
        }
        self.runtime.meter.dict(made)
    }

    fn eval_compare(&mut self, first: &Expr, rest: &[(Comparison, Expr)]) -> Result<Value, RenderError> {
        let mut left = self.eval(first)?;
        for (comparison, right) in rest {
            let right = self.eval(right)?;
            if !self.runtime.compare(*comparison, &left, &right)? {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    /// Applies attributes, indices, calls, filters and tests from left to right.
    pub fn apply(&mut self, mut value: Value, ops: &[PostfixOp]) -> Result<Value, RenderError> {
        for op in ops {
            self.runtime.meter.spend(1)?;
            value = match op {
                PostfixOp::Attribute(name) => self.runtime.attribute(&value, name)?,
                PostfixOp::Index(index) => {
                    let index = self.eval(index)?;
                    self.runtime.index(&value, &index)?
                }
                PostfixOp::Slice(start, stop, step) => {
                    let mut bounds = [None, None, None];
                    for (bound, expr) in bounds.iter_mut().zip([start, stop, step]) {
                        if let Some(expr) = expr {
                            *bound = Some(self.eval(expr)?);
                        }
                    }
                    self.runtime.slice(&value, &bounds)?
                }
                PostfixOp::Call(arguments) => {
                    let given = self.call_arguments(arguments)?;
                    self.call(&value, given)?
                }
                PostfixOp::Filter(name, arguments) => {
                    let given = self.call_arguments(arguments)?;
                    self.descend(|this| this.runtime.filter(name, &value, given))?
                }
                PostfixOp::Test { name, arguments, negated } => {
                    let given = self.call_arguments(arguments)?;
                    Value::Bool(self.runtime.test(name, &value, given)? != *negated)
                }
            };
        }
        Ok(value)
    }
}
