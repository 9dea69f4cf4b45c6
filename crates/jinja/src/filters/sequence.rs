//! Filters of the items of a sequence, in the order they stand in.

use crate::arguments::{ArgumentDefaults, CallArguments};
use crate::arithmetic;
use crate::ast::Operator;
use crate::error::RenderError;
use crate::runtime::Runtime;
use crate::value::{List, UndefinedReason, Value};

impl Runtime {
    pub fn items_filter(
        &mut self,
        name: &str,
        value: &Value,
        given: CallArguments,
    ) -> Result<Value, RenderError> {
        match name {
            "first" => {
                let [] = given.bind(name, &[])?;
                let items = value.iterate(&self.meter)?;
                let missing = UndefinedReason::Message("No first item, sequence was empty.");
                Ok(items.first().cloned().unwrap_or(Value::Undefined(missing)))
            }
            "last" => {
                let [] = given.bind(name, &[])?;
                let items = value.iterate(&self.meter)?;
                let missing = UndefinedReason::Message("No last item, sequence was empty.");
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
            _ => RenderError::failed(format!("No filter named '{name}' found.")),
        }
    }

    fn join_filter(&mut self, value: &Value, given: CallArguments) -> Result<Value, RenderError> {
        let [separator, attribute] = given.bind("join", &["d", "attribute"])?;
        let separator = separator.unwrap_or(Value::literal("")).to_text(&self.meter)?;
        let mut out = self.meter.new_text()?;
        for (index, item) in value.iterate(&self.meter)?.iter().enumerate() {
            out.push(if index == 0 { "" } else { &separator })?;
            match &attribute {
                Some(attribute) => self.path(item, attribute)?.write(&mut out)?,
                None => item.write(&mut out)?,
            }
        }
        Ok(out.into_value())
    }

    /// `batch`: lists of `count` items; `slice`: `count` lists.
    fn portions(&mut self, name: &str, value: &Value, given: CallArguments) -> Result<Value, RenderError> {
        let [count, fill] = given.bind(name, &["count", "fill_with"])?;
        let count = usize::try_from(count.int_or(0)?).unwrap_or(0);
        if count == 0 {
            return RenderError::failed(format!("{name} needs a count above zero"));
        }
        let fill = fill.filter(|fill| !matches!(fill, Value::None));
        let items = value.iterate(&self.meter)?;
        let mut portions: Vec<Vec<Value>> = Vec::new();
        if name == "batch" {
            portions.extend(items.chunks(count).map(<[Value]>::to_vec));
            if let (Some(last), Some(fill)) = (portions.last_mut(), fill) {
                self.meter.ensure_free(count.saturating_mul(size_of::<Value>()))?;
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

    /// What lazy filters look at: nothing when the value is false, whatever it is.
    fn items_if_true(&self, value: &Value) -> Result<List, RenderError> {
        if value.is_true() { value.iterate(&self.meter) } else { self.meter.items(Vec::new()) }
    }

    pub fn select(&mut self, name: &str, value: &Value, given: CallArguments) -> Result<Value, RenderError> {
        let mut arguments = given.positional.into_iter();
        let attribute = if name.ends_with("attr") {
            let Some(attribute) = arguments.next() else {
                return RenderError::failed("missing parameter for attribute name");
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

    pub fn map(&mut self, value: &Value, given: CallArguments) -> Result<Value, RenderError> {
        let items = self.items_if_true(value)?;
        let mut mapped = Vec::new();
        if given.positional.is_empty() {
            let [attribute, default] = given.bind("map", &["attribute", "default"])?;
            let Some(attribute) = attribute else {
                return RenderError::failed("map requires a filter argument");
            };
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
            mapped.push(self.filter(&filter, item, CallArguments { positional, named })?);
        }
        self.meter.generator(mapped)
    }

    fn sum(&mut self, value: &Value, given: CallArguments) -> Result<Value, RenderError> {
        let [attribute, start] = given.bind("sum", &["attribute", "start"])?;
        let mut sum = start.unwrap_or(Value::Int(0));
        for item in value.iterate(&self.meter)?.iter() {
            self.meter.spend(1)?;
            let item = match &attribute {
                Some(attribute) => self.path(item, attribute)?,
                None => item.clone(),
            };
            sum = arithmetic::compute(Operator::Add, &sum, &item)?;
        }
        Ok(sum)
    }
}
