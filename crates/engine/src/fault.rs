//! Failures on order, so that tests can see what becomes of everybody else.
//!
//! Invariant: an engine that was ordered none looks at an empty list once a step, and that is all it costs.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What is to fail, and when. Written as `KIND@step=N`, `KIND@over=N`, `KIND@token=N` or `KIND@token=N/ANSWERED`, with
/// commas between several.
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
    /// In every step of more than so many tokens, as memory does that holds no more.
    Over(usize),
    /// In every step that computes for a prompt with this token in it, once so many tokens of its answer are known.
    Token { token: u32, answered: usize },
}

/// A step, as far as faults look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FaultContext {
    /// Its number.
    pub(crate) step: u64,
    /// How many it computes.
    pub(crate) tokens: usize,
}

/// One sequence of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FaultTarget<'a> {
    pub(crate) prompt: &'a [u32],
    /// Tokens of its answer that are known.
    pub(crate) answered: usize,
}

impl When {
    fn strikes<'a>(self, context: FaultContext, mut targets: impl Iterator<Item = FaultTarget<'a>>) -> bool {
        match self {
            Self::Step(step) => step == context.step,
            Self::Over(tokens) => context.tokens > tokens,
            Self::Token { token, answered } => {
                targets.any(|target| target.answered >= answered && target.prompt.contains(&token))
            }
        }
    }
}

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Building and launching a step.
    Launch,
    /// Building it, with a panic.
    LaunchPanic,
    /// Building and launching what is drawn from it, when its numbers are on their way.
    Draw,
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

    /// What fails in a step as a whole, which computes for these.
    pub(crate) fn of_step<'a>(
        &self,
        context: FaultContext,
        targets: impl Iterator<Item = FaultTarget<'a>> + Clone,
    ) -> Option<Kind> {
        let whole = self.0.iter().filter(|fault| fault.what.site() == Site::Step);
        whole.filter(|fault| fault.when.strikes(context, targets.clone())).map(|fault| fault.what).next()
    }

    /// Whether the disk's thread fails in this way at the block or question of this number.
    pub(crate) fn of_disk(&self, what: Kind, number: u64) -> bool {
        self.0.contains(&Fault { what, when: When::Step(number) })
    }

    /// What fails of a sequence's row in a step.
    pub(crate) fn of_row(&self, context: FaultContext, target: FaultTarget<'_>) -> Option<RowFault> {
        let mut struck = self.0.iter().filter(|fault| fault.when.strikes(context, std::iter::once(target)));
        struck.find_map(|fault| match fault.what.site() {
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
            Self::Launch
            | Self::LaunchPanic
            | Self::Draw
            | Self::Read
            | Self::Turn
            | Self::Abort
            | Self::Hang => Site::Step,
        }
    }
}

const NAMES: &[(&str, Kind)] = &[
    ("launch", Kind::Launch),
    ("launch-panic", Kind::LaunchPanic),
    ("draw", Kind::Draw),
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
    let wanted = || format!("a fault is KIND@step=N, KIND@over=N or KIND@token=N[/ANSWERED], not `{text}`");
    let (kind, when) = text.split_once('@').ok_or_else(wanted)?;
    let (_, what) = NAMES.iter().find(|(name, _)| *name == kind).ok_or_else(wanted)?;
    let when = match when.split_once('=').ok_or_else(wanted)? {
        ("step", number) => When::Step(number.parse().map_err(|_| wanted())?),
        ("over", number) => When::Over(number.parse().map_err(|_| wanted())?),
        ("token", numbers) => {
            let (token, answered) = numbers.split_once('/').unwrap_or((numbers, "0"));
            let token = token.parse().map_err(|_| wanted())?;
            When::Token { token, answered: answered.parse().map_err(|_| wanted())? }
        }
        _ => return Err(wanted()),
    };
    Ok(Fault { what: *what, when })
}

/// Panics without a message on stderr: it was ordered.
pub(crate) fn injected_panic() -> ! {
    std::panic::resume_unwind(Box::new("a panic on order"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_strikes_where_it_says() {
        let plan: FaultPlan = "read@step=3,abort@token=7,nan@token=9/2,draw@over=40".parse().unwrap();
        let target = |prompt, answered| FaultTarget { prompt, answered };
        let targets = [target(&[1, 2], 5), target(&[7], 0)];
        let context = |step, tokens| FaultContext { step, tokens };
        assert_eq!(plan.of_step(context(3, 1), std::iter::empty()), Some(Kind::Read));
        assert_eq!(plan.of_step(context(2, 1), targets.into_iter()), Some(Kind::Abort));
        assert_eq!(plan.of_step(context(2, 40), targets.into_iter().take(1)), None);
        assert_eq!(plan.of_step(context(2, 41), targets.into_iter().take(1)), Some(Kind::Draw));
        assert_eq!(plan.of_row(context(0, 1), target(&[9], 1)), None);
        assert_eq!(plan.of_row(context(0, 1), target(&[9], 2)), Some(RowFault::NotANumber));
        assert_eq!(plan.of_row(context(3, 1), target(&[1], 9)), None, "a step as a whole is no row's");
        assert!("".parse::<FaultPlan>().unwrap().is_empty());
        assert!("read@5".parse::<FaultPlan>().is_err() && "x@step=1".parse::<FaultPlan>().is_err());
    }
}
