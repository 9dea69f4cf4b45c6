//! The filters of Jinja, `tojson` as transformers replaces it.

use std::cmp::Ordering;
use std::sync::Arc;

use super::arguments::{Bound, Given};
use super::ast::{Comparison, Name, Operator};
use super::eval::Evaluator;
use super::json::{self, Layout};
use super::meter::{Draft, Fault};
use super::methods::{self, LineEnds};
use super::number;
use super::value::{List, Missing, Text, Value};
use super::{format, lexer};

impl Evaluator {
    /// `value | name(…)`.
    pub fn filter(&mut self, name: &str, value: &Value, given: Given) -> Result<Value, Fault> {
        match name {
            "default" | "d" => {
                let [default, boolean] = given.bind(name, &["default_value", "boolean"])?;
                let is_missing =
                    matches!(value, Value::Undefined(_)) || boolean.truth_or(false) && !value.is_true();
                Ok(if is_missing { default.unwrap_or(Value::literal("")) } else { value.clone() })
            }
            "tojson" => self.json_text(value, given),
            "string" | "safe" | "escape" | "e" | "forceescape" | "upper" | "lower" | "capitalize"
            | "title" | "trim" | "indent" | "replace" | "center" | "truncate" | "format" | "urlencode"
            | "wordcount" | "striptags" => {
                let text = value.to_text(&self.meter)?;
                let filtered = self.text_filter(name, &text, given)?;
                let is_markup = matches!(name, "safe" | "escape" | "e" | "forceescape");
                let was_markup = matches!(text, Text::Markup(_));
                if is_markup || was_markup { filtered.into_markup(&self.meter) } else { Ok(filtered) }
            }
            "abs" | "int" | "float" | "round" => self.number_filter(name, value, given),
            "items" => {
                let [] = given.bind(name, &[])?;
                match value {
                    Value::Undefined(_) => self.meter.generator(Vec::new()),
                    Value::Dict(dict) => self.meter.generator(self.pairs(dict)?),
                    _ => Fault::failed("Can only get item pairs from a mapping."),
                }
            }
            "dictsort" => self.dict_sort(value, given),
            "length" | "count" => {
                let [] = given.bind(name, &[])?;
                self.meter.spend_bytes(value.as_str().map_or(0, str::len))?;
                Ok(Value::Int(value.len()? as i128))
            }
            "attr" => {
                let [attribute] = given.bind(name, &["name"])?;
                let attribute: Name = Arc::from(&*attribute.text_or("")?);
                match value {
                    Value::Dict(_) => {
                        Ok(Value::Undefined(Missing::Attribute(value.object_name(), attribute)))
                    }
                    _ => self.attribute(value, &attribute),
                }
            }
            "select" | "reject" | "selectattr" | "rejectattr" => self.select(name, value, given),
            "map" => self.map(value, given),
            _ => self.items_filter(name, value, given),
        }
    }

    fn json_text(&mut self, value: &Value, given: Given) -> Result<Value, Fault> {
        let parameters = &["ensure_ascii", "indent", "separators", "sort_keys"];
        let [ascii, indent, separators, sort_keys] = given.bind("tojson", parameters)?;
        let indent = json::indent(&indent.unwrap_or(Value::None))?;
        let mut item_separator = if indent.is_some() { "," } else { ", " }.to_owned();
        let mut key_separator = ": ".to_owned();
        if let Some(Value::List(pair) | Value::Tuple(pair)) = &separators {
            let [Value::Text(item), Value::Text(key)] = &***pair else {
                return Fault::failed("separators must be a pair of strings");
            };
            (item_separator, key_separator) = (item.to_string(), key.to_string());
        }
        let (ensure_ascii, sort_keys) = (ascii.truth_or(false), sort_keys.truth_or(false));
        let layout = Layout { ensure_ascii, indent, item_separator, key_separator, sort_keys };
        json::dumps(value, &layout, &self.meter)
    }

