//! Filters that compare the items of a sequence: sorting, extremes, groups.

use std::cmp::Ordering;

use crate::arguments::{ArgumentDefaults, CallArguments};
use crate::ast::Comparison;
use crate::error::RenderError;
use crate::runtime::Runtime;
use crate::value::{UndefinedReason, Value};

impl Runtime {
    pub fn dict_sort(&mut self, value: &Value, given: CallArguments) -> Result<Value, RenderError> {
        let [case, by, reverse] = given.bind("dictsort", &["case_sensitive", "by", "reverse"])?;
        let place = match &*by.text_or("key")? {
            "key" => 0,
            "value" => 1,
            _ => return RenderError::failed("You can only sort by either \"key\" or \"value\""),
        };
        let Value::Dict(dict) = value.defined()? else {
            return RenderError::failed(format!("'{}' has no attribute 'items'", value.object_name()));
        };
        let pairs = self.pairs(dict)?;
        let sorted =
            self.sorted(&pairs, Some(&Value::Int(place)), case.truth_or(false), reverse.truth_or(false))?;
        self.meter.list(sorted)
    }

    /// The items in Python's order of a part of them, stable.
    pub fn sorted(
        &mut self,
        items: &[Value],
        attribute: Option<&Value>,
        case_sensitive: bool,
        reverse: bool,
    ) -> Result<Vec<Value>, RenderError> {
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

    fn order_keys(&self, a: &[Value], b: &[Value]) -> Result<Ordering, RenderError> {
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
    ) -> Result<Vec<Value>, RenderError> {
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
                self.meter.ensure_free(text.len().saturating_mul(3))?;
                *part = self.meter.text(text.to_lowercase())?;
            }
        }
        Ok(key)
    }

    pub fn extreme(&mut self, name: &str, value: &Value, given: CallArguments) -> Result<Value, RenderError> {
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
        let missing = UndefinedReason::Message("No aggregated item, sequence was empty.");
        Ok(best.map_or(Value::Undefined(missing), |(_, item)| item))
    }

    pub fn unique(&mut self, value: &Value, given: CallArguments) -> Result<Value, RenderError> {
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

    pub fn group_by(&mut self, value: &Value, given: CallArguments) -> Result<Value, RenderError> {
        let [attribute, default, case] =
            given.bind("groupby", &["attribute", "default", "case_sensitive"])?;
        let Some(attribute) = attribute else { return RenderError::failed("groupby needs an attribute") };
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

    fn compare_all(&self, a: &[Value], b: &[Value]) -> Result<bool, RenderError> {
        for (a, b) in a.iter().zip(b) {
            if !self.compare(Comparison::Equal, a, b)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
