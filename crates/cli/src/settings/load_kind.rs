//! The loads of `bench report`, by their names.

/// A load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadKind {
    /// So many requests at any time: the next begins when one ends.
    Closed,
    /// Requests of a Poisson process, whatever became of earlier ones.
    Poisson,
    /// A Poisson process whose events are several requests at once.
    Bursts,
    /// Conversations whose prompts grow by turns.
    Agents,
    /// Prompts with the same first half.
    Shared,
    /// Prompts eight times as long.
    Long,
    /// Prompts with a picture each.
    Media,
    /// One request at any time.
    Streams1,
    /// Two.
    Streams2,
    /// Four.
    Streams4,
    /// Eight.
    Streams8,
    /// Sixteen.
    Streams16,
}

/// Every load.
pub const LOADS: &[LoadKind] = &[
    LoadKind::Closed,
    LoadKind::Poisson,
    LoadKind::Bursts,
    LoadKind::Agents,
    LoadKind::Shared,
    LoadKind::Long,
    LoadKind::Media,
    LoadKind::Streams1,
    LoadKind::Streams2,
    LoadKind::Streams4,
    LoadKind::Streams8,
    LoadKind::Streams16,
];

impl LoadKind {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Poisson => "poisson",
            Self::Bursts => "bursts",
            Self::Agents => "agents",
            Self::Shared => "shared",
            Self::Long => "long",
            Self::Media => "media",
            Self::Streams1 => "streams1",
            Self::Streams2 => "streams2",
            Self::Streams4 => "streams4",
            Self::Streams8 => "streams8",
            Self::Streams16 => "streams16",
        }
    }

    /// What it is, for readers.
    pub fn about(self) -> &'static str {
        match self {
            Self::Closed => "closed loop: the next request begins when one ends",
            Self::Poisson => "open loop: requests of a Poisson process",
            Self::Bursts => "open loop: a Poisson process of eight requests at once",
            Self::Agents => "closed loop: conversations whose prompts grow by turns",
            Self::Shared => "closed loop: prompts with the same first half",
            Self::Long => "closed loop: prompts eight times as long",
            Self::Media => "closed loop: prompts with one of four pictures",
            Self::Streams1 => "closed loop: one request at a time",
            Self::Streams2 => "closed loop: two requests at any time",
            Self::Streams4 => "closed loop: four requests at any time",
            Self::Streams8 => "closed loop: eight requests at any time",
            Self::Streams16 => "closed loop: sixteen requests at any time",
        }
    }

    /// The one of this name. Fails with the names that there are.
    pub fn named(name: &str) -> Result<Self, String> {
        LOADS.iter().copied().find(|load| load.name() == name).ok_or_else(|| {
            let names: Vec<&str> = LOADS.iter().map(|load| load.name()).collect();
            format!("there is no `{name}`; choose from {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_load_is_refused_with_the_names() {
        assert!(LoadKind::named("none").is_err_and(|error| error.contains("closed, poisson")));
        assert!(LOADS.iter().all(|load| LoadKind::named(load.name()) == Ok(*load)));
    }
}
