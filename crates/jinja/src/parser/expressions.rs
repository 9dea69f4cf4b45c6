//! The grammar of expressions, from the loosest operator to the tightest.

use std::sync::Arc;

use super::cursor::{Parsed, Parser};
use crate::ast::{Arguments, Comparison, Expr, Name, Operator, PostfixOp};
use crate::lexer::Token;

/// Whether an expression may be `a if b else c` here: not in the items of a `for`, where `if` is its filter.
#[derive(Clone, Copy)]
pub(crate) enum Conditional {
    Allowed,
    None,
}

/// Whether filters and tests may follow: not between a sign and its operand, as they bind looser than the sign.
#[derive(Clone, Copy, PartialEq)]
enum Filters {
    Allowed,
    None,
}

impl Parser {
    /// One expression, or several with commas between them, which make a tuple.
    pub fn tuple(&mut self, conditional: Conditional) -> Parsed<Expr> {
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

    pub fn expression(&mut self) -> Parsed<Expr> {
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

    pub fn filter(&mut self) -> Parsed<PostfixOp> {
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

pub(crate) fn single_or(mut all: Vec<Expr>, many: impl FnOnce(Vec<Expr>) -> Expr) -> Expr {
    if all.len() == 1 { all.swap_remove(0) } else { many(all) }
}
