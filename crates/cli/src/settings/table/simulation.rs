//! Settings of `bench sim`.

use super::{SIM, choose};
use crate::settings::{Kind, Scope, Setting, choice};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "profile",
        short: None,
        kind: Kind::Text("PROFILE"),
        default: "m5-max-70b",
        section: "Simulation",
        commands: SIM,
        scope: Scope::FlagOnly,
        help: "Cost model of the simulated machine: `m5-max-70b` (published throughput of a 70B model in 4 bits), `laptop`, or a file with the response of a server's /v1/status.",
        set: |config, value| {
            config.sim.profile = value.text();
            Ok(())
        },
    },
    Setting {
        name: "workload",
        short: None,
        kind: Kind::Choice(&[
            choice("sharegpt", |config| config.sim.workload = "sharegpt".to_owned()),
            choice("agents", |config| config.sim.workload = "agents".to_owned()),
            choice("flood", |config| config.sim.workload = "flood".to_owned()),
            choice("bursts", |config| config.sim.workload = "bursts".to_owned()),
            choice("long", |config| config.sim.workload = "long".to_owned()),
            choice("random", |config| config.sim.workload = "random".to_owned()),
        ]),
        default: "sharegpt",
        section: "Simulation",
        commands: SIM,
        scope: Scope::FlagOnly,
        help: "Requests and their arrival times. `random` is the load of `bench serve`, with --input-len and --output-len in tokens.",
        set: choose,
    },
    Setting {
        name: "trace",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Simulation",
        commands: SIM,
        scope: Scope::FlagOnly,
        help: "Trace to simulate instead: JSON lines with `at` in microseconds, `prompt` and `max_new_tokens` in tokens; optionally `answer`, `priority`, `tenant`.",
        set: |config, value| {
            config.sim.trace = Some(value.text().into());
            Ok(())
        },
    },
];
