//! Settings of several processes for one model.

use super::SERVE;
use crate::settings::{Kind, Scope, Setting};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "tensor-parallel-size",
        short: None,
        kind: Kind::Count(1, 64),
        default: "1",
        section: "Engine",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Processes that compute the model together on this machine's CPU, a part of every layer each. A size that does not divide the model is refused with those that do.",
        set: |config, value| {
            config.engine.tensor_parallel_size = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "pipeline-parallel-size",
        short: None,
        kind: Kind::Count(1, 64),
        default: "1",
        section: "Engine",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Processes that compute the model together on this machine's CPU, some of the layers each. A size that the layers cannot be cut into is refused with those that they can.",
        set: |config, value| {
            config.engine.pipeline_parallel_size = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "hostfile",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Engine",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Machines that serve the model together on their CPUs, a process each, in the format of mlx.launch. The first is this one; the others are reached by ssh, and have omnibus and the model at the same path.",
        set: |config, value| {
            config.isolation.hostfile = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "data-parallel-size",
        short: None,
        kind: Kind::Count(1, 64),
        default: "1",
        section: "Engine",
        commands: SERVE,
        scope: Scope::Everywhere,
        help: "Replicas of the model on this machine's CPU, a process with the whole model each. Requests go where their prompt's beginning is cached, unless others have much less to do.",
        set: |config, value| {
            config.engine.data_parallel_size = value.count() as usize;
            Ok(())
        },
    },
];
