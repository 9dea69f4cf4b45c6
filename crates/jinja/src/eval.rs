//! Runs a parsed template: statements, expressions, scopes and calls.
//!
//! Invariant: every step is paid for at the meter, and the walk is at most [`Limits::depth`] deep, however macros call
//! each other, so a template decides neither about time nor about the stack.

mod calls;
mod expressions;
mod scopes;
mod statements;

use self::scopes::Scope;
use crate::ast::Statement;
use crate::context::Context;
use crate::error::{Error, RenderError};
use crate::limits::Limits;
use crate::meter::TextBuilder;
use crate::runtime::Runtime;
use crate::value::Value;

pub(crate) struct Evaluator {
    runtime: Runtime,
    limits: Limits,
    out: TextBuilder,
    scopes: Vec<Scope>,
    /// The innermost scope of the statement that runs. A macro's is not on top of its caller's.
    scope: usize,
    next_scope_id: u64,
    depth: usize,
    line: u32,
}

impl Evaluator {
    pub fn new(context: Context) -> Result<Self, Error> {
        let Context { limits, meter, names } = context;
        Ok(Evaluator {
            out: meter.new_text().map_err(|error| error.at(1))?,
            runtime: Runtime::new(meter),
            limits,
            scopes: vec![Scope { names, parent: None, id: 0 }],
            scope: 0,
            next_scope_id: 1,
            depth: 0,
            line: 1,
        })
    }

    /// The text of the whole template.
    pub fn render(mut self, body: &[Statement]) -> Result<String, Error> {
        let rendered = self.run(body).and_then(|_| {
            let empty = self.runtime.meter.new_text()?;
            Ok(std::mem::replace(&mut self.out, empty).finish().0)
        });
        rendered.map_err(|error| error.at(self.line))
    }

    fn descend<T>(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<T, RenderError>,
    ) -> Result<T, RenderError> {
        if self.depth == self.limits.depth {
            return Err(RenderError::Limit("recursion"));
        }
        self.depth += 1;
        let result = run(self);
        self.depth -= 1;
        result
    }

    fn emit(&mut self, text: &str) -> Result<(), RenderError> {
        if self.out.len() + text.len() > self.limits.output_bytes {
            return Err(RenderError::Limit("output"));
        }
        self.out.push(text)
    }

    /// Runs `inside` with its output kept apart, and returns that.
    fn capture<T>(
        &mut self,
        inside: impl FnOnce(&mut Self) -> Result<T, RenderError>,
    ) -> Result<Value, RenderError> {
        let outer = std::mem::replace(&mut self.out, self.runtime.meter.new_text()?);
        let result = inside(self);
        let captured = std::mem::replace(&mut self.out, outer);
        result.map(|_| captured.into_value())
    }
}
