//! Tokens to a tree: the grammar of Jinja with the tags that chat templates use.
//!
//! Invariant: brackets and tags nest at most [`MAX_NESTING`] deep, so neither this parser nor what walks the tree
//! can exhaust the stack. A template is one file: `include`, `import` and `extends` are refused.

use std::sync::Arc;

use super::ast::{
    Arguments, Comparison, Expr, For, Macro, Name, Operator, PostfixOp, Recursion, Statement, StatementKind,
    Target,
};
use super::lexer::{SyntaxError, Token, tokens};

/// How deep tags and brackets may nest. Published templates stay below 20.
const MAX_NESTING: usize = 64;

type Parsed<T> = Result<T, SyntaxError>;

/// The statements of a whole template.
pub(super) fn parse(source: &str) -> Parsed<Vec<Statement>> {
    let mut parser =
        Parser { tokens: tokens(source)?, at: 0, nesting: 0, loops: 0, mentions: Mentions::default() };
    let body = parser.body(&[])?;
    match parser.peek() {
        Token::End => Ok(body),
        _ => parser.fail("unexpected end tag"),
    }
}

struct Parser {
    tokens: Vec<(Token, u32)>,
    at: usize,
    nesting: usize,
    loops: usize,
    mentions: Mentions,
}

/// Which of the names that change how a macro may be called were seen in its body.
#[derive(Default, Clone, Copy)]
struct Mentions {
    varargs: bool,
    kwargs: bool,
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn peek_after(&self) -> &Token {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)].0
    }

    fn line(&self) -> u32 {
        self.tokens[self.at].1
    }

    fn next(&mut self) -> Token {
        let token = self.tokens[self.at].0.clone();
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        token
    }

    fn fail<T>(&self, message: impl Into<String>) -> Parsed<T> {
        Err(SyntaxError { line: self.line(), message: message.into() })
    }

    fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self.peek(), Token::Symbol(found) if *found == symbol)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Name(found) if &**found == word)
    }

    fn take_symbol(&mut self, symbol: &str) -> bool {
        let found = self.is_symbol(symbol);
        if found {
            self.next();
        }
        found
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.next();
        }
        found
    }

    fn expect_symbol(&mut self, symbol: &str) -> Parsed<()> {
        if self.take_symbol(symbol) {
            Ok(())
        } else {
            self.fail(format!("expected '{symbol}'{}", self.found()))
        }
    }

    fn expect_word(&mut self, word: &str) -> Parsed<()> {
        if self.take_word(word) { Ok(()) } else { self.fail(format!("expected '{word}'{}", self.found())) }
    }

    fn found(&self) -> String {
        match self.peek() {
            Token::Name(name) => format!(", found '{name}'"),
            Token::Symbol(symbol) => format!(", found '{symbol}'"),
            Token::BlockEnd | Token::OutputEnd => ", found the end of the tag".to_owned(),
            Token::End => ", found the end of the template".to_owned(),
            _ => String::new(),
        }
    }

    fn name(&mut self) -> Parsed<Name> {
        match self.peek() {
            Token::Name(name) => {
                let name = Arc::clone(name);
                self.next();
                Ok(name)
            }
            _ => self.fail(format!("expected a name{}", self.found())),
        }
    }

    fn block_end(&mut self) -> Parsed<()> {
        match self.peek() {
            Token::BlockEnd => {
                self.next();
                Ok(())
            }
            _ => self.fail(format!("expected the end of the tag{}", self.found())),
        }
    }

    /// Runs `parse` one level deeper.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.nesting == MAX_NESTING {
            return self.fail(format!("tags and brackets nest more than {MAX_NESTING} deep"));
        }
        self.nesting += 1;
        let parsed = parse(self);
        self.nesting -= 1;
        parsed
    }

    // Statements.

    /// Statements up to a tag whose name is in `ends` (which is left to read, past its `{%`) or the end.
    fn body(&mut self, ends: &[&str]) -> Parsed<Vec<Statement>> {
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

    // Expressions, from the loosest operator to the tightest.

    /// One expression, or several with commas between them, which make a tuple.
    fn tuple(&mut self, conditional: Conditional) -> Parsed<Expr> {
        let one = |parser: &mut Self| match conditional {
            Conditional::Allowed => parser.expression(),
            Conditional::None => parser.nested(Self::or),
        };
        let first = one(self)?;
        if !self.is_symbol(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.take_symbol(",") {
            if matches!(self.peek(), Token::BlockEnd | Token::OutputEnd) || self.is_symbol(")") {
                break;
            }
            items.push(one(self)?);
        }
        Ok(Expr::Tuple(items))
    }

    fn expression(&mut self) -> Parsed<Expr> {
        self.nested(|parser| {
            let value = parser.or()?;
            if !parser.take_word("if") {
                return Ok(value);
            }
            let condition = Box::new(parser.or()?);
            let otherwise =
                if parser.take_word("else") { Some(Box::new(parser.expression()?)) } else { None };
            Ok(Expr::Choose { condition, then: Box::new(value), otherwise })
        })
    }

    fn or(&mut self) -> Parsed<Expr> {
        let first = self.and()?;
        let mut all = vec![first];
        while self.take_word("or") {
            all.push(self.and()?);
        }
        Ok(single_or(all, Expr::Or))
    }

    fn and(&mut self) -> Parsed<Expr> {
        let mut all = vec![self.not()?];
        while self.take_word("and") {
            all.push(self.not()?);
        }
        Ok(single_or(all, Expr::And))
    }

    fn not(&mut self) -> Parsed<Expr> {
        if self.take_word("not") {
            return Ok(Expr::Not(Box::new(self.nested(Self::not)?)));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Parsed<Expr> {
        let first = self.sum()?;
        let mut rest = Vec::new();
        loop {
            let comparison = match self.peek() {
                Token::Symbol("==") => Comparison::Equal,
                Token::Symbol("!=") => Comparison::NotEqual,
                Token::Symbol("<") => Comparison::Less,
                Token::Symbol("<=") => Comparison::LessEqual,
                Token::Symbol(">") => Comparison::Greater,
                Token::Symbol(">=") => Comparison::GreaterEqual,
                Token::Name(name) if &**name == "in" => Comparison::In,
                Token::Name(name)
                    if &**name == "not"
                        && matches!(self.peek_after(), Token::Name(next) if &**next == "in") =>
                {
                    self.next();
                    Comparison::NotIn
                }
                _ => break,
            };
            self.next();
            rest.push((comparison, self.sum()?));
        }
        Ok(if rest.is_empty() { first } else { Expr::Compare(Box::new(first), rest) })
    }

    fn sum(&mut self) -> Parsed<Expr> {
        self.arithmetic(&[("+", Operator::Add), ("-", Operator::Subtract)], Self::concat)
    }

    fn concat(&mut self) -> Parsed<Expr> {
        let mut all = vec![self.product()?];
        while self.take_symbol("~") {
            all.push(self.product()?);
        }
        Ok(single_or(all, Expr::Concat))
    }

    fn product(&mut self) -> Parsed<Expr> {
        let operators = [
            ("*", Operator::Multiply),
            ("//", Operator::FloorDivide),
            ("/", Operator::Divide),
            ("%", Operator::Modulo),
        ];
        self.arithmetic(&operators, Self::power)
    }

    fn power(&mut self) -> Parsed<Expr> {
        self.arithmetic(&[("**", Operator::Power)], |parser| parser.unary(Filters::Allowed))
    }

    fn arithmetic(
        &mut self,
        operators: &[(&str, Operator)],
        operand: impl Fn(&mut Self) -> Parsed<Expr>,
    ) -> Parsed<Expr> {
        let first = operand(self)?;
        let mut rest = Vec::new();
        while let Some((symbol, operator)) = operators.iter().find(|(symbol, _)| self.is_symbol(symbol)) {
            self.expect_symbol(symbol)?;
            rest.push((*operator, operand(self)?));
        }
        Ok(if rest.is_empty() { first } else { Expr::Arithmetic(Box::new(first), rest) })
    }

    fn unary(&mut self, filters: Filters) -> Parsed<Expr> {
        let value = if self.take_symbol("-") {
            Expr::Negate(Box::new(self.nested(|parser| parser.unary(Filters::None))?))
        } else if self.take_symbol("+") {
            Expr::Plus(Box::new(self.nested(|parser| parser.unary(Filters::None))?))
        } else {
            self.primary()?
        };
        let mut ops = Vec::new();
        self.postfix(&mut ops, filters)?;
        Ok(if ops.is_empty() { value } else { Expr::Postfix(Box::new(value), ops) })
    }

    fn postfix(&mut self, ops: &mut Vec<PostfixOp>, filters: Filters) -> Parsed<()> {
        // After the first filter or test only filters, tests and calls may follow, as in Jinja.
        let mut filtered = false;
        loop {
            if self.is_symbol("(") {
                ops.push(PostfixOp::Call(self.arguments()?));
            } else if !filtered && self.take_symbol(".") {
                ops.push(self.attribute()?);
            } else if !filtered && self.take_symbol("[") {
                ops.push(self.nested(Self::subscript)?);
            } else if filters == Filters::Allowed && self.take_symbol("|") {
                filtered = true;
                ops.push(self.filter()?);
            } else if filters == Filters::Allowed && self.take_word("is") {
                filtered = true;
                ops.push(self.test()?);
            } else {
                return Ok(());
            }
        }
    }

    fn attribute(&mut self) -> Parsed<PostfixOp> {
        if let Token::Int(index) = *self.peek() {
            self.next();
            return Ok(PostfixOp::Index(Expr::Int(index)));
        }
        Ok(PostfixOp::Attribute(self.name()?))
    }

    fn subscript(&mut self) -> Parsed<PostfixOp> {
        let start = if self.is_symbol(":") { None } else { Some(self.expression()?) };
        if self.take_symbol("]") {
            return match start {
                Some(index) => Ok(PostfixOp::Index(index)),
                None => self.fail("expected an index"),
            };
        }
        self.expect_symbol(":")?;
        let bound = |parser: &mut Self| {
            if parser.is_symbol(":") || parser.is_symbol("]") {
                Ok(None)
            } else {
                parser.expression().map(Some)
            }
        };
        let stop = bound(self)?;
        let step = if self.take_symbol(":") { bound(self)? } else { None };
        self.expect_symbol("]")?;
        Ok(PostfixOp::Slice(start, stop, step))
    }

    fn filter(&mut self) -> Parsed<PostfixOp> {
        let name = self.dotted_name()?;
        let arguments = if self.is_symbol("(") { self.arguments()? } else { Arguments::default() };
        Ok(PostfixOp::Filter(name, arguments))
    }

    fn dotted_name(&mut self) -> Parsed<Name> {
        let mut name = self.name()?;
        while self.take_symbol(".") {
            name = Arc::from(format!("{name}.{}", self.name()?));
        }
        Ok(name)
    }

    fn test(&mut self) -> Parsed<PostfixOp> {
        let negated = self.take_word("not");
        let name = self.dotted_name()?;
        let ends = ["else", "or", "and", "if", "is", "recursive"];
        let arguments = if self.is_symbol("(") {
            self.arguments()?
        } else if matches!(self.peek(), Token::Name(word) if !ends.contains(&&**word) && &**word != "not" && &**word != "in")
            || matches!(self.peek(), Token::String(_) | Token::Int(_) | Token::Float(_))
            || self.is_symbol("[")
            || self.is_symbol("{")
        {
            let value = self.nested(|parser| parser.unary(Filters::None))?;
            Arguments { positional: vec![value], ..Arguments::default() }
        } else {
            Arguments::default()
        };
        Ok(PostfixOp::Test { name, arguments, negated })
    }

    fn arguments(&mut self) -> Parsed<Arguments> {
        self.expect_symbol("(")?;
        let mut arguments = Arguments::default();
        let mut first = true;
        while !self.take_symbol(")") {
            if !first {
                self.expect_symbol(",")?;
                if self.take_symbol(")") {
                    break;
                }
            }
            first = false;
            self.argument(&mut arguments)?;
        }
        Ok(arguments)
    }

    fn argument(&mut self, arguments: &mut Arguments) -> Parsed<()> {
        if self.take_symbol("**") {
            arguments.double_star = Some(self.expression()?);
        } else if self.take_symbol("*") {
            arguments.star = Some(self.expression()?);
        } else if matches!(self.peek(), Token::Name(_)) && matches!(self.peek_after(), Token::Symbol("=")) {
            let name = self.name()?;
            self.next();
            arguments.named.push((name, self.expression()?));
        } else if arguments.named.is_empty() {
            arguments.positional.push(self.expression()?);
        } else {
            return self.fail("a positional argument follows a named one");
        }
        Ok(())
    }

    fn primary(&mut self) -> Parsed<Expr> {
        match self.next() {
            Token::Name(name) => Ok(self.word(name)),
            Token::String(mut text) => {
                while let Token::String(more) = self.peek() {
                    text.push_str(more);
                    self.next();
                }
                Ok(Expr::Text(Arc::from(text)))
            }
            Token::Int(value) => Ok(Expr::Int(value)),
            Token::Float(value) => Ok(Expr::Float(value)),
            Token::Symbol("(") => self.nested(Self::brackets),
            Token::Symbol("[") => Ok(Expr::List(self.nested(|parser| parser.items("]"))?)),
            Token::Symbol("{") => self.nested(Self::dict),
            _ => {
                self.at = self.at.saturating_sub(1);
                self.fail(format!("expected a value{}", self.found()))
            }
        }
    }

    fn word(&mut self, name: Name) -> Expr {
        match &*name {
            "true" | "True" => Expr::Bool(true),
            "false" | "False" => Expr::Bool(false),
            "none" | "None" => Expr::None,
            _ => {
                self.mentions.varargs |= &*name == "varargs";
                self.mentions.kwargs |= &*name == "kwargs";
                Expr::Name(name)
            }
        }
    }

    /// What follows `(`: a value in brackets, or a tuple.
    fn brackets(&mut self) -> Parsed<Expr> {
        if self.take_symbol(")") {
            return Ok(Expr::Tuple(Vec::new()));
        }
        let value = self.tuple(Conditional::Allowed)?;
        self.expect_symbol(")")?;
        Ok(value)
    }

    fn items(&mut self, close: &str) -> Parsed<Vec<Expr>> {
        let mut items = Vec::new();
        while !self.take_symbol(close) {
            if !items.is_empty() {
                self.expect_symbol(",")?;
                if self.take_symbol(close) {
                    break;
                }
            }
            items.push(self.expression()?);
        }
        Ok(items)
    }

    fn dict(&mut self) -> Parsed<Expr> {
        let mut entries = Vec::new();
        while !self.take_symbol("}") {
            if !entries.is_empty() {
                self.expect_symbol(",")?;
                if self.take_symbol("}") {
                    break;
                }
            }
            let key = self.expression()?;
            self.expect_symbol(":")?;
            entries.push((key, self.expression()?));
        }
        Ok(Expr::Dict(entries))
    }
}

/// Whether an expression may be `a if b else c` here: not in the items of a `for`, where `if` is its filter.
#[derive(Clone, Copy)]
enum Conditional {
    Allowed,
    None,
}

/// Whether filters and tests may follow: not between a sign and its operand, as they bind looser than the sign.
#[derive(Clone, Copy, PartialEq)]
enum Filters {
    Allowed,
    None,
}

fn single_or(mut all: Vec<Expr>, many: impl FnOnce(Vec<Expr>) -> Expr) -> Expr {
    if all.len() == 1 { all.swap_remove(0) } else { many(all) }
}