    fn text_filter(&mut self, name: &str, text: &Text, given: Given) -> Result<Value, Fault> {
        self.meter.spend_bytes(text.len())?;
        match name {
            "trim" => {
                let [characters] = given.bind(name, &["chars"])?;
                self.strip(text, "strip", characters)
            }
            "replace" => {
                let [old, new, count] = given.bind(name, &["old", "new", "count"])?;
                let as_text = |value: Option<Value>| value.unwrap_or(Value::None).to_text(&self.meter);
                let (old, new) = (as_text(old)?, as_text(new)?);
                self.replace(text, &old, &new, usize::try_from(count.int_or(-1)?).ok())
            }
            "indent" => self.indent(text, given),
            "center" => {
                let [width] = given.bind(name, &["width"])?;
                self.pad(text, name, width.int_or(80)?, " ")
            }
            "truncate" => self.truncate(text, given),
            "format" => {
                let Given { positional, named } = given;
                let values = if named.is_empty() {
                    self.meter.tuple(positional)?
                } else {
                    let entries =
                        named.into_iter().map(|(name, value)| (Value::literal(&name), value)).collect();
                    self.meter.dict(entries)?
                };
                format::percent(text, &values, self)
            }
            _ => {
                let [] = given.bind(name, &[])?;
                self.plain_text_filter(name, text)
            }
        }
    }

