//! Which members an object may have, by name and by number.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::closed::CLOSED;
use super::expressions::{Matches, matches, occurs, searched, translated};
use super::lowering::Lowering;
use super::references::escaped;
use crate::error::GrammarError;

/// Keywords of schemas that describe the same value.
const IN_PLACE: [&str; 4] = ["allOf", "anyOf", "oneOf", "$ref"];
/// Most patterns of names that are compared with each other.
const PATTERNS_MAX: usize = 24;
/// Most members of one object that are not required. Each may come next wherever one may, which a mask pays for.
const OPTIONAL_MAX: usize = 3_000;

/// The members that schemas of one object describe.
#[derive(Default)]
struct Evaluated {
    names: BTreeSet<String>,
    patterns: BTreeSet<String>,
    is_all: bool,
    /// Whether each of the schemas always describes the object.
    is_exact: bool,
}

impl Lowering<'_> {
    /// Writes `unevaluatedProperties` as `additionalProperties` beside the names of all members that are described.
    pub(super) fn unevaluated(
        &mut self,
        object: &mut Map<String, Value>,
        at: &str,
    ) -> Result<(), GrammarError> {
        if let Some(items) = object.remove("unevaluatedItems")
            && items != Value::Bool(true)
            && !object.contains_key("items")
        {
            match IN_PLACE.iter().any(|key| object.contains_key(*key)) {
                true => self.losses.add(&format!("{at}/unevaluatedItems"))?,
                false => _ = object.insert("items".to_owned(), items),
            }
        }
        let Some(others) = object.remove("unevaluatedProperties") else { return Ok(()) };
        let mut evaluated = Evaluated { is_exact: true, ..Evaluated::default() };
        self.evaluated(object, &mut evaluated);
        if evaluated.is_all || others == Value::Bool(true) {
            return Ok(());
        }
        if !evaluated.is_exact {
            self.losses.add(&format!("{at}/unevaluatedProperties"))?;
        }
        for (key, names) in [("properties", evaluated.names), ("patternProperties", evaluated.patterns)] {
            let members = object.entry(key).or_insert_with(|| json!({}));
            let Value::Object(members) = members else { continue };
            for name in names {
                members.entry(name).or_insert(Value::Bool(true));
            }
        }
        object.insert("additionalProperties".to_owned(), others);
        Ok(())
    }

    fn evaluated(&self, object: &Map<String, Value>, evaluated: &mut Evaluated) {
        let mut pending = vec![object];
        let mut followed = BTreeSet::new();
        while let Some(object) = pending.pop() {
            evaluated.is_all |=
                object.contains_key("additionalProperties") || object.contains_key("unevaluatedProperties");
            for (key, names) in
                [("properties", &mut evaluated.names), ("patternProperties", &mut evaluated.patterns)]
            {
                let members = object.get(key).and_then(Value::as_object);
                names.extend(members.into_iter().flatten().map(|(name, _)| name.clone()));
            }
            let all = object.get("allOf").and_then(Value::as_array);
            let some = ["anyOf", "oneOf"].iter().filter_map(|key| object.get(*key)?.as_array());
            let some: Vec<&Value> = some.flatten().collect();
            evaluated.is_exact &= some.is_empty();
            let target = object.get("$ref").and_then(Value::as_str);
            let name = target.and_then(|target| target.strip_prefix("#/$defs/"));
            let new = name.filter(|name| followed.insert(*name));
            let referred = new.and_then(|name| self.definitions.get(name)).map(|found| &found.schema);
            pending
                .extend(all.into_iter().flatten().chain(some).chain(referred).filter_map(Value::as_object));
        }
    }

    /// Writes `propertyNames` as patterns of names.
    pub(super) fn names(&mut self, object: &mut Map<String, Value>, at: &str) -> Result<(), GrammarError> {
        let Some(names) = object.remove("propertyNames") else { return Ok(()) };
        let at = format!("{at}/propertyNames");
        let Some(rule) = self.rule_of_names(&names) else { return self.losses.add(&at) };
        let rule = match rule {
            Rule::Any => return Ok(()),
            Rule::Pattern(_) if object.contains_key("patternProperties") => return self.losses.add(&at),
            Rule::Pattern(pattern) => pattern,
        };
        let Some(text) = translated(&rule) else { return self.losses.add(&at) };
        if let Some(Value::Object(members)) = object.get_mut("properties") {
            for (name, member) in members.iter_mut() {
                match occurs(&text, name) {
                    Some(true) => {}
                    Some(false) => *member = Value::Bool(false),
                    None => return self.losses.add(&at),
                }
            }
        }
        if object.contains_key(CLOSED) || object.get("additionalProperties") == Some(&Value::Bool(false)) {
            return Ok(());
        }
        let others = object.insert("additionalProperties".to_owned(), Value::Bool(false));
        object.insert("patternProperties".to_owned(), json!({ rule: others.unwrap_or(Value::Bool(true)) }));
        Ok(())
    }

    /// What a schema of names comes to. `None` if that is no pattern.
    fn rule_of_names(&self, names: &Value) -> Option<Rule> {
        let object = match names {
            Value::Bool(true) => return Some(Rule::Any),
            Value::Bool(false) => return Some(Rule::Pattern("[^\\s\\S]".to_owned())),
            Value::Object(object) => object,
            _ => return None,
        };
        let mut found = Rule::Any;
        for (key, value) in object.iter().filter(|(key, _)| *key != CLOSED) {
            let rule = match key.as_str() {
                "type" if *value == "string" => continue,
                "pattern" => value.as_str()?.to_owned(),
                "const" => one_of_texts(std::slice::from_ref(value))?,
                "enum" => one_of_texts(value.as_array()?)?,
                "minLength" if object.contains_key("maxLength") => continue,
                "minLength" => format!("^[\\s\\S]{{{},}}$", value.as_u64()?),
                "maxLength" => {
                    let least = object.get("minLength").and_then(Value::as_u64).unwrap_or(0);
                    format!("^[\\s\\S]{{{least},{}}}$", value.as_u64()?)
                }
                "$ref" => {
                    let name = value.as_str()?.strip_prefix("#/$defs/")?;
                    let schema = &self.definitions.get(name)?.schema;
                    let is_chain = schema.get("$ref").is_some();
                    match (!is_chain).then(|| self.rule_of_names(schema))?? {
                        Rule::Any => continue,
                        Rule::Pattern(pattern) => pattern,
                    }
                }
                _ => return None,
            };
            if !matches!(found, Rule::Any) {
                return None;
            }
            found = Rule::Pattern(rule);
        }
        Some(found)
    }

    /// Makes patterns of names such that no name matches two.
    pub(super) fn patterns_of_names(
        &mut self,
        object: &mut Map<String, Value>,
        at: &str,
    ) -> Result<(), GrammarError> {
        let Some(Value::Object(members)) = object.remove("patternProperties") else { return Ok(()) };
        let mut apart: Vec<(String, Vec<Value>)> = Vec::new();
        for (pattern, schema) in members {
            let place = format!("{at}/patternProperties/{}", escaped(&pattern));
            let Some(text) = translated(&pattern).filter(|_| apart.len() < PATTERNS_MAX) else {
                let why = "the expression has look-around, a reference to a group, or an error";
                self.losses.add_because(&place, why)?;
                continue;
            };
            let mut merged = (text, vec![schema]);
            let overlaps = |other: &(String, Vec<Value>), text: &str| {
                matches(vec![searched(&other.0), searched(text)], &self.budget) != Matches::None
            };
            while let Some(index) = apart.iter().position(|other| overlaps(other, &merged.0)) {
                let (pattern, schemas) = apart.remove(index);
                merged.0 = format!("(?:{pattern})|(?:{})", merged.0);
                let new = schemas.into_iter().filter(|schema| !merged.1.contains(schema)).collect::<Vec<_>>();
                merged.1.extend(new);
            }
            apart.push(merged);
        }
        if !apart.is_empty() {
            let members =
                apart.into_iter().map(|(pattern, schemas)| (pattern, super::negation::all_of(schemas)));
            object.insert("patternProperties".to_owned(), members.collect());
        }
        Ok(())
    }

    /// Keeps limits on the number of members where llguidance can count.
    pub(super) fn counts(&mut self, object: &mut Map<String, Value>, at: &str) -> Result<(), GrammarError> {
        let count = |key: &str| object.get(key).and_then(Value::as_u64);
        let required: BTreeSet<String> = object
            .get("required")
            .and_then(Value::as_array)
            .map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
            .unwrap_or_default();
        let optional = optional(object, &required);
        if optional > OPTIONAL_MAX {
            let message =
                format!("{optional} members are not required; an object may have {OPTIONAL_MAX} such");
            return Err(GrammarError::in_schema(&format!("{at}/properties"), message));
        }
        let (least, most) = (count("minProperties").filter(|least| *least > 0), count("maxProperties"));
        if least.is_none() && most.is_none() {
            object.remove("minProperties");
            return Ok(());
        }
        let is_in_place = IN_PLACE.iter().any(|key| object.contains_key(*key));
        let has_patterns = object.contains_key("patternProperties");
        let all = (required.len() + optional) as u64;
        let is_closed =
            object.contains_key(CLOSED) || object.get("additionalProperties") == Some(&Value::Bool(false));
        let least = least.filter(|least| *least > required.len() as u64);
        let most = most.filter(|most| !is_closed || has_patterns || is_in_place || *most < all);
        object.remove("minProperties");
        object.remove("maxProperties");
        let needed = least.map_or(0, |least| least - required.len() as u64);
        let allowed = most.map(|most| most.saturating_sub(required.len() as u64));
        let by_choice =
            needed <= 1 && allowed.is_none_or(|allowed| allowed == 1) && !has_patterns && !is_in_place;
        let keys = [("minProperties", least), ("maxProperties", most)];
        let by_choice = by_choice && (is_closed || !object.contains_key("additionalProperties"));
        if optional > 0 && by_choice && !is_closed {
            object.insert(CLOSED.to_owned(), Value::Bool(true));
        }
        for (key, limit) in keys.into_iter().filter_map(|(key, limit)| Some((key, limit?))) {
            let is_counted = (optional == 0 && !is_in_place) || by_choice;
            if is_counted {
                object.insert(key.to_owned(), limit.into());
            }
            // A grammar cannot see that a free name comes twice.
            if !is_counted || (key == "minProperties" && needed > 1) {
                self.losses.add(&format!("{at}/{key}"))?;
            }
        }
        Ok(())
    }

    /// Leaves out what llguidance cannot say of items.
    pub(super) fn items(&mut self, object: &mut Map<String, Value>, at: &str) -> Result<(), GrammarError> {
        let most = object.get("maxItems").and_then(Value::as_u64);
        if object.remove("uniqueItems") == Some(Value::Bool(true)) && most.is_none_or(|most| most > 1) {
            self.losses.add(&format!("{at}/uniqueItems"))?;
        }
        let least = object.remove("minContains").and_then(|count| count.as_u64());
        let most = object.remove("maxContains");
        if object.remove("contains").is_some() && (least != Some(0) || most.is_some()) {
            self.losses.add(&format!("{at}/contains"))?;
        }
        Ok(())
    }
}

/// How many members may be there and need not.
fn optional(object: &Map<String, Value>, required: &BTreeSet<String>) -> usize {
    let members = object.get("properties").and_then(Value::as_object);
    let is_optional = |(name, member): &(&String, &Value)| {
        **member != Value::Bool(false) && !required.contains(name.as_str())
    };
    members.into_iter().flatten().filter(is_optional).count()
}

/// What names must be.
enum Rule {
    Any,
    Pattern(String),
}

/// A pattern of some texts.
fn one_of_texts(values: &[Value]) -> Option<String> {
    let texts: Option<Vec<String>> =
        values.iter().map(|value| value.as_str().map(regex_syntax::escape)).collect();
    Some(format!("^(?:{})$", texts?.join("|")))
}
