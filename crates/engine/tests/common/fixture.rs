//! A golden fixture behind a real engine.
#![allow(dead_code)]

#[path = "../../../model/tests/models/golden/generate.rs"]
mod generate;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use omnibus_engine::{
    AsyncScheduling, Handle, Input, ModelSource, Request, Sampling, Settings, StartError, start,
};
use serde_json::Value;

/// The fixtures' vocabulary.
const VOCAB: usize = 96;
/// The tokens of the embedded model's tokenizer, and more.
const ALL_TOKENS: usize = 2048;

/// A golden fixture as a model directory, with the embedded model's tokenizer.
pub fn directory(fixture: &str, test: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    from_recipe(&here.join("../model/tests/fixtures").join(fixture), &format!("{fixture}-{test}"))
}

/// The target of a fixture with a draft head, and the head's directory if it has one of its own.
pub fn with_draft_head(name: &str) -> (PathBuf, Option<PathBuf>) {
    let at = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/draft-heads").join(name);
    match at.join("draft").is_dir() {
        true => {
            let parts =
                ["target", "draft"].map(|part| from_recipe(&at.join(part), &format!("{name}-{part}")));
            let [target, draft] = parts;
            (target, Some(draft))
        }
        false => (from_recipe(&at, name), None),
    }
}

/// A fixture likewise, with random weights for every token of the embedded model's tokenizer, and its chat template.
pub fn with_draft_head_and_all_tokens(name: &str, test: &str) -> (PathBuf, Option<PathBuf>) {
    let at = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/draft-heads").join(name);
    let all_tokens = |fixture: &Path, part: &str| {
        let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("all-tokens-{name}-{part}-{test}"));
        let json = |file: &str| -> Value {
            serde_json::from_slice(&std::fs::read(fixture.join(file)).unwrap()).unwrap()
        };
        let (mut recipe, mut config) = (json("tensors.json"), json("config.json"));
        for row in recipe["tensors"].as_array_mut().unwrap() {
            let is_table =
                ["embed_tokens.weight", "embeddings.weight", "lm_head.weight", "shared_head.head.weight"]
                    .iter()
                    .any(|table| row[0].as_str().unwrap().ends_with(table));
            if is_table && row[1][0] == VOCAB {
                row[1][0] = ALL_TOKENS.into();
            }
        }
        widen(&mut config);
        config["eos_token_id"] = serde_json::json!([2041, 2039]);
        write_recipe(fixture, &recipe, &to);
        std::fs::write(to.join("config.json"), config.to_string()).unwrap();
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        for file in ["tokenizer.json", "tokenizer_config.json"] {
            std::fs::copy(here.join("../cli/models/omnibus-mini").join(file), to.join(file)).unwrap();
        }
        to
    };
    match at.join("draft").is_dir() {
        true => {
            let [target, draft] = ["target", "draft"].map(|part| all_tokens(&at.join(part), part));
            (target, Some(draft))
        }
        false => (all_tokens(&at, "whole"), None),
    }
}

/// Gives a config all tokens, and a context for conversations.
fn widen(config: &mut Value) {
    for (field, value) in config.as_object_mut().unwrap() {
        match field.as_str() {
            "vocab_size" if *value == VOCAB => *value = ALL_TOKENS.into(),
            "max_position_embeddings" => *value = 2048.into(),
            _ if value.is_object() => widen(value),
            _ => {}
        }
    }
}

/// A directory with the weights of a recipe, and the embedded model's tokenizer.
fn from_recipe(fixture: &Path, name: &str) -> PathBuf {
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let recipe: Value =
        serde_json::from_slice(&std::fs::read(fixture.join("tensors.json")).unwrap()).unwrap();
    write_recipe(fixture, &recipe, &to);
    std::fs::copy(fixture.join("config.json"), to.join("config.json")).unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tokenizer = here.join("../cli/models/omnibus-mini/tokenizer.json");
    std::fs::copy(tokenizer, to.join("tokenizer.json")).unwrap();
    to
}

/// Writes the weights of a recipe, those that its fixture stores among them.
fn write_recipe(fixture: &Path, recipe: &Value, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    let mut weights = generate::weights(recipe).unwrap();
    if let Some(stored) = recipe["stored"].as_str() {
        weights.extend(mlx::io::load_safetensors(fixture.join(stored)).unwrap());
    }
    let named = weights.iter().map(|(name, array)| (name.as_str(), array));
    mlx::io::save_safetensors(to.join("model.safetensors"), named, []).unwrap();
}

/// An embedder, a reranker or a classifier as published: its files, with the weights of each folder's recipe. It is written
/// once for all tests of a program, which run at the same time.
pub fn embedder(name: &str) -> PathBuf {
    static WRITTEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("embedders").join(name);
    let mut written = WRITTEN.lock().unwrap();
    if !written.contains(name) {
        write_published(&omnibus_testing::reference::embedders().join(name), &to);
        written.insert(name.to_owned());
    }
    to
}

/// An embedder with further files.
pub fn embedder_with(name: &str, files: &[(&str, String)]) -> PathBuf {
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("embedders").join(format!("{name}-with-files"));
    write_published(&omnibus_testing::reference::embedders().join(name), &to);
    for (file, content) in files {
        std::fs::create_dir_all(to.join(file).parent().unwrap()).unwrap();
        std::fs::write(to.join(file), content).unwrap();
    }
    to
}

