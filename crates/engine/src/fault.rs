//! Injected faults, for tests: what fails, and when.
//!
//! Invariant: only wrappers of the runner and of the disk's files use this; an engine without faults has no wrappers.

use std::str::FromStr;

use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

/// The planned faults. Written as `KIND@step=N`, `KIND@over=N`, `KIND@blocks=N`, `KIND@token=N` or
/// `KIND@token=N/ANSWERED`, with commas between several.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultPlan(Vec<Fault>);

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Fault {
    what: Kind,
    when: When,
}

/// When a fault happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum When {
    /// In the step of that number, once. The first is 0.
    Step(u64),
    /// In every step of more than this many tokens, as if memory ran out.
    Over(usize),
    /// In every step while the KV cache's smallest layer group has more than this many blocks.
    Blocks(usize),
    /// In every step with a sequence whose prompt has this token, once this many tokens of its answer are known.
    Token { token: u32, answered: usize },
}

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FaultContext {
    /// Its number.
    pub(crate) step: u64,
    /// Tokens it computes.
    pub(crate) tokens: usize,
    /// Blocks of the KV cache's smallest layer group.
    pub(crate) blocks: usize,
}

/// One sequence of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FaultTarget<'a> {
    pub(crate) prompt: &'a [u32],
    /// Tokens of its answer that are known.
    pub(crate) answered: usize,
}

impl When {
    fn applies<'a>(self, context: FaultContext, mut targets: impl Iterator<Item = FaultTarget<'a>>) -> bool {
        match self {
            Self::Step(step) => step == context.step,
            Self::Over(tokens) => context.tokens > tokens,
            Self::Blocks(blocks) => context.blocks > blocks,
            Self::Token { token, answered } => {
                targets.any(|target| target.answered >= answered && target.prompt.contains(&token))
            }
        }
    }
}

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// The forward pass of a step, with an error.
    Launch,
    /// The forward pass, out of memory.
    Memory,
    /// The forward pass, with a panic.
    LaunchPanic,
    /// The sampling of a step.
    Draw,
    /// The evaluation of a step, when it is read.
    Read,
    /// The loop itself, with a panic.
    Loop,
    /// The process, with an abort.
    Abort,
    /// The process, which hangs.
    Hang,
    /// The logits of one row.
    NotANumber,
    /// The sampling of one row.
    Sampler,
    /// Writing a block to disk. Its steps count the writes.
    DiskFull,
    /// The thread that reads from disk, with a panic. Its steps count the blocks read.
    DiskReader,
    /// The process stops itself while it loads its model, until it gets SIGCONT. Its steps count the reports of progress.
    LoadStop,
}

/// Where a fault happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Site {
    Step,
    Row(RowFault),
    Disk,
    Load,
}

/// What fails of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowFault {
    /// Its logits are not numbers.
    NotANumber,
    /// Its sampling yields no token.
    Sampler,
}

impl FaultPlan {
    /// True without faults.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The fault of a whole step with these sequences.
    pub(crate) fn of_step<'a>(
        &self,
        context: FaultContext,
        targets: impl Iterator<Item = FaultTarget<'a>> + Clone,
    ) -> Option<Kind> {
        let whole = self.0.iter().filter(|fault| fault.what.site() == Site::Step);
        whole.filter(|fault| fault.when.applies(context, targets.clone())).map(|fault| fault.what).next()
    }

    /// True if the write or read of this number fails in this way.
    pub(crate) fn of_disk(&self, what: Kind, number: u64) -> bool {
        self.0.contains(&Fault { what, when: When::Step(number) })
    }

    /// Stops the process at the report of this number, where that is planned.
    pub(crate) fn of_load(&self, report: u64) {
        if self.0.contains(&Fault { what: Kind::LoadStop, when: When::Step(report) }) {
            // It cannot fail for the own process.
            let _sent = kill_process(getpid(), Signal::STOP);
        }
    }

    /// The fault of a sequence's row in a step.
    pub(crate) fn of_row(&self, context: FaultContext, target: FaultTarget<'_>) -> Option<RowFault> {
        let mut applying = self.0.iter().filter(|fault| fault.when.applies(context, std::iter::once(target)));
        applying.find_map(|fault| match fault.what.site() {
            Site::Row(fault) => Some(fault),
            Site::Step | Site::Disk | Site::Load => None,
        })
    }
}

impl Kind {
    fn site(self) -> Site {
        match self {
            Self::NotANumber => Site::Row(RowFault::NotANumber),
            Self::Sampler => Site::Row(RowFault::Sampler),
            Self::DiskFull | Self::DiskReader => Site::Disk,
            Self::LoadStop => Site::Load,
            Self::Launch
            | Self::Memory
            | Self::LaunchPanic
            | Self::Draw
            | Self::Read
            | Self::Loop
            | Self::Abort
            | Self::Hang => Site::Step,
        }
    }
}

const NAMES: &[(&str, Kind)] = &[
    ("launch", Kind::Launch),
    ("memory", Kind::Memory),
    ("launch-panic", Kind::LaunchPanic),
    ("draw", Kind::Draw),
    ("read", Kind::Read),
    ("turn", Kind::Loop),
    ("abort", Kind::Abort),
    ("hang", Kind::Hang),
    ("nan", Kind::NotANumber),
    ("sampler", Kind::Sampler),
    ("disk-full", Kind::DiskFull),
    ("disk-reader", Kind::DiskReader),
    ("load-stop", Kind::LoadStop),
];

impl FromStr for FaultPlan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').filter(|part| !part.is_empty()).map(fault).collect::<Result<_, _>>().map(Self)
    }
}

fn fault(text: &str) -> Result<Fault, String> {
    let wanted = || {
        format!("a fault is KIND@step=N, KIND@over=N, KIND@blocks=N or KIND@token=N[/ANSWERED], not `{text}`")
    };
    let (kind, when) = text.split_once('@').ok_or_else(wanted)?;
    let (_, what) = NAMES.iter().find(|(name, _)| *name == kind).ok_or_else(wanted)?;
    let when = match when.split_once('=').ok_or_else(wanted)? {
        ("step", number) => When::Step(number.parse().map_err(|_| wanted())?),
        ("over", number) => When::Over(number.parse().map_err(|_| wanted())?),
        ("blocks", number) => When::Blocks(number.parse().map_err(|_| wanted())?),
        ("token", numbers) => {
            let (token, answered) = numbers.split_once('/').unwrap_or((numbers, "0"));
            let token = token.parse().map_err(|_| wanted())?;
            When::Token { token, answered: answered.parse().map_err(|_| wanted())? }
        }
        _ => return Err(wanted()),
    };
    Ok(Fault { what: *what, when })
}

/// Panics without a message on stderr.
pub(crate) fn injected_panic() -> ! {
    std::panic::resume_unwind(Box::new("an injected panic"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_apply_where_the_plan_says() {
        let plan: FaultPlan =
            "read@step=3,abort@token=7,nan@token=9/2,draw@over=40,memory@blocks=8".parse().unwrap();
        let target = |prompt, answered| FaultTarget { prompt, answered };
        let targets = [target(&[1, 2], 5), target(&[7], 0)];
        let context = |step, tokens| FaultContext { step, tokens, blocks: 8 };
        let large = FaultContext { blocks: 9, ..context(0, 1) };
        assert_eq!(plan.of_step(large, std::iter::empty()), Some(Kind::Memory));
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
