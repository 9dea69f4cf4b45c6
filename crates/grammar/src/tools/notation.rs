//! Rules of values in a notation that is not JSON.

use std::collections::BTreeMap;

use omnibus_text::tool_calls::{IDENTIFIER, Notation};
use serde_json::{Map, Value, json};

use super::keywords::{constants, is_required, members};
use super::text_value;
use super::writer::{Writer, json_value};
use crate::error::GrammarError;
use crate::lark;
use crate::schema::SchemaUse;

/// Keywords without rules here. Schemas that are used strictly have none of them.
const WITHOUT_RULES: &[&str] =
    &["patternProperties", "minProperties", "maxProperties", "prefixItems", "additionalItems"];

/// Writes the rules of the values of one tool's arguments.
pub(super) struct NotationWriter<'a, 'w> {
    writer: &'a mut Writer<'w>,
    notation: &'a Notation,
    root: Value,
    schema_use: SchemaUse,
    prefix: String,
    count: usize,
    /// The rules of references, by their target and by what follows the value.
    references: BTreeMap<(String, String), String>,
    /// References whose rules are not written yet. Written in a loop: a chain of references may be long.
    pending: Vec<Reference>,
}

/// A reference whose rule is to be written.
struct Reference {
    rule: String,
    target: String,
    end: String,
}

impl<'a, 'w> NotationWriter<'a, 'w> {
    /// `root`: the schema that references are relative to. `prefix`: how the names of rules begin.
    pub fn new(
        writer: &'a mut Writer<'w>,
        notation: &'a Notation,
        (root, schema_use): (&Map<String, Value>, SchemaUse),
        prefix: String,
    ) -> Self {
        let root = Value::Object(root.clone());
        let references = BTreeMap::new();
        Self { writer, notation, root, schema_use, prefix, count: 0, references, pending: Vec::new() }
    }

    /// The name of a rule of the values that the root allows.
    pub fn root(mut self) -> Result<String, GrammarError> {
        let root = self.root.clone();
        let rule = self.value(&root, "")?;
        while let Some(Reference { rule, target, end }) = self.pending.pop() {
            let schema = self.root.pointer(target.trim_start_matches('#')).cloned();
            let value = match schema {
                Some(schema) => self.value(&schema, &end).map_err(|error| within(&target, error))?,
                None => return Err(GrammarError::at("$ref", format!("`{target}` is not in the schema"))),
            };
            self.writer.rule(&rule, &value);
        }
        Ok(rule)
    }

