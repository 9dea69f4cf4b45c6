//! `oneOf`: alternatives of which exactly one holds.

use serde_json::{Map, Value, json};

use super::disjoint::disjoint;
use super::lowering::{Conjunct, Lowering, Room};
use super::negation::{all_of, alternatives, negation};
use crate::error::GrammarError;

/// Most branches that are compared with each other.
const COMPARED_MAX: usize = 128;
/// Most branches that exclude each other where they do not differ by themselves.
const EXCLUDING_MAX: usize = 8;

impl Lowering<'_> {
    /// Replaces `oneOf` by `anyOf`: exact where no value matches two branches, or where each can exclude the others.
    pub(super) fn one_of(
        &mut self,
        object: &mut Map<String, Value>,
        at: &str,
        room: &mut Room,
        conjuncts: &mut Vec<Conjunct>,
    ) -> Result<(), GrammarError> {
        let Some(Value::Array(branches)) = object.remove("oneOf") else { return Ok(()) };
        let at = format!("{at}/oneOf");
        let branches = match self.apart(&branches, room) {
            Some(branches) => branches,
            None => {
                self.losses.add(&at)?;
                branches
            }
        };
        if object.contains_key("anyOf") {
            conjuncts.push(Conjunct { schema: json!({ "anyOf": branches }), at });
        } else {
            object.insert("anyOf".to_owned(), Value::Array(branches));
        }
        Ok(())
    }

    /// Branches of which no two match one value, with the same values as `oneOf`. `None` where that is not seen.
    fn apart(&self, branches: &[Value], room: &mut Room) -> Option<Vec<Value>> {
        if branches.len() > COMPARED_MAX {
            return None;
        }
        let overlapping = |index: usize, branch: &Value| -> Vec<&Value> {
            let others = branches.iter().enumerate().filter(|(other, _)| *other != index);
            others
                .map(|(_, other)| other)
                .filter(|other| !disjoint(branch, other, self.definitions, &self.budget))
                .collect()
        };
        let mut apart = Vec::new();
        for (index, branch) in branches.iter().enumerate() {
            let others = overlapping(index, branch);
            if others.is_empty() {
                apart.push(branch.clone());
                continue;
            }
            if branches.len() > EXCLUDING_MAX {
                return None;
            }
            let excluded: Option<Vec<Value>> =
                others.into_iter().map(|other| negation(other, self.definitions, &self.budget)).collect();
            let mut all = excluded?;
            if !room.take(all.iter().map(alternatives).product()) {
                return None;
            }
            all.insert(0, branch.clone());
            apart.push(all_of(all));
        }
        Some(apart)
    }
}
