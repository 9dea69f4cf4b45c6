//! Python's methods of strings, dicts and lists, as far as they change nothing.

use std::rc::Rc;

use crate::arguments::{ArgumentDefaults, CallArguments};
use crate::ast::Comparison;
use crate::error::RenderError;
use crate::format;
use crate::lexer::is_space;
use crate::runtime::Runtime;
use crate::strings::{LineEnds, Words, capitalize, classify, lines, swap_case, title};
use crate::value::{Text, Value};

/// What a name is on a value.
pub(crate) enum Found {
    Method(&'static str),
    /// A method that would change the value.
    Mutator,
}

const TEXT: &[&str] = &[
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
];
const DICT: &[&str] = &["get", "items", "keys", "values", "copy"];
const DICT_MUTATORS: &[&str] = &["clear", "pop", "popitem", "setdefault", "update"];
const LIST: &[&str] = &["count", "index", "copy"];
const LIST_MUTATORS: &[&str] = &["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"];

/// The method called `name`, if the value has one.
pub(crate) fn find(value: &Value, name: &str) -> Option<Found> {
    let (methods, mutators): (&[&'static str], &[&str]) = match value {
        Value::Text(_) => (TEXT, &[]),
        Value::Dict(_) => (DICT, DICT_MUTATORS),
        Value::List(_) => (LIST, LIST_MUTATORS),
        Value::Tuple(_) => (&["count", "index"], &[]),
        Value::Loop(_) => (&["cycle", "changed"], &[]),
        Value::Cycler(_) => (&["next", "reset"], &[]),
        _ => return None,
    };
    if mutators.contains(&name) {
        return Some(Found::Mutator);
    }
    methods.iter().find(|method| **method == name).map(|method| Found::Method(method))
}

impl Runtime {
    pub fn call_method(
        &mut self,
        value: &Value,
        method: &'static str,
        given: CallArguments,
    ) -> Result<Value, RenderError> {
        match value {
            Value::Text(text) => self.text_method(text, method, given),
            Value::Dict(_) => self.dict_method(value, method, given),
            Value::List(items) | Value::Tuple(items) => {
                let [wanted] = if method == "copy" { [None] } else { given.bind(method, &["value"])? };
                if method == "copy" {
                    return Ok(value.clone());
                }
                let wanted = wanted.unwrap_or(Value::None);
                let mut count = 0;
                for (at, item) in items.iter().enumerate() {
                    self.meter.spend(1)?;
                    if self.compare(Comparison::Equal, item, &wanted)? {
                        if method == "index" {
                            return Ok(Value::Int(at as i128));
                        }
                        count += 1;
                    }
                }
                if method == "index" {
                    RenderError::failed("value is not in list")
                } else {
                    Ok(Value::Int(count))
                }
            }
            Value::Loop(state) => {
                let values = self.meter.items(given.positional)?;
                let mut state = state.borrow_mut();
                if method == "cycle" {
                    let Some(at) = state.index0.checked_rem(values.len()) else {
                        return RenderError::failed("no items for cycling given");
                    };
                    return Ok(values[at].clone());
                }
                let same = match &state.changed {
                    Some(before) => Value::Tuple(Rc::clone(before))
                        .equals(&Value::Tuple(Rc::clone(&values)), &self.meter)?,
                    None => false,
                };
                let before = state.changed.replace(values);
                drop(state);
                drop(before);
                Ok(Value::Bool(!same))
            }
            Value::Cycler(cycler) => {
                let mut cycler = cycler.borrow_mut();
                if method == "reset" {
                    cycler.1 = 0;
                    return Ok(Value::None);
                }
                let current = cycler.0[cycler.1].clone();
                cycler.1 = (cycler.1 + 1) % cycler.0.len();
                Ok(current)
            }
            _ => RenderError::failed(format!("'{}' has no method '{method}'", value.type_name())),
        }
    }

    fn dict_method(
        &mut self,
        value: &Value,
        method: &'static str,
        given: CallArguments,
    ) -> Result<Value, RenderError> {
        let Value::Dict(dict) = value else { return RenderError::failed("not a dict") };
        if method == "get" {
            let [key, default] = given.bind(method, &["key", "default"])?;
            let Some(key) = key else {
                return RenderError::failed("get expected at least 1 argument, got 0");
            };
            return Ok(value.entry(&key, &self.meter)?.or(default).unwrap_or(Value::None));
        }
        let [] = given.bind(method, &[])?;
        self.meter.spend(dict.len())?;
        let keys = || dict.iter().map(|(key, _)| key.clone()).collect();
        match method {
            "keys" => Ok(Value::View("dict_keys", self.meter.items(keys())?)),
            "values" => {
                let values = dict.iter().map(|(_, value)| value.clone()).collect();
                Ok(Value::View("dict_values", self.meter.items(values)?))
            }
            "items" => Ok(Value::View("dict_items", self.meter.items(self.pairs(dict)?)?)),
            _ => Ok(value.clone()),
        }
    }

    /// The entries of a dict as tuples.
    pub fn pairs(&self, entries: &[(Value, Value)]) -> Result<Vec<Value>, RenderError> {
        entries.iter().map(|(key, value)| self.meter.tuple(vec![key.clone(), value.clone()])).collect()
    }

    fn text_method(
        &mut self,
        text: &Text,
        method: &'static str,
        given: CallArguments,
    ) -> Result<Value, RenderError> {
        self.meter.spend_bytes(text.len())?;
        match method {
            "format" => format::braces(text, &given, self),
            "join" => {
                let [items] = given.bind(method, &["iterable"])?;
                self.join(text, &items.unwrap_or(Value::None))
            }
            "strip" | "lstrip" | "rstrip" => {
                let [characters] = given.bind(method, &["chars"])?;
                self.strip(text, method, characters)
            }
            "split" | "rsplit" => {
                let [separator, most] = given.bind(method, &["sep", "maxsplit"])?;
                let most = usize::try_from(most.int_or(-1)?).ok();
                self.split(text, separator.optional_text()?.as_deref(), most, method == "rsplit")
            }
            "splitlines" => {
                let [keep] = given.bind(method, &["keepends"])?;
                let ends = if keep.truth_or(false) { LineEnds::Kept } else { LineEnds::Dropped };
                self.split_lines(text, ends)
            }
            "replace" => {
                let [old, new, count] = given.bind(method, &["old", "new", "count"])?;
                let (Some(old), Some(new)) = (old.optional_text()?, new.optional_text()?) else {
                    return RenderError::failed("replace() arguments must be str");
                };
                self.replace(text, &old, &new, usize::try_from(count.int_or(-1)?).ok())
            }
            "startswith" | "endswith" => {
                let [affix, start, end] = given.bind(method, &["prefix", "start", "end"])?;
                let Value::Text(part) = self.slice(&Value::Text(text.clone()), &[start, end, None])? else {
                    return Ok(Value::Bool(false));
                };
                self.has_affix(&part, method, &affix.unwrap_or(Value::None))
            }
            "find" | "rfind" | "index" | "rindex" | "count" => self.search(text, method, given),
            _ => self.reshape(text, method, given),
        }
    }

    /// The methods that pad a text or cut it in fixed places.
    fn reshape(
        &mut self,
        text: &Text,
        method: &'static str,
        given: CallArguments,
    ) -> Result<Value, RenderError> {
        match method {
            "center" | "ljust" | "rjust" => {
                let [width, fill] = given.bind(method, &["width", "fillchar"])?;
                self.pad(text, method, width.int_or(0)?, &fill.text_or(" ")?)
            }
            "partition" | "rpartition" => {
                let [separator] = given.bind(method, &["sep"])?;
                self.partition(text, method, &separator.text_or("")?)
            }
            "removeprefix" | "removesuffix" => {
                let [affix] = given.bind(method, &["affix"])?;
                let affix = affix.text_or("")?;
                let cut = if method == "removeprefix" {
                    text.strip_prefix(&*affix)
                } else {
                    text.strip_suffix(&*affix)
                };
                self.meter.text(cut.unwrap_or(text).to_owned())
            }
            "zfill" => {
                let [width] = given.bind(method, &["width"])?;
                let sign = if text.starts_with(['+', '-']) { &text[..1] } else { "" };
                let width = usize::try_from(width.int_or(0)?).unwrap_or(0);
                let mut out = self.meter.new_text()?;
                out.push(sign)?;
                out.repeat("0", width.saturating_sub(text.chars().count()))?;
                out.push(&text[sign.len()..])?;
                Ok(out.into_value())
            }
            "expandtabs" => {
                let [width] = given.bind(method, &["tabsize"])?;
                self.expand_tabs(text, usize::try_from(width.int_or(8)?).unwrap_or(0))
            }
            _ => {
                let [] = given.bind(method, &[])?;
                self.recase(text, method)
            }
        }
    }

    /// The methods without arguments.
    fn recase(&mut self, text: &Text, method: &'static str) -> Result<Value, RenderError> {
        if let Some(is) = classify(text, method) {
            return Ok(Value::Bool(is));
        }
        // A change of case can lengthen a character to three.
        self.meter.ensure_free(text.len().saturating_mul(3))?;
        self.meter.text(match method {
            "upper" => text.to_uppercase(),
            "lower" | "casefold" => text.to_lowercase(),
            "capitalize" => capitalize(text),
            "title" => title(text),
            _ => swap_case(text),
        })
    }

    pub fn join(&self, separator: &str, items: &Value) -> Result<Value, RenderError> {
        let items = items.iterate(&self.meter)?;
        let mut out = self.meter.new_text()?;
        for (index, item) in items.iter().enumerate() {
            let Some(text) = item.as_str() else {
                let found = item.type_name();
                return RenderError::failed(format!(
                    "sequence item {index}: expected str instance, {found} found"
                ));
            };
            out.push(if index == 0 { "" } else { separator })?;
            out.push(text)?;
        }
        Ok(out.into_value())
    }

    pub fn strip(&self, text: &Text, method: &str, characters: Option<Value>) -> Result<Value, RenderError> {
        let characters = characters.optional_text()?;
        if let Some(characters) = &characters {
            self.meter.spend(text.len().saturating_mul(characters.len().min(64)) / 16)?;
            if characters.len() > 1024 {
                return Err(RenderError::Limit("characters to strip"));
            }
        }
        let is_stripped =
            |c: char| characters.as_ref().map_or_else(|| is_space(c), |characters| characters.contains(c));
        let stripped = match method {
            "lstrip" => text.trim_start_matches(is_stripped),
            "rstrip" => text.trim_end_matches(is_stripped),
            _ => text.trim_matches(is_stripped),
        };
        if stripped.len() == text.len() {
            return Ok(Value::Text(text.clone()));
        }
        let mut out = self.meter.new_text()?;
        out.push(stripped)?;
        Ok(out.into_value())
    }

    fn texts<'a>(&self, parts: impl Iterator<Item = &'a str>) -> Result<Vec<Value>, RenderError> {
        parts.map(|part| self.meter.text(part.to_owned())).collect()
    }

    fn split(
        &self,
        text: &str,
        separator: Option<&str>,
        most: Option<usize>,
        last: bool,
    ) -> Result<Value, RenderError> {
        let most = most.map_or(usize::MAX, |most| most.saturating_add(1));
        let parts = match (separator, last) {
            (Some(""), _) => return RenderError::failed("empty separator"),
            (Some(separator), false) => self.texts(text.splitn(most, separator))?,
            (Some(separator), true) => {
                let mut parts = self.texts(text.rsplitn(most, separator))?;
                parts.reverse();
                parts
            }
            (None, false) => self.texts(Words { rest: text, left: most, last })?,
            (None, true) => {
                let mut parts = self.texts(Words { rest: text, left: most, last })?;
                parts.reverse();
                parts
            }
        };
        self.meter.list(parts)
    }

    fn split_lines(&self, text: &str, ends: LineEnds) -> Result<Value, RenderError> {
        self.meter.list(self.texts(lines(text, ends).into_iter())?)
    }

    pub fn replace(
        &self,
        text: &str,
        old: &str,
        new: &str,
        most: Option<usize>,
    ) -> Result<Value, RenderError> {
        let most = most.unwrap_or(usize::MAX);
        let mut out = self.meter.new_text()?;
        let mut end = 0;
        for (at, _) in text.match_indices(old).take(most) {
            out.push(&text[end..at])?;
            out.push(new)?;
            end = at + old.len();
        }
        out.push(&text[end..])?;
        Ok(out.into_value())
    }

    fn has_affix(&self, text: &str, method: &str, affix: &Value) -> Result<Value, RenderError> {
        let has = |affix: &str| {
            if method == "startswith" { text.starts_with(affix) } else { text.ends_with(affix) }
        };
        match affix {
            Value::Text(affix) => Ok(Value::Bool(has(affix))),
            Value::Tuple(all) => {
                self.meter.spend(all.len())?;
                Ok(Value::Bool(all.iter().filter_map(Value::as_str).any(has)))
            }
            _ => {
                affix.defined()?;
                let found = affix.type_name();
                RenderError::failed(format!("{method} first arg must be str or a tuple of str, not {found}"))
            }
        }
    }

    fn search(&self, text: &Text, method: &str, given: CallArguments) -> Result<Value, RenderError> {
        let [part, start, end] = given.bind(method, &["sub", "start", "end"])?;
        let Some(part) = part.optional_text()? else {
            return RenderError::failed("must be str, not NoneType");
        };
        let first = match start.int_or(0)? {
            first if first < 0 => (first + text.chars().count() as i128).max(0),
            first => first,
        };
        let Value::Text(within) = self.slice(&Value::Text(text.clone()), &[start, end, None])? else {
            return Ok(Value::Int(-1));
        };
        if method == "count" {
            let count =
                if part.is_empty() { within.chars().count() + 1 } else { within.matches(&*part).count() };
            return Ok(Value::Int(count as i128));
        }
        let found = if method.starts_with('r') { within.rfind(&*part) } else { within.find(&*part) };
        match found {
            Some(byte) => Ok(Value::Int(within[..byte].chars().count() as i128 + first)),
            None if method.ends_with("index") => RenderError::failed("substring not found"),
            None => Ok(Value::Int(-1)),
        }
    }

    /// Pads `text` to `width` characters.
    pub fn pad(&self, text: &str, method: &str, width: i128, fill: &str) -> Result<Value, RenderError> {
        if fill.chars().count() != 1 {
            return RenderError::failed("the fill character must be exactly one character long");
        }
        let length = text.chars().count();
        let width = usize::try_from(width.max(0)).map_err(|_| RenderError::Limit("memory"))?;
        let missing = width.saturating_sub(length);
        let before = match method {
            "ljust" => 0,
            "rjust" => missing,
            // Python puts the odd one on the left when the width is odd.
            _ => missing / 2 + (missing & width & 1),
        };
        let mut out = self.meter.new_text()?;
        out.repeat(fill, before)?;
        out.push(text)?;
        out.repeat(fill, missing - before)?;
        Ok(out.into_value())
    }

    fn partition(&self, text: &Text, method: &str, separator: &str) -> Result<Value, RenderError> {
        if separator.is_empty() {
            return RenderError::failed("empty separator");
        }
        let is_last = method == "rpartition";
        let parts = if is_last { text.rsplit_once(separator) } else { text.split_once(separator) };
        let (whole, empty) = (Value::Text(text.clone()), Value::literal(""));
        self.meter.tuple(match parts {
            Some((before, after)) => self.texts([before, separator, after].into_iter())?,
            None if is_last => vec![empty.clone(), empty, whole],
            None => vec![whole, empty.clone(), empty],
        })
    }

    fn expand_tabs(&self, text: &str, width: usize) -> Result<Value, RenderError> {
        let mut out = self.meter.new_text()?;
        let mut column = 0;
        for character in text.chars() {
            match character {
                '\t' if width > 0 => {
                    out.repeat(" ", width - column % width)?;
                    column += width - column % width;
                }
                '\t' => {}
                _ => {
                    out.push(character.encode_utf8(&mut [0; 4]))?;
                    column = if matches!(character, '\n' | '\r') { 0 } else { column + 1 };
                }
            }
        }
        Ok(out.into_value())
    }
}