    fn plain_text_filter(&mut self, name: &str, text: &Text) -> Result<Value, Fault> {
        match name {
            "string" | "safe" => return Ok(Value::Text(text.clone())),
            "wordcount" => {
                let words = text.split(|c: char| c != '_' && !c.is_alphanumeric());
                return Ok(Value::Int(words.filter(|word| !word.is_empty()).count() as i128));
            }
            "escape" | "e" if matches!(text, Text::Markup(_)) => return Ok(Value::Text(text.clone())),
            "escape" | "e" | "forceescape" => {
                let mut draft = self.meter.draft()?;
                escape(text, &mut draft)?;
                return Ok(draft.into_value());
            }
            "urlencode" => {
                let mut draft = self.meter.draft()?;
                for byte in text.bytes() {
                    match byte {
                        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' | b'/' => {
                            draft.push(char::from(byte).encode_utf8(&mut [0; 4]))?;
                        }
                        _ => draft.push(&format!("%{byte:02X}"))?,
                    }
                }
                return Ok(draft.into_value());
            }
            _ => {}
        }
        drop(self.meter.lease(text.len().saturating_mul(3))?);
        self.meter.text(match name {
            "upper" => text.to_uppercase(),
            "lower" => text.to_lowercase(),
            "capitalize" => methods::capitalize(text),
            "title" => title(text),
            _ => strip_tags(text),
        })
    }

    fn indent(&mut self, text: &Text, given: Given) -> Result<Value, Fault> {
        let [width, first, blank] = given.bind("indent", &["width", "first", "blank"])?;
        let mut indentation = self.meter.draft()?;
        match &width {
            Some(Value::Text(width)) => indentation.push(width)?,
            _ => indentation.repeat(" ", usize::try_from(width.int_or(4)?.max(0)).unwrap_or(usize::MAX))?,
        }
        let (indentation, _lease) = indentation.finish();
        // A last line end starts a line of its own.
        let mut draft = self.meter.draft()?;
        let ended = format!("{}\n", &**text);
        for (index, line) in methods::lines(&ended, LineEnds::Dropped).into_iter().enumerate() {
            draft.push(if index == 0 { "" } else { "\n" })?;
            let is_indented =
                if index == 0 { first.truth_or(false) } else { blank.truth_or(false) || !line.is_empty() };
            draft.push(if is_indented { &indentation } else { "" })?;
            draft.push(line)?;
        }
        Ok(draft.into_value())
    }

    fn truncate(&mut self, text: &Text, given: Given) -> Result<Value, Fault> {
        let [length, kill_words, end, leeway] =
            given.bind("truncate", &["length", "killwords", "end", "leeway"])?;
        let end = end.text_or("...")?;
        let (length, leeway) = (length.int_or(255)?, leeway.int_or(5)?);
        let room = length.saturating_sub(end.chars().count() as i128);
        if room < 0 || leeway < 0 {
            return Fault::failed(
                "expected a length of at least the end's, and a leeway that is not negative",
            );
        }
        if text.chars().count() as i128 <= length.saturating_add(leeway) {
            return Ok(Value::Text(text.clone()));
        }
        let cut = text.char_indices().nth(room as usize).map_or(text.len(), |(at, _)| at);
        let kept = &text[..cut];
        let kept = if kill_words.truth_or(false) {
            kept
        } else {
            kept.rsplit_once(' ').map_or(kept, |(words, _)| words)
        };
        let mut draft = self.meter.draft()?;
        draft.push(kept)?;
        draft.push(&end)?;
        Ok(draft.into_value())
    }

    fn number_filter(&mut self, name: &str, value: &Value, given: Given) -> Result<Value, Fault> {
        match name {
            "int" => {
                let [default, base] = given.bind(name, &["default", "base"])?;
                let base = base.int_or(10)?;
                let parsed = match value {
                    Value::Float(value) if value.is_finite() => Some(*value as i128),
                    Value::Text(text) => {
                        self.meter.spend_bytes(text.len())?;
                        parse_int(text, base)
                            .or_else(|| text.trim().parse::<f64>().ok().map(|value| value as i128))
                    }
                    _ => value.as_int(),
                };
                Ok(parsed.map(Value::Int).or(default).unwrap_or(Value::Int(0)))
            }
            "float" => {
                let [default] = given.bind(name, &["default"])?;
                self.meter.spend_bytes(value.as_str().map_or(0, str::len))?;
                let parsed = match value {
                    Value::Text(text) => text.trim().replace('_', "").parse().ok(),
                    _ => value.as_float(),
                };
                Ok(parsed.map(Value::Float).or(default).unwrap_or(Value::Float(0.0)))
            }
            "abs" => {
                let [] = given.bind(name, &[])?;
                match value {
                    Value::Float(value) => Ok(Value::Float(value.abs())),
                    _ => match value.as_int().and_then(i128::checked_abs) {
                        Some(value) => Ok(Value::Int(value)),
                        None => Fault::failed(format!("bad operand type for abs(): '{}'", value.type_name())),
                    },
                }
            }
            _ => {
                let [precision, method] = given.bind(name, &["precision", "method"])?;
                let Some(number) = value.as_float() else {
                    value.defined()?;
                    return Fault::failed(format!(
                        "type {} doesn't define __round__ method",
                        value.type_name()
                    ));
                };
                let precision = precision.int_or(0)?.clamp(-300, 300) as i32;
                let scale = 10f64.powi(precision);
                Ok(match &*method.text_or("common")? {
                    "common" if precision >= 0 && value.as_int().is_some() => {
                        Value::Int(value.as_int().unwrap_or_default())
                    }
                    "common" => Value::Float(number::round(number, precision)),
                    "ceil" => Value::Float((number * scale).ceil() / scale),
                    "floor" => Value::Float((number * scale).floor() / scale),
                    _ => return Fault::failed("method must be common, ceil or floor"),
                })
            }
        }
    }

    // Filters of several items.

    /// An item's attribute by a path such as `function.name` or a position.
    fn path(&mut self, item: &Value, path: &Value) -> Result<Value, Fault> {
        let Value::Text(path) = path else { return self.index(item, path) };
        let mut value = item.clone();
        for part in path.split('.') {
            let part = part.parse().map_or_else(|_| Value::literal(part), Value::Int);
            value = self.index(&value, &part)?;
        }
        Ok(value)
    }

    /// Python's truth of a test named by the arguments, or of the item.
    fn passes(&mut self, item: &Value, test: Option<&Text>, arguments: &[Value]) -> Result<bool, Fault> {
        match test {
            Some(test) => self.test(test, item, Given { positional: arguments.to_vec(), named: Vec::new() }),
            None => Ok(item.is_true()),
        }
    }

    /// What lazy filters look at: nothing when the value is false, whatever it is.
    fn items_if_true(&self, value: &Value) -> Result<List, Fault> {
        if value.is_true() { value.iterate(&self.meter) } else { self.meter.items(Vec::new()) }
    }

    fn select(&mut self, name: &str, value: &Value, given: Given) -> Result<Value, Fault> {
        let mut arguments = given.positional.into_iter();
        let attribute = if name.ends_with("attr") {
            let Some(attribute) = arguments.next() else {
                return Fault::failed("missing parameter for attribute name");
            };
            Some(attribute)
        } else {
            None
        };
        let test = arguments.next().optional_text()?;
        let arguments: Vec<Value> = arguments.collect();
        let wanted = name.starts_with("select");
        let mut kept = Vec::new();
        for item in self.items_if_true(value)?.iter() {
            self.meter.spend(1)?;
            let looked_at = match &attribute {
                Some(attribute) => self.path(item, attribute)?,
                None => item.clone(),
            };
            if self.passes(&looked_at, test.as_ref(), &arguments)? == wanted {
                kept.push(item.clone());
            }
        }
        self.meter.generator(kept)
    }

    fn map(&mut self, value: &Value, given: Given) -> Result<Value, Fault> {
        let items = self.items_if_true(value)?;
        let mut mapped = Vec::new();
        if given.positional.is_empty() {
            let [attribute, default] = given.bind("map", &["attribute", "default"])?;
            let Some(attribute) = attribute else { return Fault::failed("map requires a filter argument") };
            for item in items.iter() {
                self.meter.spend(1)?;
                let found = self.path(item, &attribute)?;
                let is_missing = matches!(found, Value::Undefined(_));
                mapped.push(if is_missing { default.clone().unwrap_or(found) } else { found });
            }
            return self.meter.generator(mapped);
        }
        let filter = given.positional.first().cloned().text_or("")?;
        for item in items.iter() {
            self.meter.spend(1)?;
            let positional = given.positional[1..].to_vec();
            let named = given.named.clone();
            mapped.push(self.filter(&filter, item, Given { positional, named })?);
        }
        self.meter.generator(mapped)
    }

    fn dict_sort(&mut self, value: &Value, given: Given) -> Result<Value, Fault> {
        let [case, by, reverse] = given.bind("dictsort", &["case_sensitive", "by", "reverse"])?;
        let place = match &*by.text_or("key")? {
            "key" => 0,
            "value" => 1,
            _ => return Fault::failed("You can only sort by either \"key\" or \"value\""),
        };
        let Value::Dict(dict) = value.defined()? else {
            return Fault::failed(format!("'{}' has no attribute 'items'", value.object_name()));
        };
        let pairs = self.pairs(dict)?;
        let sorted =
            self.sorted(&pairs, Some(&Value::Int(place)), case.truth_or(false), reverse.truth_or(false))?;
        self.meter.list(sorted)
    }

    /// The items in Python's order of a part of them, stable.
    fn sorted(
        &mut self,
        items: &[Value],
        attribute: Option<&Value>,
        case_sensitive: bool,
        reverse: bool,
    ) -> Result<Vec<Value>, Fault> {
        let mut keyed = Vec::new();
        for item in items {
            keyed.push((self.key(item, attribute, case_sensitive)?, item.clone()));
        }
        let mut fault = None;
        keyed.sort_by(|(a, _), (b, _)| {
            if fault.is_some() {
                return Ordering::Equal;
            }
            let ordering = match self.meter.spend(1).and_then(|()| self.order_keys(a, b)) {
                Ok(ordering) => ordering,
                Err(found) => {
                    fault = Some(found);
                    Ordering::Equal
                }
            };
            if reverse { ordering.reverse() } else { ordering }
        });
        match fault {
            Some(fault) => Err(fault),
            None => Ok(keyed.into_iter().map(|(_, item)| item).collect()),
        }
    }

    fn order_keys(&self, a: &[Value], b: &[Value]) -> Result<Ordering, Fault> {
        for (a, b) in a.iter().zip(b) {
            let ordering = a.order(b, "<", &self.meter)?.unwrap_or(Ordering::Equal);
            if ordering != Ordering::Equal {
                return Ok(ordering);
            }
        }
        Ok(Ordering::Equal)
    }

    /// What an item is sorted or grouped by: its parts at `a.b,c`, in lower case unless case counts.
    fn key(
        &mut self,
        item: &Value,
        attribute: Option<&Value>,
        case_sensitive: bool,
    ) -> Result<Vec<Value>, Fault> {
        // A key is an allocation of its own.
        self.meter.spend(8)?;
        let mut key = Vec::new();
        match attribute {
            None | Some(Value::None) => key.push(item.clone()),
            Some(Value::Text(paths)) => {
                for path in paths.split(',') {
                    key.push(self.path(item, &Value::literal(path))?);
                }
            }
            Some(place) => key.push(self.index(item, place)?),
        }
        for part in &mut key {
            if let (false, Value::Text(text)) = (case_sensitive, &*part) {
                drop(self.meter.lease(text.len().saturating_mul(3))?);
                *part = self.meter.text(text.to_lowercase())?;
            }
        }
        Ok(key)
    }

    fn items_filter(&mut self, name: &str, value: &Value, given: Given) -> Result<Value, Fault> {
        match name {
            "first" => {
                let [] = given.bind(name, &[])?;
                let items = value.iterate(&self.meter)?;
                let missing = Missing::First("No first item, sequence was empty.");
                Ok(items.first().cloned().unwrap_or(Value::Undefined(missing)))
            }
            "last" => {
                let [] = given.bind(name, &[])?;
                let items = value.iterate(&self.meter)?;
                let missing = Missing::First("No last item, sequence was empty.");
                Ok(items.last().cloned().unwrap_or(Value::Undefined(missing)))
            }
            "list" => {
                let [] = given.bind(name, &[])?;
                Ok(Value::List(value.iterate(&self.meter)?))
            }
            "reverse" => {
                let [] = given.bind(name, &[])?;
                let items = value.iterate(&self.meter)?;
                let reversed: Vec<Value> = items.iter().rev().cloned().collect();
                match value {
                    Value::Text(_) => self.join("", &self.meter.list(reversed)?),
                    _ => self.meter.generator(reversed),
                }
            }
            "join" => self.join_filter(value, given),
            "sort" => {
                let [reverse, case, attribute] =
                    given.bind(name, &["reverse", "case_sensitive", "attribute"])?;
                let items = value.iterate(&self.meter)?;
                let sorted =
                    self.sorted(&items, attribute.as_ref(), case.truth_or(false), reverse.truth_or(false))?;
                self.meter.list(sorted)
            }
            "min" | "max" => self.extreme(name, value, given),
            "sum" => self.sum(value, given),
            "unique" => self.unique(value, given),
            "groupby" => self.group_by(value, given),
            "batch" | "slice" => self.portions(name, value, given),
            _ => Fault::failed(format!("No filter named '{name}' found.")),
        }
    }

    fn extreme(&mut self, name: &str, value: &Value, given: Given) -> Result<Value, Fault> {
        let [case, attribute] = given.bind(name, &["case_sensitive", "attribute"])?;
        let items = value.iterate(&self.meter)?;
        let mut best: Option<(Vec<Value>, Value)> = None;
        let wanted = if name == "max" { Ordering::Greater } else { Ordering::Less };
        for item in items.iter() {
            let key = self.key(item, attribute.as_ref(), case.truth_or(false))?;
            let is_better = match &best {
                Some((best, _)) => self.order_keys(&key, best)? == wanted,
                None => true,
            };
            if is_better {
                best = Some((key, item.clone()));
            }
        }
        let missing = Missing::First("No aggregated item, sequence was empty.");
        Ok(best.map_or(Value::Undefined(missing), |(_, item)| item))
    }

    fn sum(&mut self, value: &Value, given: Given) -> Result<Value, Fault> {
        let [attribute, start] = given.bind("sum", &["attribute", "start"])?;
        let mut sum = start.unwrap_or(Value::Int(0));
        for item in value.iterate(&self.meter)?.iter() {
            self.meter.spend(1)?;
            let item = match &attribute {
                Some(attribute) => self.path(item, attribute)?,
                None => item.clone(),
            };
            sum = number::compute(Operator::Add, &sum, &item)?;
        }
        Ok(sum)
    }

    fn join_filter(&mut self, value: &Value, given: Given) -> Result<Value, Fault> {
        let [separator, attribute] = given.bind("join", &["d", "attribute"])?;
        let separator = separator.unwrap_or(Value::literal("")).to_text(&self.meter)?;
        let mut draft = self.meter.draft()?;
        for (index, item) in value.iterate(&self.meter)?.iter().enumerate() {
            draft.push(if index == 0 { "" } else { &separator })?;
            match &attribute {
                Some(attribute) => self.path(item, attribute)?.write(&mut draft)?,
                None => item.write(&mut draft)?,
            }
        }
        Ok(draft.into_value())
    }

    fn unique(&mut self, value: &Value, given: Given) -> Result<Value, Fault> {
        let [case, attribute] = given.bind("unique", &["case_sensitive", "attribute"])?;
        let mut seen: Vec<Vec<Value>> = Vec::new();
        let mut kept = Vec::new();
        'items: for item in value.iterate(&self.meter)?.iter() {
            let key = self.key(item, attribute.as_ref(), case.truth_or(false))?;
            for before in &seen {
                self.meter.spend(1)?;
                let mut parts = before.iter().zip(&key);
                if parts.try_fold(true, |same, (a, b)| Ok(same && a.equals(b, &self.meter)?))? {
                    continue 'items;
                }
            }
            seen.push(key);
            kept.push(item.clone());
        }
        self.meter.generator(kept)
    }

    fn group_by(&mut self, value: &Value, given: Given) -> Result<Value, Fault> {
        let [attribute, default, case] =
            given.bind("groupby", &["attribute", "default", "case_sensitive"])?;
        let Some(attribute) = attribute else { return Fault::failed("groupby needs an attribute") };
        let items = value.iterate(&self.meter)?;
        let case_sensitive = case.truth_or(false);
        let sorted = self.sorted(&items, Some(&attribute), case_sensitive, false)?;
        let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
        let mut last_key: Option<Vec<Value>> = None;
        for item in sorted {
            let key = self.key(&item, Some(&attribute), case_sensitive)?;
            let same = match &last_key {
                Some(last) => self.compare_all(last, &key)?,
                None => false,
            };
            match groups.last_mut() {
                Some((_, group)) if same => group.push(item),
                _ => {
                    let found = self.path(&item, &attribute)?;
                    let is_missing = matches!(found, Value::Undefined(_));
                    let name = if is_missing { default.clone().unwrap_or(found) } else { found };
                    groups.push((name, vec![item]));
                }
            }
            last_key = Some(key);
        }
        let mut pairs = Vec::new();
        for (name, group) in groups {
            let group = self.meter.list(group)?;
            pairs.push(self.meter.tuple(vec![name, group])?);
        }
        self.meter.list(pairs)
    }

    fn compare_all(&self, a: &[Value], b: &[Value]) -> Result<bool, Fault> {
        for (a, b) in a.iter().zip(b) {
            if !self.compare(Comparison::Equal, a, b)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// `batch`: lists of `count` items; `slice`: `count` lists.
    fn portions(&mut self, name: &str, value: &Value, given: Given) -> Result<Value, Fault> {
        let [count, fill] = given.bind(name, &["count", "fill_with"])?;
        let count = usize::try_from(count.int_or(0)?).unwrap_or(0);
        if count == 0 {
            return Fault::failed(format!("{name} needs a count above zero"));
        }
        let fill = fill.filter(|fill| !matches!(fill, Value::None));
        let items = value.iterate(&self.meter)?;
        let mut portions: Vec<Vec<Value>> = Vec::new();
        if name == "batch" {
            portions.extend(items.chunks(count).map(<[Value]>::to_vec));
            if let (Some(last), Some(fill)) = (portions.last_mut(), fill) {
                drop(self.meter.lease(count.saturating_mul(size_of::<Value>()))?);
                last.resize(count, fill);
            }
        } else {
            self.meter.spend(count)?;
            let (each, longer) = (items.len() / count, items.len() % count);
            let mut start = 0;
            for index in 0..count {
                let end = start + each + usize::from(index < longer);
                let mut portion = items[start..end].to_vec();
                if let (Some(fill), true) = (&fill, index >= longer) {
                    portion.push(fill.clone());
                }
                portions.push(portion);
                start = end;
            }
        }
        let portions =
            portions.into_iter().map(|portion| self.meter.list(portion)).collect::<Result<_, _>>()?;
        self.meter.generator(portions)
    }
}

/// Writes `text` with the characters of HTML escaped.
pub(super) fn escape(text: &str, draft: &mut Draft) -> Result<(), Fault> {
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escaped = match byte {
            b'&' => "&amp;",
            b'<' => "&lt;",
            b'>' => "&gt;",
            b'\'' => "&#39;",
            b'"' => "&#34;",
            _ => continue,
        };
        draft.push(&text[plain..at])?;
        draft.push(escaped)?;
        plain = at + 1;
    }
    draft.push(&text[plain..])
}

