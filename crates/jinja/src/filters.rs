//! The filters of Jinja, `tojson` as transformers replaces it.

mod number;
mod order;
mod sequence;
mod text;

use std::sync::Arc;

use crate::arguments::{ArgumentDefaults, CallArguments};
use crate::ast::Name;
use crate::error::RenderError;
use crate::runtime::Runtime;
use crate::tojson::{self, Layout};
use crate::value::{Text, UndefinedReason, Value};

impl Runtime {
    /// `value | name(…)`.
    pub fn filter(&mut self, name: &str, value: &Value, given: CallArguments) -> Result<Value, RenderError> {
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
                    _ => RenderError::failed("Can only get item pairs from a mapping."),
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
                        Ok(Value::Undefined(UndefinedReason::Attribute(value.object_name(), attribute)))
                    }
                    _ => self.attribute(value, &attribute),
                }
            }
            "select" | "reject" | "selectattr" | "rejectattr" => self.select(name, value, given),
            "map" => self.map(value, given),
            _ => self.items_filter(name, value, given),
        }
    }

    fn json_text(&mut self, value: &Value, given: CallArguments) -> Result<Value, RenderError> {
        let parameters = &["ensure_ascii", "indent", "separators", "sort_keys"];
        let [ascii, indent, separators, sort_keys] = given.bind("tojson", parameters)?;
        let indent = tojson::indent(&indent.unwrap_or(Value::None))?;
        let mut item_separator = if indent.is_some() { "," } else { ", " }.to_owned();
        let mut key_separator = ": ".to_owned();
        if let Some(Value::List(pair) | Value::Tuple(pair)) = &separators {
            let [Value::Text(item), Value::Text(key)] = &***pair else {
                return RenderError::failed("separators must be a pair of strings");
            };
            (item_separator, key_separator) = (item.to_string(), key.to_string());
        }
        let (ensure_ascii, sort_keys) = (ascii.truth_or(false), sort_keys.truth_or(false));
        let layout = Layout { ensure_ascii, indent, item_separator, key_separator, sort_keys };
        tojson::dumps(value, &layout, &self.meter)
    }

    /// An item's attribute by a path such as `function.name` or a position.
    pub fn path(&mut self, item: &Value, path: &Value) -> Result<Value, RenderError> {
        let Value::Text(path) = path else { return self.index(item, path) };
        let mut value = item.clone();
        for part in path.split('.') {
            let part = part.parse().map_or_else(|_| Value::literal(part), Value::Int);
            value = self.index(&value, &part)?;
        }
        Ok(value)
    }

    /// Python's truth of a test named by the arguments, or of the item.
    pub fn passes(
        &mut self,
        item: &Value,
        test: Option<&Text>,
        arguments: &[Value],
    ) -> Result<bool, RenderError> {
        match test {
            Some(test) => {
                self.test(test, item, CallArguments { positional: arguments.to_vec(), named: Vec::new() })
            }
            None => Ok(item.is_true()),
        }
    }
}
