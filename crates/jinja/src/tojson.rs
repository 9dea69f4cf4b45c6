//! Python's `json.dumps`, which is what `tojson` is in a chat template: no HTML escapes, not ASCII only.

use crate::error::RenderError;
use crate::float::float_repr;
use crate::meter::{Meter, TextBuilder};
use crate::value::Value;

/// How a document is laid out.
pub(crate) struct Layout {
    pub ensure_ascii: bool,
    /// What one level of indentation is; none for one line.
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

pub(crate) fn dumps(value: &Value, layout: &Layout, meter: &Meter) -> Result<Value, RenderError> {
    let mut writer = Writer { out: meter.new_text()?, layout, meter };
    writer.value(value, 0)?;
    Ok(writer.out.into_value())
}

struct Writer<'a> {
    out: TextBuilder,
    layout: &'a Layout,
    meter: &'a Meter,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, level: usize) -> Result<(), RenderError> {
        self.meter.spend(1)?;
        match value {
            Value::None => self.out.push("null"),
            Value::Bool(value) => self.out.push(if *value { "true" } else { "false" }),
            Value::Int(value) => self.out.push(&value.to_string()),
            Value::Float(value) => self.out.push(&float(*value)),
            Value::Text(text) => self.text(text),
            Value::List(items) | Value::Tuple(items) => {
                self.out.push("[")?;
                for (index, item) in items.iter().enumerate() {
                    self.separate(index, level + 1)?;
                    self.value(item, level + 1)?;
                }
                self.close("]", items.len(), level)
            }
            Value::Dict(dict) => {
                let mut entries: Vec<&(Value, Value)> = dict.iter().collect();
                if self.layout.sort_keys {
                    self.meter.spend(entries.len().saturating_mul(8))?;
                    entries.sort_by(|(a, _), (b, _)| a.as_str().cmp(&b.as_str()));
                }
                self.out.push("{")?;
                for (index, (key, value)) in entries.iter().enumerate() {
                    self.separate(index, level + 1)?;
                    self.key(key)?;
                    let separator = &self.layout.key_separator;
                    self.out.push(separator)?;
                    self.value(value, level + 1)?;
                }
                self.close("}", dict.len(), level)
            }
            _ => {
                RenderError::failed(format!("Object of type {} is not JSON serializable", value.type_name()))
            }
        }
    }

    fn key(&mut self, key: &Value) -> Result<(), RenderError> {
        match key {
            Value::Text(text) => self.text(text),
            Value::None => self.out.push("\"null\""),
            Value::Bool(value) => self.out.push(if *value { "\"true\"" } else { "\"false\"" }),
            Value::Int(value) => self.out.push(&format!("\"{value}\"")),
            Value::Float(value) => self.out.push(&format!("\"{}\"", float(*value))),
            _ => {
                let found = key.type_name();
                RenderError::failed(format!("keys must be str, int, float, bool or None, not {found}"))
            }
        }
    }

    fn separate(&mut self, index: usize, level: usize) -> Result<(), RenderError> {
        if index > 0 {
            self.out.push(&self.layout.item_separator)?;
        }
        self.new_line(level)
    }

    fn close(&mut self, bracket: &str, items: usize, level: usize) -> Result<(), RenderError> {
        if items > 0 {
            self.new_line(level)?;
        }
        self.out.push(bracket)
    }

    fn new_line(&mut self, level: usize) -> Result<(), RenderError> {
        let Some(indent) = &self.layout.indent else { return Ok(()) };
        self.out.push("\n")?;
        self.out.repeat(indent, level)
    }

    fn text(&mut self, text: &str) -> Result<(), RenderError> {
        self.out.push("\"")?;
        let mut plain = 0;
        for (at, character) in text.char_indices() {
            let escaped = match character {
                '"' => "\\\"".to_owned(),
                '\\' => "\\\\".to_owned(),
                '\n' => "\\n".to_owned(),
                '\r' => "\\r".to_owned(),
                '\t' => "\\t".to_owned(),
                '\u{8}' => "\\b".to_owned(),
                '\u{c}' => "\\f".to_owned(),
                '\0'..'\u{20}' => format!("\\u{:04x}", character as u32),
                '\u{7f}'.. if self.layout.ensure_ascii && character != '\u{7f}' => {
                    let mut units = [0; 2];
                    character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
                }
                _ => continue,
            };
            self.out.push(&text[plain..at])?;
            self.out.push(&escaped)?;
            plain = at + character.len_utf8();
        }
        self.out.push(&text[plain..])?;
        self.out.push("\"")
    }
}

fn float(value: f64) -> String {
    match float_repr(value).as_str() {
        "nan" => "NaN".to_owned(),
        "inf" => "Infinity".to_owned(),
        "-inf" => "-Infinity".to_owned(),
        finite => finite.to_owned(),
    }
}

/// Reads what a template gives as `indent`: a number of blanks or the text itself.
pub(crate) fn indent(value: &Value) -> Result<Option<String>, RenderError> {
    match value {
        Value::None => Ok(None),
        Value::Text(text) if text.len() <= 64 => Ok(Some(text.to_string())),
        _ => match value.as_int() {
            Some(width @ ..=64) => Ok(Some(" ".repeat(usize::try_from(width).unwrap_or(0)))),
            _ => RenderError::failed("indent must be a number up to 64"),
        },
    }
}
