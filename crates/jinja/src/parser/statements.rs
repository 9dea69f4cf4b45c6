//! The grammar of tags.

use std::sync::Arc;

use super::cursor::{Mentions, Parsed, Parser};
use super::expressions::{Conditional, single_or};
use crate::ast::{Expr, For, Macro, Name, PostfixOp, Recursion, Statement, StatementKind, Target};
use crate::lexer::{SyntaxError, Token};

impl Parser {
    /// Statements up to a tag whose name is in `ends` (which is left to read, past its `{%`) or the end.
    pub fn body(&mut self, ends: &[&str]) -> Parsed<Vec<Statement>> {
        let mut body = Vec::new();
        loop {
            let line = self.line();
            let kind = match self.peek() {
                Token::Text(text) => {
                    let text = Arc::clone(text);
                    self.next();
                    StatementKind::Text(text)
                }
                Token::OutputStart => {
                    self.next();
                    let value = self.tuple(Conditional::Allowed)?;
                    match self.next() {
                        Token::OutputEnd => StatementKind::Output(value),
                        _ => return self.fail(format!("expected '}}}}'{}", self.found())),
                    }
                }
                Token::BlockStart => {
                    self.next();
                    if matches!(self.peek(), Token::Name(name) if ends.contains(&&**name)) {
                        return Ok(body);
                    }
                    self.nested(Self::tag)?
                }
                Token::End if ends.is_empty() => return Ok(body),
                _ => {
                    return self.fail(format!(
                        "expected '{{% {} %}}'{}",
                        ends.join(" %}' or '{% "),
                        self.found()
                    ));
                }
            };
            body.push(Statement { line, kind });
        }
    }

    /// A body up to the tag `end`, and that tag.
    fn body_to(&mut self, end: &str) -> Parsed<Vec<Statement>> {
        self.block_end()?;
        let body = self.body(&[end])?;
        self.next();
        Ok(body)
    }

    fn tag(&mut self) -> Parsed<StatementKind> {
        let line = self.line();
        let name = self.name()?;
        let kind = match &*name {
            "if" => self.condition()?,
            "for" => self.for_loop()?,
            "set" => self.set()?,
            "macro" => StatementKind::Macro(self.macro_definition()?),
            "call" => self.call_block()?,
            "with" => self.with()?,
            "filter" => self.filter_block()?,
            "print" => {
                let mut all = vec![self.expression()?];
                while self.take_symbol(",") {
                    all.push(self.expression()?);
                }
                StatementKind::Output(single_or(all, Expr::Concat))
            }
            "generation" => StatementKind::Scope(self.body_to("endgeneration")?),
            "block" => self.block()?,
            "autoescape" => {
                self.expression()?;
                StatementKind::Scope(self.body_to("endautoescape")?)
            }
            "break" | "continue" if self.loops == 0 => {
                return Err(SyntaxError { line, message: format!("'{name}' outside of a loop") });
            }
            "break" => StatementKind::Break,
            "continue" => StatementKind::Continue,
            "include" | "import" | "from" | "extends" => {
                let message = format!("'{name}' needs another file, and a chat template has only itself");
                return Err(SyntaxError { line, message });
            }
            _ => return Err(SyntaxError { line, message: format!("unknown tag '{name}'") }),
        };
        self.block_end()?;
        Ok(kind)
    }

    fn condition(&mut self) -> Parsed<StatementKind> {
        let mut branches = Vec::new();
        let mut otherwise = Vec::new();
        loop {
            let condition = self.tuple(Conditional::Allowed)?;
            self.block_end()?;
            let body = self.body(&["elif", "else", "endif"])?;
            branches.push((condition, body));
            match &*self.name()? {
                "elif" => {}
                "else" => {
                    otherwise = self.body_to("endif")?;
                    break;
                }
                _ => break,
            }
        }
        Ok(StatementKind::If { branches, otherwise })
    }

    fn for_loop(&mut self) -> Parsed<StatementKind> {
        let target = self.target()?;
        self.expect_word("in")?;
        let items = self.tuple(Conditional::None)?;
        let condition = if self.take_word("if") { Some(self.expression()?) } else { None };
        let recursion = if self.take_word("recursive") { Recursion::Allowed } else { Recursion::None };
        self.block_end()?;
        self.loops += 1;
        let body = self.body(&["else", "endfor"])?;
        self.loops -= 1;
        let otherwise = if &*self.name()? == "else" { self.body_to("endfor")? } else { Vec::new() };
        Ok(StatementKind::For(Arc::new(For { target, items, condition, recursion, body, otherwise })))
    }

