//! The syntax tree of a template.
//!
//! Invariant: chains (`a.b.c`, `a + b + c`, `elif`) are lists, never nests, so the depth of a tree is the depth
//! of the brackets in its source, which the parser bounds. Nothing here holds a value of a rendering, so a
//! template is shared between threads.

use std::sync::Arc;

pub(crate) type Name = Arc<str>;

#[derive(Debug)]
pub(crate) struct Statement {
    pub line: u32,
    pub kind: StatementKind,
}

#[derive(Debug)]
pub(crate) enum StatementKind {
    Text(Name),
    Output(Expr),
    /// Pairs of condition and body, then the body of `else`.
    If {
        branches: Vec<(Expr, Vec<Statement>)>,
        otherwise: Vec<Statement>,
    },
    For(Arc<For>),
    Set {
        target: Target,
        value: Expr,
    },
    SetBlock {
        target: Target,
        filters: Vec<PostfixOp>,
        body: Vec<Statement>,
    },
    With {
        bindings: Vec<(Target, Expr)>,
        body: Vec<Statement>,
    },
    Macro(Arc<Macro>),
    /// `{% call(args) callee(…) %}body{% endcall %}`: the macro is the body, known to the callee as `caller`.
    Call {
        call: Expr,
        caller: Arc<Macro>,
    },
    Filter {
        filters: Vec<PostfixOp>,
        body: Vec<Statement>,
    },
    /// A body that only has a scope of its own: `block`, `autoescape`, `generation`.
    Scope(Vec<Statement>),
    Break,
    Continue,
}

#[derive(Debug)]
pub(crate) struct For {
    pub target: Target,
    pub items: Expr,
    pub condition: Option<Expr>,
    pub recursion: Recursion,
    pub body: Vec<Statement>,
    pub otherwise: Vec<Statement>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recursion {
    Allowed,
    None,
}

#[derive(Debug)]
pub(crate) struct Macro {
    pub name: Name,
    pub parameters: Vec<(Name, Option<Expr>)>,
    pub body: Vec<Statement>,
    /// Whether the body mentions `varargs` and `kwargs`: only then may a call bring more than the parameters.
    pub takes_varargs: bool,
    pub takes_kwargs: bool,
}

#[derive(Debug)]
pub(crate) enum Target {
    Name(Name),
    Attribute(Name, Name),
    Tuple(Vec<Target>),
}

#[derive(Debug)]
pub(crate) enum Expr {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(Name),
    Name(Name),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Not(Box<Expr>),
    Negate(Box<Expr>),
    Plus(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Concat(Vec<Expr>),
    /// Operators of one rank, applied from the left.
    Arithmetic(Box<Expr>, Vec<(Operator, Expr)>),
    Compare(Box<Expr>, Vec<(Comparison, Expr)>),
    /// `then if condition else otherwise`.
    Choose {
        condition: Box<Expr>,
        then: Box<Expr>,
        otherwise: Option<Box<Expr>>,
    },
    Postfix(Box<Expr>, Vec<PostfixOp>),
}

#[derive(Debug)]
pub(crate) enum PostfixOp {
    Attribute(Name),
    Index(Expr),
    Slice(Option<Expr>, Option<Expr>, Option<Expr>),
    Call(Arguments),
    Filter(Name, Arguments),
    Test { name: Name, arguments: Arguments, negated: bool },
}

#[derive(Debug, Default)]
pub(crate) struct Arguments {
    pub positional: Vec<Expr>,
    pub named: Vec<(Name, Expr)>,
    pub star: Option<Expr>,
    pub double_star: Option<Expr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Modulo,
    Power,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
    NotIn,
}
