//! Settings of the samplers beside temperature and the common filters.

use omnibus_engine::{SAMPLERS, SamplerKind};

use super::{MAX, SAMPLING};
use crate::settings::{Kind, Scope, Setting, Value};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "dynatemp-range",
        short: None,
        kind: Kind::Number(0.0, 100.0),
        default: "0",
        section: "Generation",
        commands: SAMPLING,
        scope: Scope::Everywhere,
        help: "Dynamic temperature: how far it moves around --temp with the entropy of the next token.",
        set: |config, value| {
            config.prompt.sampling.dynatemp_range = value.number() as f32;
            Ok(())
        },
    },
    Setting {
        name: "dynatemp-exponent",
        short: None,
        kind: Kind::Number(0.0, 100.0),
        default: "1",
        section: "Generation",
        commands: SAMPLING,
        scope: Scope::Everywhere,
        help: "The power of the entropy that moves the dynamic temperature.",
        set: |config, value| {
            config.prompt.sampling.dynatemp_exponent = value.number() as f32;
            Ok(())
        },
    },
    Setting {
        name: "top-n-sigma",
        short: None,
        kind: Kind::Number(-1.0, 100.0),
        default: "-1",
        section: "Generation",
        commands: SAMPLING,
        scope: Scope::Everywhere,
        help: "Keep tokens whose logits are within so many standard deviations of the largest. At most 0 keeps all.",
        set: |config, value| {
            config.prompt.sampling.top_n_sigma = value.number() as f32;
            Ok(())
        },
    },
    Setting {
        name: "typical-p",
        short: None,
        kind: Kind::Number(0.0, 1.0),
        default: "1",
        section: "Generation",
        commands: SAMPLING,
        scope: Scope::Everywhere,
        help: "Locally typical sampling: keep the smallest set of tokens nearest to the entropy above this probability.",
        set: |config, value| {
            config.prompt.sampling.typical_p = value.number() as f32;
            Ok(())
        },
    },
    Setting {
        name: "xtc-probability",
        short: None,
        kind: Kind::Number(0.0, 1.0),
        default: "0",
        section: "Generation",
        commands: SAMPLING,
        scope: Scope::Everywhere,
        help: "How often the most likely tokens are excluded.",
        set: |config, value| {
            config.prompt.sampling.xtc_probability = value.number() as f32;
            Ok(())
        },
    },
    Setting {
        name: "xtc-threshold",
        short: None,
        kind: Kind::Number(0.0, 0.5),
        default: "0.1",
        section: "Generation",
        commands: SAMPLING,
        scope: Scope::Everywhere,
        help: "Then, of the tokens above this probability all but the least likely one are.",
        set: |config, value| {
            config.prompt.sampling.xtc_threshold = value.number() as f32;
            Ok(())
        },
    },
    Setting {
        name: "dry-multiplier",
        short: None,
        kind: Kind::Number(0.0, 100.0),
        default: "0",
        section: "Generation",
        commands: SAMPLING,
        scope: Scope::Everywhere,
        help: "Penalty of tokens that would continue a repetition. 0 is none.",
        set: |config, value| {
            config.prompt.sampling.dry.multiplier = value.number() as f32;
            Ok(())
        },
    },
    Setting {
        name: "dry-base",
        short: None,
        kind: Kind::Number(1.0, 100.0),
        default: "1.75",
        section: "Generation",
        commands: SAMPLING,
        scope: Scope::Everywhere,
        help: "How the penalty of a repetition grows with each of its tokens.",
        set: |config, value| {
            config.prompt.sampling.dry.base = value.number() as f32;
            Ok(())
        },
    },
    Setting {
        name: "dry-allowed-length",
        short: None,
        kind: Kind::Count(0, MAX),
        default: "2",
        section: "Generation",
        commands: SAMPLING,
        scope: Scope::Everywhere,
        help: "Shorter repetitions have no penalty.",
        set: |config, value| {
            config.prompt.sampling.dry.allowed_length = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "dry-penalty-last-n",
        short: None,
        kind: Kind::Count(0, MAX),
        default: "",
        section: "Generation",
        commands: SAMPLING,
        scope: Scope::Everywhere,
        help: "How many of the last tokens are searched for repetitions. Default: all.",
        set: |config, value| {
            config.prompt.sampling.dry.context = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "dry-sequence-breaker",
        short: None,
        kind: Kind::List("TEXT"),
        default: "",
        section: "Generation",
        commands: SAMPLING,
        scope: Scope::Everywhere,
        help: "Text that no repetition contains; may be repeated. Default: a line break, `:`, `\"` and `*`.",
        set: |config, value| {
            config.prompt.sampling.dry.breakers = value.list();
            Ok(())
        },
    },
    Setting {
        name: "samplers",
        short: None,
        kind: Kind::List("SAMPLER"),
        default: "",
        section: "Generation",
        commands: SAMPLING,
        scope: Scope::Everywhere,
        help: "Sampler to apply, by its name in the API; repeated for several, in their order. Default: all of them in the order of docs/api.md.",
        set: |config, value| {
            config.prompt.sampling.order = samplers(value)?;
            Ok(())
        },
    },
];

fn samplers(value: &Value) -> Result<Vec<SamplerKind>, String> {
    let named = |name: &String| {
        SamplerKind::named(name).ok_or_else(|| {
            let known: Vec<&str> = SAMPLERS.iter().map(|row| row.name).collect();
            format!("there is no sampler `{name}`; there are {}", known.join(", "))
        })
    };
    value.list().iter().map(named).collect()
}
