//! Settings of `perplexity`.

use super::{MAX, PERPLEXITY};
use crate::settings::{Kind, Scope, Setting};

/// In the order of `--help`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "data-path",
        short: None,
        kind: Kind::Text("FILE"),
        default: "",
        section: "Perplexity",
        commands: PERPLEXITY,
        scope: Scope::FlagOnly,
        help: "Text to predict: a text file, lines of JSON with a `text` each (`.jsonl`), or a list of token ids (`.json`).",
        set: |config, value| {
            config.perplexity.data = Some(value.text().into());
            Ok(())
        },
    },
    Setting {
        name: "sequence-length",
        short: None,
        kind: Kind::Count(2, MAX),
        default: "512",
        section: "Perplexity",
        commands: PERPLEXITY,
        scope: Scope::FlagOnly,
        help: "Tokens of a sequence; each is computed on its own.",
        set: |config, value| {
            config.perplexity.sequence_length = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "num-samples",
        short: None,
        kind: Kind::Count(0, MAX),
        default: "256",
        section: "Perplexity",
        commands: PERPLEXITY,
        scope: Scope::FlagOnly,
        help: "Most sequences; 0 is all.",
        set: |config, value| {
            config.perplexity.samples = Some(value.count() as usize).filter(|count| *count > 0);
            Ok(())
        },
    },
    Setting {
        name: "batch-size",
        short: None,
        kind: Kind::Count(1, 1024),
        default: "1",
        section: "Perplexity",
        commands: PERPLEXITY,
        scope: Scope::FlagOnly,
        help: "Sequences computed at once. Memory grows with it: a float for each token of the vocabulary at each position.",
        set: |config, value| {
            config.perplexity.batch = value.count() as usize;
            Ok(())
        },
    },
    Setting {
        name: "reference",
        short: None,
        kind: Kind::Text("MODEL"),
        default: "",
        section: "Perplexity",
        commands: PERPLEXITY,
        scope: Scope::FlagOnly,
        help: "Model to compare predictions with: divergence, and how often both agree on the likeliest token. Default: the model itself, where it is compared with quantizations of it.",
        set: |config, value| {
            config.perplexity.reference = Some(value.text());
            Ok(())
        },
    },
    Setting {
        name: "quantizations",
        short: None,
        kind: Kind::List("NAME"),
        default: "",
        section: "Perplexity",
        commands: PERPLEXITY,
        scope: Scope::FlagOnly,
        help: "Quantizations of each model to score beside it, in memory: bits (`4`), modes (`mxfp4`) and recipes (`mixed_3_6`), with commas between them.",
        set: |config, value| {
            config.perplexity.quantizations = value.list();
            Ok(())
        },
    },
];
