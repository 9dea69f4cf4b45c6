//! Failures on order, so that tests can see what becomes of everybody else.
//!
//! Invariant: an engine that was ordered none looks at an empty list once a step, and that is all it costs.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What is to fail, and when. Written as `KIND@step=N` or `KIND@token=N`, with commas between several.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultPlan(Vec<Fault>);

/// One failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Fault {
    what: Kind,
    when: When,
}

/// When a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum When {
    /// In the step of that number, once. The first is 0.
    Step(u64),
    /// In every step that computes for a prompt with this token in it.
    Token(u32),
}

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Building and launching a step.
    Launch,
    /// Building it, with a panic.
    LaunchPanic,
    /// The evaluation of a step, which is known when it is read.
    Read,
    /// The loop itself, with a panic.
    Turn,
    /// The process: it is gone.
    Abort,
    /// The process: it is there and does nothing.
    Hang,
    /// The model's numbers for one row.
    NotANumber,
    /// One row's sampler, with a panic.
    Sampler,
    /// Writing a block to disk: there is no room. Its steps are the blocks that come to be written.
    DiskFull,
    /// The thread that reads from disk, with a panic. Its steps are the questions that it is asked.
    DiskReader,
}

/// Where a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Site {
    Step,
    Row(RowFault),
    Disk,
}

/// What fails of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowFault {
    /// Its logits are not numbers.
    NotANumber,
    /// Its sampler panics.
    Panic,
}

impl FaultPlan {
    /// True when nothing is to fail.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What fails in a step as a whole, if one of these prompts is in it.
    pub(crate) fn of_step<'a>(
        &self,
        step: u64,
        mut prompts: impl Iterator<Item = &'a [u32]>,
    ) -> Option<Kind> {
        let strikes = |fault: &&Fault| match fault.when {
            When::Step(at) => at == step,
            When::Token(token) => prompts.any(|prompt| prompt.contains(&token)),
        };
        let of_step = self.0.iter().filter(|fault| fault.what.site() == Site::Step);
        of_step.into_iter().find(strikes).map(|fault| fault.what)
    }

    /// Whether the disk's thread fails in this way at the block or question of this number.
    pub(crate) fn of_disk(&self, what: Kind, number: u64) -> bool {
        self.0.contains(&Fault { what, when: When::Step(number) })
    }

    /// What fails of a prompt's row in a step.
    pub(crate) fn of_row(&self, step: u64, prompt: &[u32]) -> Option<RowFault> {
        let strikes = |fault: &&Fault| match fault.when {
            When::Step(at) => at == step,
            When::Token(token) => prompt.contains(&token),
        };
        self.0.iter().filter(strikes).find_map(|fault| match fault.what.site() {
            Site::Row(fault) => Some(fault),
            Site::Step | Site::Disk => None,
        })
    }
}

impl Kind {
    fn site(self) -> Site {
        match self {
            Self::NotANumber => Site::Row(RowFault::NotANumber),
            Self::Sampler => Site::Row(RowFault::Panic),
            Self::DiskFull | Self::DiskReader => Site::Disk,
            Self::Launch | Self::LaunchPanic | Self::Read | Self::Turn | Self::Abort | Self::Hang => {
                Site::Step
            }
        }
    }
}

const NAMES: &[(&str, Kind)] = &[
    ("launch", Kind::Launch),
    ("launch-panic", Kind::LaunchPanic),
    ("read", Kind::Read),
    ("turn", Kind::Turn),
    ("abort", Kind::Abort),
    ("hang", Kind::Hang),
    ("nan", Kind::NotANumber),
    ("sampler", Kind::Sampler),
    ("disk-full", Kind::DiskFull),
    ("disk-reader", Kind::DiskReader),
];

impl FromStr for FaultPlan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').filter(|part| !part.is_empty()).map(fault).collect::<Result<_, _>>().map(Self)
    }
}

fn fault(text: &str) -> Result<Fault, String> {
    let wanted = || format!("a fault is KIND@step=N or KIND@token=N, not `{text}`");
    let (kind, when) = text.split_once('@').ok_or_else(wanted)?;
    let (_, what) = NAMES.iter().find(|(name, _)| *name == kind).ok_or_else(wanted)?;
    let when = match when.split_once('=').ok_or_else(wanted)? {
        ("step", number) => When::Step(number.parse().map_err(|_| wanted())?),
        ("token", number) => When::Token(number.parse().map_err(|_| wanted())?),
        _ => return Err(wanted()),
    };
    Ok(Fault { what: *what, when })
}

/// Panics without a message on stderr: it was ordered.
pub(crate) fn panic_on_order() -> ! {
    std::panic::resume_unwind(Box::new("a panic on order"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_strikes_where_it_says() {
        let plan: FaultPlan = "read@step=3,abort@token=7,nan@token=9".parse().unwrap();
        let prompts: [&[u32]; 2] = [&[1, 2], &[7]];
        assert_eq!(plan.of_step(3, std::iter::empty()), Some(Kind::Read));
        assert_eq!(plan.of_step(2, prompts.into_iter()), Some(Kind::Abort));
        assert_eq!(plan.of_step(2, prompts.into_iter().take(1)), None);
        assert_eq!(plan.of_row(0, &[9]), Some(RowFault::NotANumber));
        assert_eq!(plan.of_row(3, &[1]), None, "a step as a whole is no row's");
        assert!("".parse::<FaultPlan>().unwrap().is_empty());
        assert!("read@5".parse::<FaultPlan>().is_err() && "x@step=1".parse::<FaultPlan>().is_err());
    }
}
