//! Settings of `bench sim`.

use super::SIM;
use crate::settings::{Kind, Scope, Setting};

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
        kind: Kind::Choice(&["sharegpt", "agents", "flood", "bursts", "long", "random"]),
        default: "sharegpt",
        section: "Simulation",
        commands: SIM,
        scope: Scope::FlagOnly,
        help: "Requests and their arrival times. `random` is the load of `bench serve`, with --input-len and --output-len in tokens.",
        set: |config, value| {
            config.sim.workload = value.text();
            Ok(())
        },
    },
    Setting {
        name: "trace",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Simulation",
        commands: SIM,
        scope: Scope::FlagOnly,
        help: "Trace to simulate instead: JSON lines with `at` in microseconds, `prompt` and `max_new_tokens` in tokens; optionally `answer`, `priority`, `key`.",
        set: |config, value| {
            config.sim.trace = Some(value.text().into());
            Ok(())
        },
    },
];