fn parse_int(text: &str, base: i128) -> Option<i128> {
    let text = text.trim().replace('_', "");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(&text)),
    };
    let base = u32::try_from(base).ok().filter(|base| (2..=36).contains(base))?;
    let prefix = match base {
        16 => "0x",
        8 => "0o",
        2 => "0b",
        _ => "",
    };
    let digits = digits.strip_prefix(prefix).unwrap_or(digits);
    if digits.starts_with(['+', '-']) {
        return None;
    }
    i128::from_str_radix(digits, base).ok().map(|value| value * sign)
}

/// Words start after blanks, hyphens and opening brackets, and only there, unlike in `str.title`.
fn title(text: &str) -> String {
    let mut titled = String::with_capacity(text.len());
    let mut starts = true;
    for character in text.chars() {
        if starts {
            titled.extend(character.to_uppercase());
        } else {
            titled.extend(character.to_lowercase());
        }
        starts = lexer::is_space(character) || matches!(character, '-' | '(' | '{' | '[' | '<');
    }
    titled
}

fn strip_tags(text: &str) -> String {
    let mut stripped = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        let Some((_, after)) = after.split_once('>') else { break };
        stripped.push_str(before);
        rest = after;
    }
    stripped.push_str(rest);
    stripped.split_whitespace().collect::<Vec<_>>().join(" ")
}
