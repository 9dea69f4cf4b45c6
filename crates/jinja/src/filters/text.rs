//! Filters of one text.

use crate::arguments::{ArgumentDefaults, CallArguments};
use crate::error::RenderError;
use crate::format;
use crate::runtime::Runtime;
use crate::strings::{LineEnds, capitalize, escape, lines, strip_tags, title_filter};
use crate::value::{Text, Value};

impl Runtime {
    pub fn text_filter(
        &mut self,
        name: &str,
        text: &Text,
        given: CallArguments,
    ) -> Result<Value, RenderError> {
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
                let CallArguments { positional, named } = given;
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

    fn plain_text_filter(&mut self, name: &str, text: &Text) -> Result<Value, RenderError> {
        match name {
            "string" | "safe" => return Ok(Value::Text(text.clone())),
            "wordcount" => {
                let words = text.split(|c: char| c != '_' && !c.is_alphanumeric());
                return Ok(Value::Int(words.filter(|word| !word.is_empty()).count() as i128));
            }
            "escape" | "e" if matches!(text, Text::Markup(_)) => return Ok(Value::Text(text.clone())),
            "escape" | "e" | "forceescape" => {
                let mut out = self.meter.new_text()?;
                escape(text, &mut out)?;
                return Ok(out.into_value());
            }
            "urlencode" => {
                let mut out = self.meter.new_text()?;
                for byte in text.bytes() {
                    match byte {
                        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' | b'/' => {
                            out.push(char::from(byte).encode_utf8(&mut [0; 4]))?;
                        }
                        _ => out.push(&format!("%{byte:02X}"))?,
                    }
                }
                return Ok(out.into_value());
            }
            _ => {}
        }
        self.meter.ensure_free(text.len().saturating_mul(3))?;
        self.meter.text(match name {
            "upper" => text.to_uppercase(),
            "lower" => text.to_lowercase(),
            "capitalize" => capitalize(text),
            "title" => title_filter(text),
            _ => strip_tags(text),
        })
    }

    fn indent(&mut self, text: &Text, given: CallArguments) -> Result<Value, RenderError> {
        let [width, first, blank] = given.bind("indent", &["width", "first", "blank"])?;
        let mut indentation = self.meter.new_text()?;
        match &width {
            Some(Value::Text(width)) => indentation.push(width)?,
            _ => indentation.repeat(" ", usize::try_from(width.int_or(4)?.max(0)).unwrap_or(usize::MAX))?,
        }
        let (indentation, _reservation) = indentation.finish();
        // A last line end starts a line of its own.
        let mut out = self.meter.new_text()?;
        let ended = format!("{}\n", &**text);
        for (index, line) in lines(&ended, LineEnds::Dropped).into_iter().enumerate() {
            out.push(if index == 0 { "" } else { "\n" })?;
            let is_indented =
                if index == 0 { first.truth_or(false) } else { blank.truth_or(false) || !line.is_empty() };
            out.push(if is_indented { &indentation } else { "" })?;
            out.push(line)?;
        }
        Ok(out.into_value())
    }

    fn truncate(&mut self, text: &Text, given: CallArguments) -> Result<Value, RenderError> {
        let [length, kill_words, end, leeway] =
            given.bind("truncate", &["length", "killwords", "end", "leeway"])?;
        let end = end.text_or("...")?;
        let (length, leeway) = (length.int_or(255)?, leeway.int_or(5)?);
        let room = length.saturating_sub(end.chars().count() as i128);
        if room < 0 || leeway < 0 {
            return RenderError::failed(
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
        let mut out = self.meter.new_text()?;
        out.push(kept)?;
        out.push(&end)?;
        Ok(out.into_value())
    }
}
