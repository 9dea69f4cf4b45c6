//! `pattern`, `format` and lengths of texts.

use llguidance::derivre::RegexAst;
use serde_json::{Map, Value, json};

use super::expressions::{Matches, matches, of_length, searched, translated};
use super::formats::{Format, format};
use super::lowering::{Conjunct, Lowering};
use crate::error::GrammarError;

impl Lowering<'_> {
    /// Keeps what can be enforced of the keywords of texts.
    pub(super) fn text(
        &mut self,
        object: &mut Map<String, Value>,
        at: &str,
        conjuncts: &mut Vec<Conjunct>,
    ) -> Result<(), GrammarError> {
        self.format(object, at, conjuncts)?;
        let mut limits = Vec::new();
        if let Some(pattern) = object.get("pattern").and_then(Value::as_str) {
            match translated(pattern) {
                Some(text) => {
                    limits.push(searched(&text));
                    object.insert("pattern".to_owned(), text.into());
                }
                None => {
                    object.remove("pattern");
                    let why = "the expression has look-around, a reference to a group, or an error";
                    self.losses.add_because(&format!("{at}/pattern"), why)?;
                }
            }
        }
        if limits.is_empty() {
            return Ok(());
        }
        let length = |key: &str| object.get(key).and_then(Value::as_u64);
        if let Some(length) = match (length("minLength").unwrap_or(0), length("maxLength")) {
            (0, None) => None,
            (least, most) => Some(of_length(least, most)),
        } {
            limits.push(length);
        }
        self.affordable(object, limits, at)
    }

    /// Leaves out lengths and then the pattern if what matches all of them takes too long to see.
    fn affordable(
        &mut self,
        object: &mut Map<String, Value>,
        mut limits: Vec<RegexAst>,
        at: &str,
    ) -> Result<(), GrammarError> {
        if matches(limits.clone(), &self.budget) != Matches::Unknown {
            return Ok(());
        }
        if limits.len() > 1 {
            limits.pop();
            for key in ["minLength", "maxLength"] {
                if object.remove(key).is_some() {
                    self.losses.add_because(
                        &format!("{at}/{key}"),
                        "with the pattern beside it, it is too complex",
                    )?;
                }
            }
            if matches(limits, &self.budget) != Matches::Unknown {
                return Ok(());
            }
        }
        object.remove("pattern");
        self.losses.add_because(&format!("{at}/pattern"), "the expression is too complex")
    }

    fn format(
        &mut self,
        object: &mut Map<String, Value>,
        at: &str,
        conjuncts: &mut Vec<Conjunct>,
    ) -> Result<(), GrammarError> {
        let Some(Value::String(name)) = object.remove("format") else { return Ok(()) };
        let at = format!("{at}/format");
        match format(&name) {
            None => {}
            Some(Format::Engine(known)) => _ = object.insert("format".to_owned(), known.into()),
            Some(Format::Pattern(pattern)) if object.contains_key("pattern") => {
                conjuncts.push(Conjunct { schema: json!({ "pattern": pattern }), at });
            }
            Some(Format::Pattern(pattern)) => _ = object.insert("pattern".to_owned(), pattern.into()),
            Some(Format::NotEnforced) => {
                self.losses.add_because(&at, &format!("the format `{name}` cannot be enforced"))?;
            }
        }
        Ok(())
    }
}
