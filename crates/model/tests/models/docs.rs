//! docs/models.md: the supported architectures, with the blocks and caches of their fixtures.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use expect_test::expect_file;
use omnibus_model::encoders::{AUDIO_ENCODERS, ENCODERS};
use omnibus_model::families::{self, FAMILIES, Family};
use serde_json::{Map, Value};

use crate::golden::embedders::config_of;
use crate::golden::fixtures;

const HEAD: &str = "\
# Architectures

<!-- Made by `crates/model/tests/models/docs.rs`: `cargo xtask docs` writes it. -->

The architecture of a model is the `model_type` in its `config.json`. A config with a field that is not read is refused
with the field's name, so that a variant is never served wrong. Weights of each may be packed in every way of
[checkpoints](checkpoints.md).

Blocks and caches are those of the architecture's golden fixtures. A fixture has the tensors as mlx-lm converts them, or as
they are published; some are packed. [Logits beside the reference's](performance.md#logits-beside-the-references) says what
is compared.

| architecture | what it is | takes | blocks | caches | fixtures |
| --- | --- | --- | --- | --- | --- |
";

const EMBEDDERS: &str = "tests/embedders";

/// What the fixtures of a type show.
#[derive(Default)]
struct Shown {
    blocks: Vec<&'static str>,
    caches: BTreeSet<&'static str>,
    layouts: BTreeMap<&'static str, usize>,
}

impl Shown {
    fn add(&mut self, (name, directory): (&str, &str), config: &Map<String, Value>) {
        let is_embedder = directory == EMBEDDERS;
        let blueprint = families::read(config).unwrap();
        let layout = match name {
            _ if name.contains(".q-") => "packed",
            _ if name.ends_with(".hf") || is_embedder => "published",
            _ => "converted",
        };
        *self.layouts.entry(layout).or_default() += 1;
        for block in blueprint.blocks() {
            if !self.blocks.contains(&block) {
                self.blocks.push(block);
            }
        }
        self.caches.extend(blueprint.caches());
    }

    fn layouts(&self) -> String {
        self.layouts.iter().map(|(layout, count)| format!("{count} {layout}")).collect::<Vec<_>>().join(", ")
    }
}

fn shown() -> BTreeMap<String, Shown> {
    let mut by_type: BTreeMap<String, Shown> = BTreeMap::new();
    for directory in ["tests/fixtures", "tests/pictures", "tests/speech", EMBEDDERS] {
        for path in fixtures(&Path::new(env!("CARGO_MANIFEST_DIR")).join(directory), &[]).unwrap() {
            let config = config_of(&path);
            let model_type = config["model_type"].as_str().unwrap().to_owned();
            let name = path.file_name().unwrap().to_str().unwrap();
            by_type.entry(model_type).or_default().add((name, directory), &config);
        }
    }
    by_type
}

fn row(family: &Family, shown: &Shown) -> String {
    let name = family.model_type;
    let sees = ENCODERS.iter().any(|encoder| encoder.model_type == name);
    let hears = AUDIO_ENCODERS.iter().any(|encoder| encoder.model_type == name);
    let takes = [("text", true), ("image", sees), ("audio", hears)];
    let takes: Vec<&str> = takes.into_iter().filter_map(|(input, takes)| takes.then_some(input)).collect();
    let cells = [
        format!("`{name}`"),
        family.about.replace('|', "\\|"),
        takes.join(", "),
        shown.blocks.join(", "),
        shown.caches.iter().copied().collect::<Vec<_>>().join(", "),
        shown.layouts(),
    ];
    format!("| {} |\n", cells.join(" | "))
}

#[test]
fn docs_of_the_architectures_are_current() {
    let shown = shown();
    let rows: String = FAMILIES.iter().map(|family| row(family, &shown[family.model_type])).collect();
    expect_file!["../../../../docs/models.md"].assert_eq(&format!("{HEAD}{rows}"));
}