fn write_published(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => write_published(&path, &target),
            false => _ = std::fs::copy(&path, target).unwrap(),
        }
    }
    let Ok(recipe) = std::fs::read(from.join("tensors.json")) else { return };
    let mut weights = generate::weights(&serde_json::from_slice(&recipe).unwrap()).unwrap();
    let more = from.join("extra.safetensors");
    if more.is_file() {
        weights.extend(mlx::io::load_safetensors(more).unwrap());
    }
    let named = weights.iter().map(|(name, array)| (name.as_str(), array));
    mlx::io::save_safetensors(to.join("model.safetensors"), named, []).unwrap();
    if from.ends_with("m3") {
        // As published: beside the checkpoint, one file of torch for each layer.
        for layer in ["sparse_linear", "colbert_linear"] {
            let tensor = |part: &str| weights[&format!("{layer}.{part}")].to_vec::<f32>().unwrap();
            let file = torch_archive(layer, [&tensor("weight"), &tensor("bias")]);
            std::fs::write(to.parent().unwrap().join(format!("{layer}.pt")), file).unwrap();
        }
    }
}

/// A file as `torch.save` writes one of a layer's state: stored entries, of which the second and the third are tensors.
fn torch_archive(name: &str, tensors: [&[f32]; 2]) -> Vec<u8> {
    let bytes = |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let pickle = b"\x80\x02ccollections\nOrderedDict\nctorch\nFloatStorage\n.".to_vec();
    let entries = [("data.pkl", pickle), ("data/0", bytes(tensors[0])), ("data/1", bytes(tensors[1]))];
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (entry, bytes) in &entries {
        let (path, at) = (format!("{name}/{entry}"), archive.len() as u32);
        let [length, path_length] = [bytes.len() as u32, path.len() as u32];
        let sizes = [[0; 4], length.to_le_bytes(), length.to_le_bytes()].concat();
        // Version, flags, method, time and date.
        let head = [20u16, 0, 0, 0, 0].map(u16::to_le_bytes).concat();
        let lengths = path_length.to_le_bytes();
        archive.extend([b"PK\x03\x04", &head[..], &sizes, &lengths, path.as_bytes(), bytes].concat());
        let places = [&[0u8; 10][..], &at.to_le_bytes()].concat();
        let made_by = 20u16.to_le_bytes();
        directory.extend(
            [b"PK\x01\x02", &made_by[..], &head, &sizes, &lengths, &places, path.as_bytes()].concat(),
        );
    }
    let (at, length) = (archive.len() as u32, directory.len() as u32);
    archive.extend(directory);
    let counts = [0u16, 0, 3, 3].map(u16::to_le_bytes).concat();
    archive.extend([b"PK\x05\x06", &counts[..], &length.to_le_bytes(), &at.to_le_bytes(), &[0, 0]].concat());
    archive
}

/// The small model of a golden fixture with random weights for every token of the embedded model's tokenizer.
pub fn with_full_vocabulary(test: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("full-vocabulary-{test}"));
    let fixture = here.join("../model/tests/fixtures/qwen3");
    std::fs::create_dir_all(&to).unwrap();
    let json = |file: &str| -> Value {
        serde_json::from_slice(&std::fs::read(fixture.join(file)).unwrap()).unwrap()
    };
    let (mut recipe, mut config) = (json("tensors.json"), json("config.json"));
    let embedding = recipe["tensors"].as_array_mut().unwrap();
    let embedding = embedding.iter_mut().find(|row| row[0] == "model.embed_tokens.weight").unwrap();
    embedding[1][0] = 2048.into();
    config["vocab_size"] = 2048.into();
    config["max_position_embeddings"] = 2048.into();
    config["eos_token_id"] = serde_json::json!([2041, 2039]);
    let weights = generate::weights(&recipe).unwrap();
    let named = weights.iter().map(|(name, array)| (name.as_str(), array));
    mlx::io::save_safetensors(to.join("model.safetensors"), named, []).unwrap();
    std::fs::write(to.join("config.json"), config.to_string()).unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(here.join("../cli/models/omnibus-mini").join(file), to.join(file)).unwrap();
    }
    to
}

pub fn engine(directory: &Path, settings: Settings) -> Handle {
    try_engine(directory, settings).expect("the engine starts")
}

/// With async scheduling, which the server's tests do not use.
pub fn try_engine(directory: &Path, settings: Settings) -> Result<Handle, StartError> {
    let settings = Settings { async_scheduling: AsyncScheduling::On, ..settings };
    let path = directory.to_owned();
    start(vec![ModelSource::Directory { path, served_names: Vec::new() }], settings)
}

pub fn request(i: usize, prompt: usize, tokens: usize) -> Request {
    let ids = (0..prompt).map(|at| (1 + (at * 7 + i * 31) % (VOCAB - 1)) as u32).collect();
    let mut request = Request::new(format!("r{i}"), Input::Tokens(ids));
    request.sampling = Sampling::greedy();
    request.max_new_tokens = Some(tokens);
    request.logprobs = Some(0);
    request.stop.ignore_eos = true;
    request
}