    fn set(&mut self) -> Parsed<StatementKind> {
        let target = self.target()?;
        if self.take_symbol("=") {
            return Ok(StatementKind::Set { target, value: self.tuple(Conditional::Allowed)? });
        }
        let filters = self.filters()?;
        Ok(StatementKind::SetBlock { target, filters, body: self.body_to("endset")? })
    }

    fn with(&mut self) -> Parsed<StatementKind> {
        let mut bindings = Vec::new();
        while !matches!(self.peek(), Token::BlockEnd) {
            if !bindings.is_empty() {
                self.expect_symbol(",")?;
            }
            let target = self.single_target()?;
            self.expect_symbol("=")?;
            bindings.push((target, self.expression()?));
        }
        Ok(StatementKind::With { bindings, body: self.body_to("endwith")? })
    }

    fn block(&mut self) -> Parsed<StatementKind> {
        self.name()?;
        while matches!(self.peek(), Token::Name(_)) {
            self.next();
        }
        let body = self.body_to("endblock")?;
        if matches!(self.peek(), Token::Name(_)) {
            self.next();
        }
        Ok(StatementKind::Scope(body))
    }

    fn filter_block(&mut self) -> Parsed<StatementKind> {
        let mut filters = vec![self.filter()?];
        filters.extend(self.filters()?);
        Ok(StatementKind::Filter { filters, body: self.body_to("endfilter")? })
    }

    /// `| name(…) | name(…)`, possibly none.
    fn filters(&mut self) -> Parsed<Vec<PostfixOp>> {
        let mut filters = Vec::new();
        while self.take_symbol("|") {
            filters.push(self.filter()?);
        }
        Ok(filters)
    }

    fn macro_definition(&mut self) -> Parsed<Arc<Macro>> {
        let name = self.name()?;
        let parameters = self.parameters()?;
        self.macro_body(name, parameters, "endmacro")
    }

    fn call_block(&mut self) -> Parsed<StatementKind> {
        let parameters = if self.is_symbol("(") { self.parameters()? } else { Vec::new() };
        let call = self.expression()?;
        if !matches!(&call, Expr::Postfix(_, ops) if matches!(ops.last(), Some(PostfixOp::Call(_)))) {
            return self.fail("expected a call");
        }
        let caller = self.macro_body(Arc::from("caller"), parameters, "endcall")?;
        Ok(StatementKind::Call { call, caller })
    }

    fn macro_body(
        &mut self,
        name: Name,
        parameters: Vec<(Name, Option<Expr>)>,
        end: &str,
    ) -> Parsed<Arc<Macro>> {
        let outer = std::mem::take(&mut self.mentions);
        let loops = std::mem::take(&mut self.loops);
        let body = self.body_to(end)?;
        self.loops = loops;
        let Mentions { varargs, kwargs } = std::mem::replace(&mut self.mentions, outer);
        Ok(Arc::new(Macro { name, parameters, body, takes_varargs: varargs, takes_kwargs: kwargs }))
    }

    fn parameters(&mut self) -> Parsed<Vec<(Name, Option<Expr>)>> {
        self.expect_symbol("(")?;
        let mut parameters: Vec<(Name, Option<Expr>)> = Vec::new();
        while !self.take_symbol(")") {
            if !parameters.is_empty() {
                self.expect_symbol(",")?;
                if self.take_symbol(")") {
                    break;
                }
            }
            let name = self.name()?;
            let default = if self.take_symbol("=") { Some(self.expression()?) } else { None };
            if default.is_none() && parameters.last().is_some_and(|(_, default)| default.is_some()) {
                return self.fail("a parameter without a default follows one with a default");
            }
            parameters.push((name, default));
        }
        Ok(parameters)
    }

    fn target(&mut self) -> Parsed<Target> {
        let first = self.single_target()?;
        if !self.is_symbol(",") {
            return Ok(first);
        }
        let mut targets = vec![first];
        while self.take_symbol(",") {
            if !matches!(self.peek(), Token::Name(_)) && !self.is_symbol("(") || self.is_word("in") {
                break;
            }
            targets.push(self.single_target()?);
        }
        Ok(Target::Tuple(targets))
    }

    fn single_target(&mut self) -> Parsed<Target> {
        if self.take_symbol("(") {
            let target = self.nested(Self::target)?;
            self.expect_symbol(")")?;
            return Ok(target);
        }
        let name = self.name()?;
        if ["true", "false", "none", "True", "False", "None"].contains(&&*name) {
            return self.fail(format!("cannot assign to '{name}'"));
        }
        if self.take_symbol(".") { Ok(Target::Attribute(name, self.name()?)) } else { Ok(Target::Name(name)) }
    }
}
