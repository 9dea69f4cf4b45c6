//! Conversions of checkpoints: the weights, which the model crate writes, and the files beside them.

use std::fs;
use std::path::Path;

use omnibus_engine::{DeviceChoice, ModelSource, StartError, choose_device};
use omnibus_model::Source;

pub use mlx::{Dtype, QuantMode};
pub use omnibus_model::QuantizationChoice;
pub use omnibus_model::convert::{Conversion, Packing, Progress, Recipe, SHARD_BYTES, Summary};

use crate::perplexity::{Predictor, ScoredModel, TokenSequences};

/// Extensions of files that tokenizers and chat templates consist of.
const TEXT_FILES: &[&str] = &["json", "jsonl", "model", "tiktoken", "txt", "jinja"];
/// Files that a conversion writes itself.
const OWN_FILES: &[&str] = &["config.json", "model.safetensors.index.json", "hf_quant_config.json"];
const CARD: &str = "README.md";

/// A conversion of a model.
pub fn of_model(model: &ModelSource, to: &Path, packing: Packing, dtype: Option<Dtype>) -> Conversion {
    let source = model.files();
    Conversion { source, to: to.to_owned(), packing, inputs: None, dtype, shard_bytes: SHARD_BYTES }
}

/// The conversion of a model with an adapter merged into it.
pub fn with_adapter(conversion: Conversion, adapter: Option<&Path>) -> Conversion {
    Conversion { source: conversion.source.with_adapter(adapter), ..conversion }
}

/// The conversion with errors of packed weights counted by the inputs that they meet in a text. `batch` sequences are computed
/// in a pass.
pub fn calibrated(
    conversion: Conversion,
    text: &TokenSequences,
    batch: usize,
    device: DeviceChoice,
) -> Result<Conversion, StartError> {
    let floats = Conversion { packing: Packing::AsStored, ..conversion.clone() };
    let model = Predictor::load(&ScoredModel::Converted(floats), device)?;
    let inputs = model.input_squares(text, batch)?;
    Ok(Conversion { inputs: Some(inputs), ..conversion })
}

/// Writes a converted checkpoint: weights, config, the files of its tokenizer, and a model card. `base_model` is the id on
/// the hub of what is converted.
pub fn convert(
    conversion: &Conversion,
    device: DeviceChoice,
    base_model: Option<&str>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Summary, StartError> {
    choose_device(device)?;
    let summary = conversion.run(progress).map_err(StartError::new)?;
    copy_text_files(&conversion.source, &conversion.to)?;
    let readme = conversion.source.bytes(CARD).map_err(StartError::new)?.unwrap_or_default();
    write(&conversion.to.join(CARD), card(&String::from_utf8_lossy(&readme), base_model).as_bytes())?;
    Ok(summary)
}

fn copy_text_files(source: &Source, to: &Path) -> Result<(), StartError> {
    let is_text = |name: &str| {
        let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| TEXT_FILES.contains(&extension)) && !OWN_FILES.contains(&name)
    };
    match source {
        Source::Embedded(files) => {
            for (name, bytes) in files.iter().filter(|(name, _)| is_text(name)) {
                write(&to.join(name), bytes)?;
            }
        }
        Source::Random(_) => {}
        Source::Adapted { base, .. } => copy_text_files(base, to)?,
        Source::Directory(directory) => {
            let failed = |error| StartError::new(format!("{}: {error}", directory.display()));
            for entry in fs::read_dir(directory).map_err(failed)? {
                let path = entry.map_err(failed)?.path();
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                if path.is_file() && is_text(name) {
                    write(&to.join(name), &fs::read(&path).map_err(failed)?)?;
                }
            }
        }
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), StartError> {
    fs::write(path, bytes).map_err(|error| StartError::new(format!("{}: {error}", path.display())))
}

/// A model card: what the source's says about it (its license, its languages), and that this is a conversion.
fn card(source: &str, base_model: Option<&str>) -> String {
    const OURS: &[&str] = &["library_name", "pipeline_tag", "base_model", "tags"];
    let mut lines = source.lines();
    let has_front = lines.next() == Some("---");
    let front: Vec<&str> = lines.take_while(|line| has_front && *line != "---").collect();
    let (mut kept, mut tags, mut key) = (Vec::new(), Vec::new(), "");
    for line in front {
        if !line.starts_with([' ', '-', '#']) {
            key = line.split(':').next().unwrap_or_default();
        }
        match OURS.contains(&key) {
            true if key == "tags" => tags.extend(line.trim_start().strip_prefix("- ").map(str::to_owned)),
            true => {}
            false => kept.push(line.to_owned()),
        }
    }
    if !tags.iter().any(|tag| tag == "mlx") {
        tags.push("mlx".to_owned());
    }
    kept.push("library_name: mlx".to_owned());
    kept.push("pipeline_tag: text-generation".to_owned());
    kept.extend(base_model.map(|id| format!("base_model: {id}")));
    kept.push("tags:".to_owned());
    kept.extend(tags.iter().map(|tag| format!("- {tag}")));
    let origin = base_model.map_or(String::new(), |id| {
        format!(
            "\nConverted from [{id}](https://huggingface.co/{id}) with mlx-omnibus {}.\n",
            env!("CARGO_PKG_VERSION")
        )
    });
    format!("---\n{}\n---\n{origin}\n```sh\nomnibus serve DIRECTORY\n```\n", kept.join("\n"))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    #[test]
    fn a_card_keeps_what_the_source_says_and_names_it() {
        let source =
            "---\nlicense: mit\nlanguage:\n- en\nlibrary_name: transformers\ntags:\n- chat\n---\n# Tiny\n";
        expect![[r#"
            ---
            license: mit
            language:
            - en
            library_name: mlx
            pipeline_tag: text-generation
            base_model: org/tiny
            tags:
            - chat
            - mlx
            ---

            Converted from [org/tiny](https://huggingface.co/org/tiny) with mlx-omnibus 0.1.0.

            ```sh
            omnibus serve DIRECTORY
            ```
        "#]]
        .assert_eq(&super::card(source, Some("org/tiny")));
        assert!(super::card("# No front matter", None).starts_with("---\nlibrary_name: mlx\n"));
    }
}
