//! Settings of `batch`.

use super::BATCH;
use crate::settings::{Kind, Scope, Setting};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "input",
        short: Some('i'),
        kind: Kind::Text("FILE"),
        default: "",
        section: "Batch",
        commands: BATCH,
        scope: Scope::FlagOnly,
        help: "Requests, one JSON object a line: `custom_id`, `url`, `body`, as in OpenAI's batch files.",
        set: |config, value| {
            config.batch.input = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "output",
        short: Some('o'),
        kind: Kind::Text("FILE"),
        default: "",
        section: "Batch",
        commands: BATCH,
        scope: Scope::FlagOnly,
        help: "Results, one a line as they come. What is there already is not requested again.",
        set: |config, value| {
            config.batch.output = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "max-inflight",
        short: None,
        kind: Kind::Count(1, 65_536),
        default: "64",
        section: "Batch",
        commands: BATCH,
        scope: Scope::FlagOnly,
        help: "Requests at a time.",
        set: |config, value| {
            config.batch.max_inflight = value.count() as usize;
            Ok(())
        },
    },
];
