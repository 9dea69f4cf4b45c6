//! Values as text: Python's `str` and `repr`.

use std::rc::Rc;

use super::{Text, Value};
use crate::error::RenderError;
use crate::float::float_repr;
use crate::meter::{Meter, TextBuilder};

impl Value {
    /// Python's `str(value)`.
    pub fn write(&self, out: &mut TextBuilder) -> Result<(), RenderError> {
        match self {
            Value::Undefined(_) | Value::Unsafe(_) => Ok(()),
            Value::Text(text) => out.push(text),
            _ => self.write_repr(out),
        }
    }

    /// Python's `repr(value)`.
    pub fn write_repr(&self, out: &mut TextBuilder) -> Result<(), RenderError> {
        match self {
            Value::Undefined(_) | Value::Unsafe(_) => out.push("Undefined"),
            Value::None => out.push("None"),
            Value::Bool(true) => out.push("True"),
            Value::Bool(false) => out.push("False"),
            Value::Int(value) => out.push(&value.to_string()),
            Value::Float(value) => out.push(&float_repr(*value)),
            Value::Text(text) => write_quoted(text, out),
            Value::List(list) => write_items("[", list, "]", out),
            Value::Tuple(list) => write_items("(", list, if list.len() == 1 { ",)" } else { ")" }, out),
            Value::View(name, list) => {
                out.push(name)?;
                write_items("([", list, "])", out)
            }
            Value::Dict(dict) => {
                out.push("{")?;
                for (index, (key, value)) in dict.iter().enumerate() {
                    out.push(if index == 0 { "" } else { ", " })?;
                    key.write_repr(out)?;
                    out.push(": ")?;
                    value.write_repr(out)?;
                }
                out.push("}")
            }
            // A namespace may hold itself, so its items are not written.
            _ => {
                out.push("<")?;
                out.push(self.type_name())?;
                out.push(" object>")
            }
        }
    }

    /// Python's `str(value)` as a value; text is itself.
    pub fn to_text(&self, meter: &Meter) -> Result<Text, RenderError> {
        if let Value::Text(text) = self {
            return Ok(text.clone());
        }
        let mut out = meter.new_text()?;
        self.write(&mut out)?;
        Ok(Text::Computed(Rc::new(out.finish())))
    }
}

fn write_items(open: &str, items: &[Value], close: &str, out: &mut TextBuilder) -> Result<(), RenderError> {
    out.push(open)?;
    for (index, item) in items.iter().enumerate() {
        out.push(if index == 0 { "" } else { ", " })?;
        item.write_repr(out)?;
    }
    out.push(close)
}

/// A string as Python's `repr` quotes it.
fn write_quoted(text: &str, out: &mut TextBuilder) -> Result<(), RenderError> {
    let quote = if text.contains('\'') && !text.contains('"') { "\"" } else { "'" };
    out.push(quote)?;
    let mut plain = 0;
    for (at, character) in text.char_indices() {
        let escaped = match character {
            '\n' => "\\n".to_owned(),
            '\r' => "\\r".to_owned(),
            '\t' => "\\t".to_owned(),
            '\\' => "\\\\".to_owned(),
            _ if quote.starts_with(character) => format!("\\{character}"),
            _ if is_printable(character) => continue,
            _ if (character as u32) < 0x100 => format!("\\x{:02x}", character as u32),
            _ if (character as u32) < 0x10000 => format!("\\u{:04x}", character as u32),
            _ => format!("\\U{:08x}", character as u32),
        };
        out.push(&text[plain..at])?;
        out.push(&escaped)?;
        plain = at + character.len_utf8();
    }
    out.push(&text[plain..])?;
    out.push(quote)
}

/// Nearly Python's `str.isprintable`: all but controls, formats, separators and private use.
fn is_printable(character: char) -> bool {
    match character {
        ' ' => true,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' => false,
        '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e000}'..='\u{f8ff}' => false,
        '\u{e0000}'..='\u{e007f}' | '\u{f0000}'.. => false,
        _ => !character.is_control() && !character.is_whitespace(),
    }
}
