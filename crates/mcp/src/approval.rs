//! Which tools run without an approval.

use std::collections::BTreeMap;

/// Whether calls of a tool need an approval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rule {
    /// Each call does.
    #[default]
    Always,
    /// None does.
    Never,
}

impl Rule {
    /// As in files and in requests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Never => "never",
        }
    }

    /// The rule of a name.
    pub fn of(name: &str) -> Option<Self> {
        [Self::Always, Self::Never].into_iter().find(|rule| rule.name() == name)
    }
}

/// The rules of a server's tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Approval {
    /// Of tools without a rule of their own.
    pub default: Rule,
    /// By the tool's name.
    pub tools: BTreeMap<String, Rule>,
}

impl Approval {
    /// One rule for all tools.
    pub fn of_all(rule: Rule) -> Self {
        Self { default: rule, tools: BTreeMap::new() }
    }

    /// The rule of a tool.
    pub fn rule(&self, tool: &str) -> Rule {
        self.tools.get(tool).copied().unwrap_or(self.default)
    }

    /// The rule of a tool by this configuration and by a request: a request may be stricter, and never looser.
    pub fn stricter(&self, tool: &str, requested: Rule) -> Rule {
        match (self.rule(tool), requested) {
            (Rule::Never, Rule::Never) => Rule::Never,
            (Rule::Always, _) | (_, Rule::Always) => Rule::Always,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_may_only_be_stricter() {
        let tools = BTreeMap::from([("read".to_owned(), Rule::Never)]);
        let approval = Approval { default: Rule::Always, tools };
        assert_eq!(approval.stricter("read", Rule::Never), Rule::Never);
        assert_eq!(approval.stricter("read", Rule::Always), Rule::Always);
        assert_eq!(approval.stricter("write", Rule::Never), Rule::Always);
    }
}
