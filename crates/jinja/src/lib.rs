//! A Jinja interpreter with limits, for templates that come with a model and are not trusted.
//!
//! Start at [`Template::parse`] and [`Template::render`]. What a template means is what Python's jinja2 makes of it in
//! the environment that transformers sets up for chat templates: `trim_blocks`, `lstrip_blocks`, loop controls, the
//! `generation` tag, `tojson` without HTML escapes, `raise_exception`, and the methods of Python's strings, lists and
//! dicts that change nothing.
//!
//! Invariants: a rendering depends on its [`Context`] alone and reads no file and no clock; it ends in a text or an
//! error within its [`Limits`] of steps, memory, output and depth, whatever the template does. A parsed template is
//! [`Send`] and [`Sync`].

#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod access;
mod arguments;
mod arithmetic;
mod ast;
mod context;
mod error;
mod eval;
mod filters;
mod float;
mod format;
mod functions;
mod lexer;
mod limits;
mod meter;
mod methods;
mod operators;
mod parser;
mod predicates;
mod runtime;
mod strings;
mod tojson;
mod value;

pub use context::{Context, ContextValue};
pub use error::{Error, RenderError};
pub use limits::Limits;

use ast::Statement;
use eval::Evaluator;

/// A parsed template.
#[derive(Debug)]
pub struct Template {
    source: String,
    body: Vec<Statement>,
}

impl Template {
    /// Parses a source, which may be as large and nest as deep as `limits` say.
    pub fn parse(source: &str, limits: &Limits) -> Result<Template, Error> {
        if source.len() > limits.source_bytes {
            let message = format!("it is larger than {} kB", limits.source_bytes >> 10);
            return Err(Error::Syntax { line: 1, message });
        }
        let body = parser::parse(source, limits.source_depth)
            .map_err(|error| Error::Syntax { line: error.line, message: error.message })?;
        Ok(Template { source: source.to_owned(), body })
    }

    /// The source it was parsed from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The text that the template makes of `context`, within the context's limits.
    pub fn render(&self, context: Context) -> Result<String, Error> {
        Evaluator::new(context)?.render(&self.body)
    }
}
