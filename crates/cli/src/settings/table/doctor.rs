//! Settings of `doctor`.

use omnibus_engine::{MACS, Mac};

use super::{DOCTOR, MAX, PLANNED};
use crate::settings::{DoctorSubject, Kind, Scope, Setting};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "kernels",
        short: None,
        kind: Kind::Switch,
        default: "",
        section: "Kernels",
        commands: DOCTOR,
        scope: Scope::FlagOnly,
        help: "Compare our GPU kernels with MLX's operations: errors, times and the share of the read rate.",
        set: |config, value| {
            if value.is_on() {
                config.doctor.subject = DoctorSubject::Kernels;
            }
            Ok(())
        },
    },
    Setting {
        name: "report",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Report",
        commands: DOCTOR,
        scope: Scope::FlagOnly,
        help: "Write a file to attach to an issue: machine, kernels, times of steps of the embedded model and of a preset, and a soak.",
        set: |config, value| {
            config.doctor.subject = DoctorSubject::Report(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "soak",
        short: None,
        kind: Kind::Number(0.0, 86_400.0),
        default: "300",
        section: "Report",
        commands: DOCTOR,
        scope: Scope::FlagOnly,
        help: "Seconds for which two streams churn the caches in --report.",
        set: |config, value| {
            config.doctor.soak_s = value.number();
            Ok(())
        },
    },
    Setting {
        name: "plan",
        short: None,
        kind: Kind::Text("CONFIG"),
        default: "",
        section: "Kernels",
        commands: DOCTOR,
        scope: Scope::FlagOnly,
        help: "List what a decode step of a model launches on an NVIDIA GPU, or on the Mac of --as, without a GPU or weights: a config.json, its directory, or a preset such as qwen3-0.6b.",
        set: |config, value| {
            config.doctor.subject = DoctorSubject::Plan(value.text());
            Ok(())
        },
    },
    Setting {
        name: "as",
        short: None,
        kind: Kind::Text("MAC"),
        default: "",
        section: "Kernels",
        commands: PLANNED,
        scope: Scope::FlagOnly,
        help: "Print the memory plan that a Mac such as m4-16gb would have for the model of `plan` or --plan, or for some presets in 4 bits. With --plan, its kernels too.",
        set: |config, value| {
            let name = value.text();
            config.doctor.mac = Some(Mac::named(&name).ok_or_else(|| {
                let names: Vec<&str> = MACS.iter().map(|mac| mac.name).collect();
                format!("no Mac {name}; there are {}", names.join(", "))
            })?);
            Ok(())
        },
    },
    Setting {
        name: "rows",
        short: None,
        kind: Kind::Count(1, MAX),
        default: "",
        section: "Kernels",
        commands: DOCTOR,
        scope: Scope::FlagOnly,
        help: "Sequences that decode in the step of --plan. Default: 1.",
        set: |config, value| {
            config.doctor.rows = Some(value.count() as usize);
            Ok(())
        },
    },
];
