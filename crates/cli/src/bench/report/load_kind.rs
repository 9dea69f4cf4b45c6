//! The loads of a report, in terms of the generator of `bench serve`.

use crate::settings::{Arrivals, BenchSettings, Dataset};

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
}

/// Every load.
pub const LOADS: &[LoadKind] = &[
    LoadKind::Closed,
    LoadKind::Poisson,
    LoadKind::Bursts,
    LoadKind::Agents,
    LoadKind::Shared,
    LoadKind::Long,
];

/// Requests of a burst.
const BURST: usize = 8;

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
        }
    }

    /// The one of this name. Fails with the names that there are.
    pub fn named(name: &str) -> Result<Self, String> {
        LOADS.iter().copied().find(|load| load.name() == name).ok_or_else(|| {
            let names: Vec<&str> = LOADS.iter().map(|load| load.name()).collect();
            format!("--loads: there is no `{name}`; choose from {}", names.join(", "))
        })
    }

    /// The generator's settings. `base` has the lengths, the number of requests, its rate and its concurrency.
    pub fn settings(self, base: &BenchSettings) -> BenchSettings {
        let closed = Arrivals { rate: None, ..base.arrivals };
        let open = Arrivals { concurrency: None, ..base.arrivals };
        let settings = BenchSettings { arrivals: closed, ..base.clone() };
        match self {
            Self::Closed => settings,
            Self::Poisson => BenchSettings { arrivals: open, ..settings },
            Self::Bursts => {
                let rate = open.rate.map(|rate| rate / BURST as f64);
                BenchSettings { arrivals: Arrivals { rate, burst: BURST, ..open }, ..settings }
            }
            Self::Agents => BenchSettings { dataset: Dataset::Turns, ..settings },
            Self::Shared => BenchSettings { dataset: Dataset::SharedPrefix, ..settings },
            Self::Long => BenchSettings { input_len: 8 * base.input_len, ..settings },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> BenchSettings {
        let arrivals = Arrivals { rate: Some(16.0), concurrency: Some(4), burst: 1 };
        BenchSettings { input_len: 10, arrivals, ..BenchSettings::default() }
    }

    #[test]
    fn a_closed_loop_has_no_rate_and_an_open_one_no_limit() {
        let arrivals = |load: LoadKind| load.settings(&base()).arrivals;
        assert_eq!(arrivals(LoadKind::Closed), Arrivals { rate: None, concurrency: Some(4), burst: 1 });
        assert_eq!(arrivals(LoadKind::Poisson), Arrivals { rate: Some(16.0), concurrency: None, burst: 1 });
        assert_eq!(arrivals(LoadKind::Bursts), Arrivals { rate: Some(2.0), concurrency: None, burst: 8 });
    }

    #[test]
    fn loads_have_prompts_of_their_own() {
        assert_eq!(LoadKind::Long.settings(&base()).input_len, 80);
        assert_eq!(LoadKind::Agents.settings(&base()).dataset, Dataset::Turns);
        assert_eq!(LoadKind::Shared.settings(&base()).dataset, Dataset::SharedPrefix);
        assert!(LoadKind::named("none").is_err_and(|error| error.contains("closed, poisson")));
        assert!(LOADS.iter().all(|load| LoadKind::named(load.name()) == Ok(*load)));
    }
}
