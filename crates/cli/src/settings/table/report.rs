//! Settings of `bench report` and `bench compare`.

use std::time::Duration;

use super::{COMPARE, REPORT};
use crate::settings::ablation::Ablation;
use crate::settings::load_kind::LoadKind;
use crate::settings::report::{names, peer};
use crate::settings::{Kind, Scope, Setting};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "peer",
        short: None,
        kind: Kind::List("NAME=URL"),
        default: "",
        section: "Report",
        commands: REPORT,
        scope: Scope::FlagOnly,
        help: "A running server that gets the same loads, by a name and its base URL, as in `mlx-lm=http://127.0.0.1:8080/v1`. May be repeated.",
        set: |config, value| {
            let peers = value.list();
            config.report.peers = peers.iter().map(|text| peer(text)).collect::<Result<_, _>>()?;
            Ok(())
        },
    },
    Setting {
        name: "ablate",
        short: None,
        kind: Kind::List("PART"),
        default: "",
        section: "Report",
        commands: REPORT,
        scope: Scope::FlagOnly,
        help: "Parts to switch off, each in a server of its own: prefix-cache, chunked-prefill, fair, spec, graphs, kernels, isolation or media-cache, with commas between them.",
        set: |config, value| {
            let names = names(&value.list());
            config.report.ablations =
                names.iter().map(|name| Ablation::named(name)).collect::<Result<_, _>>()?;
            Ok(())
        },
    },
    Setting {
        name: "loads",
        short: None,
        kind: Kind::List("LOAD"),
        default: "closed,poisson,bursts,agents,shared,long",
        section: "Report",
        commands: REPORT,
        scope: Scope::FlagOnly,
        help: "Loads: `closed` keeps --concurrency requests running, `poisson` and `bursts` send --request-rate requests a second, `agents`, `shared`, `long` and `media` (with a picture each) are closed loops of other prompts, and `streams1`, 2, 4, 8 and 16 keep so many requests running.",
        set: |config, value| {
            let names = names(&value.list());
            config.report.loads = names.iter().map(|name| LoadKind::named(name)).collect::<Result<_, _>>()?;
            Ok(())
        },
    },
    Setting {
        name: "rounds",
        short: None,
        kind: Kind::Count(1, 1000),
        default: "5",
        section: "Report",
        commands: REPORT,
        scope: Scope::FlagOnly,
        help: "How often each server gets each load. Confidence intervals are over these.",
        set: |config, value| {
            config.report.rounds = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "goodput-ttft-ms",
        short: None,
        kind: Kind::Number(0.1, 1e9),
        default: "1000",
        section: "Report",
        commands: REPORT,
        scope: Scope::FlagOnly,
        help: "Longest time to the first text of a request that counts for goodput.",
        set: |config, value| {
            config.report.targets.ttft = Duration::from_secs_f64(value.number() / 1e3);
            Ok(())
        },
    },
    Setting {
        name: "goodput-tpot-ms",
        short: None,
        kind: Kind::Number(0.1, 1e9),
        default: "100",
        section: "Report",
        commands: REPORT,
        scope: Scope::FlagOnly,
        help: "Longest mean time between tokens of a request that counts for goodput.",
        set: |config, value| {
            config.report.targets.tpot = Duration::from_secs_f64(value.number() / 1e3);
            Ok(())
        },
    },
    Setting {
        name: "out",
        short: None,
        kind: Kind::Text("DIR"),
        default: "report",
        section: "Report",
        commands: REPORT,
        scope: Scope::FlagOnly,
        help: "Folder that `report.html` and `report.json` are written to.",
        set: |config, value| {
            config.report.folder = value.text().into();
            Ok(())
        },
    },
    Setting {
        name: "fail-over",
        short: None,
        kind: Kind::Number(0.0, 1e6),
        default: "",
        section: "Report",
        commands: COMPARE,
        scope: Scope::FlagOnly,
        help: "Exit code 1 when a metric is worse by more than so many percent, even at the better end of its interval.",
        set: |config, value| {
            config.report.fail_over_percent = Some(value.number());
            Ok(())
        },
    },
];