    /// The name of a rule of the values that a schema allows, each with `end` after it.
    fn value(&mut self, schema: &Value, end: &str) -> Result<String, GrammarError> {
        self.writer.check_size()?;
        let empty = Map::new();
        let schema = schema.as_object().unwrap_or(&empty);
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            return Ok(self.reference(target, end));
        }
        let rule = self.next_rule();
        if let Some(keyword) = WITHOUT_RULES.iter().find(|keyword| schema.contains_key(**keyword)) {
            self.refuse(keyword)?;
        }
        // What stands beside other keywords has no rules here.
        let is_whole = schema.len() == 1;
        if schema.contains_key("allOf") && !is_whole {
            self.refuse("allOf")?;
        }
        let mut alternatives = Vec::new();
        if let Some(values) = constants(schema) {
            let end = self.writer.join(&[end]);
            for value in &values {
                alternatives.push(format!("{} {end}", self.constant(value)));
            }
        } else if let Some(schemas) = ["anyOf", "oneOf"]
            .iter()
            .find_map(|key| schema.get(*key))
            .or(schema.get("allOf").filter(|_| is_whole))
        {
            if schema.get("allOf").and_then(Value::as_array).is_some_and(|all| all.len() > 1) {
                self.refuse("allOf")?;
            }
            for (at, inner) in schemas.as_array().into_iter().flatten().enumerate() {
                alternatives.push(self.value(inner, end).map_err(|error| within(&format!("[{at}]"), error))?);
            }
        } else {
            for kind in types(schema) {
                alternatives.push(self.of_type(&kind, schema, end)?);
            }
        }
        self.writer.rule(&rule, &alternatives.join(" | "));
        Ok(rule)
    }

    fn next_rule(&mut self) -> String {
        self.count += 1;
        format!("{}_{}", self.prefix, self.count)
    }

    fn refuse(&self, keyword: &str) -> Result<(), GrammarError> {
        match self.schema_use {
            SchemaUse::Lenient => Ok(()),
            SchemaUse::Strict => {
                let message =
                    format!("the keyword `{keyword}` is not supported in this model's format of calls");
                Err(GrammarError::at(keyword, message))
            }
        }
    }

    fn reference(&mut self, target: &str, end: &str) -> String {
        let key = (target.to_owned(), end.to_owned());
        if let Some(rule) = self.references.get(&key) {
            return rule.clone();
        }
        let rule = self.next_rule();
        self.references.insert(key, rule.clone());
        let (target, end) = (target.to_owned(), end.to_owned());
        self.pending.push(Reference { rule: rule.clone(), target, end });
        rule
    }

    fn of_type(
        &mut self,
        kind: &str,
        schema: &Map<String, Value>,
        end: &str,
    ) -> Result<String, GrammarError> {
        let rule = self.next_rule();
        match kind {
            "object" => {
                let members = self.members(schema)?;
                let [open, close] = self.notation.object;
                let (open, close) = (self.writer.join(&[open]), self.writer.join(&[close, end]));
                self.writer.rule(&rule, &format!("{open} {members} {close}"));
            }
            "array" => {
                let items = self.items(schema)?;
                let [open, close] = self.notation.list;
                let (open, close) = (self.writer.join(&[open]), self.writer.join(&[close, end]));
                self.writer.rule(&rule, &format!("{open} {items} {close}"));
            }
            "string" => {
                let [open, close] = self.notation.string;
                let open = self.writer.join(&[open]);
                self.writer.rule(&rule, &format!("{open} {rule}_text"));
                let end = [close, end].concat();
                self.writer.text_until(&format!("{rule}_text"), &text_value::expression(schema), &end);
            }
            _ => {
                let mut plain = schema.clone();
                plain.insert("type".to_owned(), json!(kind));
                let end = self.writer.join(&[end]);
                self.writer.rule(&rule, &format!("{rule}_json {end}"));
                self.writer.rule(&format!("{rule}_json"), &json_value(plain));
            }
        }
        Ok(rule)
    }

    /// A rule of the members of an object, in the order of the schema; those that are not required may be left out.
    fn members(&mut self, schema: &Map<String, Value>) -> Result<String, GrammarError> {
        let rule = self.next_rule();
        let mut rules = Vec::new();
        for (name, member) in members(schema) {
            let value =
                self.member(name, member).map_err(|error| within(&format!("properties.{name}"), error));
            rules.push((value?, is_required(schema, name)));
        }
        let others = schema.get("additionalProperties");
        // The end of a member repeats its key, which a grammar cannot follow, or keys are free.
        if rules.is_empty() && others != Some(&Value::Bool(false)) && self.notation.key_again.is_none() {
            let any = Value::Bool(true);
            let member = self.member(&IDENTIFIER.to_string(), others.unwrap_or(&any))?;
            let separator = self.writer.join(&[self.notation.separator]);
            self.writer.rule(&rule, &format!("({member} ({separator} {member})*)?"));
        } else {
            self.writer.sequence(&rule, &rules, self.notation.separator);
        }
        Ok(rule)
    }

    fn member(&mut self, name: &str, schema: &Value) -> Result<String, GrammarError> {
        let Notation { key: [before, behind], key_again, .. } = *self.notation;
        let end = key_again.map_or(String::new(), |[before, behind]| [before, name, behind].concat());
        let head = self.writer.join(&[before, name, behind]);
        let (rule, value) = (self.next_rule(), self.value(schema, &end)?);
        self.writer.rule(&rule, &format!("{head} {value}"));
        Ok(rule)
    }

    /// A rule of the items of a list.
    fn items(&mut self, schema: &Map<String, Value>) -> Result<String, GrammarError> {
        let any = Value::Bool(true);
        let Notation { item: [before, behind], separator, .. } = *self.notation;
        let value = self
            .value(schema.get("items").unwrap_or(&any), behind)
            .map_err(|error| within("items", error))?;
        let item = format!("{} {value}", self.writer.join(&[before]));
        let separator = self.writer.join(&[separator]);
        let count = |key| schema.get(key).and_then(Value::as_u64);
        let (least, most) = (count("minItems").unwrap_or(0), count("maxItems"));
        let more = |least: u64| match most {
            Some(most) => format!("{{{least},{}}}", most.saturating_sub(1).max(least)),
            None => format!("{{{least},}}"),
        };
        let items = format!("{item} ({separator} {item}){}", more(least.saturating_sub(1)));
        let rule = self.next_rule();
        let body = match (least, most) {
            (_, Some(0)) => String::new(),
            (0, _) => format!("({items})?"),
            _ => items,
        };
        self.writer.rule(&rule, &body);
        Ok(rule)
    }

    /// A value as it is written.
    fn constant(&self, value: &Value) -> String {
        let notation = self.notation;
        let join = |text: &str| self.writer.join(&[text]);
        let separator = join(notation.separator);
        match value {
            Value::String(text) => {
                let [open, close] = notation.string.map(join);
                let text = if text.is_empty() { String::new() } else { lark::literal(text) };
                let text = format!("{open} {text} {close}");
                if text.trim().is_empty() { "\"\"".to_owned() } else { text }
            }
            Value::Array(items) => {
                let [open, close] = notation.list.map(join);
                let [before, behind] = notation.item.map(join);
                let items: Vec<String> =
                    items.iter().map(|item| format!("{before} {} {behind}", self.constant(item))).collect();
                format!("{open} {} {close}", items.join(&format!(" {separator} ")))
            }
            Value::Object(object) => {
                let [open, close] = notation.object.map(join);
                let member = |(name, value): (&String, &Value)| {
                    let [before, behind] = notation.key;
                    let again = notation
                        .key_again
                        .map_or(String::new(), |[before, behind]| self.writer.join(&[before, name, behind]));
                    let head = self.writer.join(&[before, name, behind]);
                    format!("{head} {} {again}", self.constant(value))
                };
                let members: Vec<String> = object.iter().map(member).collect();
                format!("{open} {} {close}", members.join(&format!(" {separator} ")))
            }
            value => lark::literal(&value.to_string()),
        }
    }
}

/// The error with a longer path.
fn within(path: &str, error: GrammarError) -> GrammarError {
    let separator = if error.path.is_empty() || error.path.starts_with('[') { "" } else { "." };
    GrammarError { path: format!("{path}{separator}{}", error.path), ..error }
}

/// The types that a schema allows.
fn types(schema: &Map<String, Value>) -> Vec<String> {
    let has = |keys: &[&str]| keys.iter().any(|key| schema.contains_key(*key));
    let named: &[&str] = match schema.get("type") {
        Some(Value::String(kind)) => return vec![kind.clone()],
        Some(Value::Array(kinds)) => {
            return kinds.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        }
        _ if has(&["properties", "required"]) => &["object"],
        _ if has(&["items", "minItems", "maxItems"]) => &["array"],
        _ if has(&["pattern", "format", "minLength", "maxLength"]) => &["string"],
        _ if has(&["minimum", "maximum", "multipleOf"]) => &["number"],
        // Of any type, nested no further.
        _ => &["string", "number", "boolean", "null"],
    };
    named.iter().map(|kind| (*kind).to_owned()).collect()
}
