//! What `bench sim` plays.

use super::SIM;
use crate::settings::{Kind, Reach, Setting};

/// In the order in which they are shown.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "profile",
        short: None,
        kind: Kind::Text("PROFILE"),
        default: "m5-max-70b",
        section: "Simulation",
        commands: SIM,
        reach: Reach::Flag,
        help: "How long steps take: `m5-max-70b` (published throughput of a 70B model in 4 bits), `laptop`, or a file with the answer of a server's /v1/status.",
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
        reach: Reach::Flag,
        help: "What is asked, and when. `random` is what `bench serve` sends: --input-len and --output-len are tokens.",
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
        reach: Reach::Flag,
        help: "File with a request a line to play instead, as JSON: `at` in microseconds, `prompt` and `max_new_tokens` in tokens; also `answer`, `priority`, `key`.",
        set: |config, value| {
            config.sim.trace = Some(value.text().into());
            Ok(())
        },
    },
];
