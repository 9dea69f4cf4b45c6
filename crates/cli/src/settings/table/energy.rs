//! Settings of energy.

use super::{ENERGY, ENERGY_BENCH};
use crate::settings::{Kind, Scope, Setting};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "streams",
        short: None,
        kind: Kind::Counts(1, 65536),
        default: "1,4,16,64",
        section: "Speculation benchmark",
        commands: ENERGY_BENCH,
        scope: Scope::FlagOnly,
        help: "Numbers of requests at once, each measured on its own.",
        set: |config, value| {
            config.speculation_bench.streams =
                value.counts().into_iter().map(|count| count as usize).collect();
            Ok(())
        },
    },
    Setting {
        name: "power-model",
        short: None,
        kind: Kind::Number(0.001, 1e6),
        default: "",
        section: "Energy",
        commands: ENERGY,
        scope: Scope::Everywhere,
        help: "Watts that the device is stated to use at any time: an estimate in the place of its energy sensor. Default: the sensor, if there is one.",
        set: |config, value| {
            config.engine.power_model_watts = Some(value.number());
            Ok(())
        },
    },
];
