//! Mutated model folders: each loads, or fails with one line; none panics. In a test process of its own, because the
//! panic hook that counts is the process'.
//!
//! `OMNIBUS_FUZZ_MODELS` sets how many, `OMNIBUS_FUZZ_FIRST` the first case. A case that ends the process leaves its
//! folder behind.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::fixture;
use omnibus_engine::{ModelSource, Settings, start};
use omnibus_testing::mutate::{self, Rng};
use serde_json::{Value, json};

/// Panics that nothing caught.
static PANICS: AtomicUsize = AtomicUsize::new(0);

const FILES: &[&str] = &[
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "chat_template.jinja",
];

/// A small valid model with all files that are mutated.
fn model() -> PathBuf {
    let folder = fixture::directory("llama", "mutated");
    let mini = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/models/omnibus-mini");
    for file in ["tokenizer_config.json", "generation_config.json"] {
        std::fs::copy(mini.join(file), folder.join(file)).unwrap();
    }
    let weights = std::fs::read(folder.join("model.safetensors")).unwrap();
    let (header, _) = header(&weights);
    let names = header.as_object().unwrap().keys().filter(|name| *name != "__metadata__");
    let map: Value = names.map(|name| (name.clone(), json!("model.safetensors"))).collect();
    let index = json!({"metadata": {"total_size": weights.len()}, "weight_map": map});
    std::fs::write(folder.join("model.safetensors.index.json"), index.to_string()).unwrap();
    let template = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}";
    std::fs::write(folder.join("chat_template.jinja"), template).unwrap();
    folder
}

/// The header of a safetensors file, and the tensors' bytes.
fn header(file: &[u8]) -> (Value, &[u8]) {
    let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    (serde_json::from_slice(&file[8..8 + length]).unwrap(), &file[8 + length..])
}

fn mutated(rng: &mut Rng, name: &str, file: &[u8]) -> Vec<u8> {
    let as_bytes = rng.below(4) == 0;
    if name == "model.safetensors" && !as_bytes {
        let (mut json, tensors) = header(file);
        mutate::json(rng, &mut json);
        let json = json.to_string();
        return [&(json.len() as u64).to_le_bytes(), json.as_bytes(), tensors].concat();
    }
    let mut bytes = file.to_vec();
    match serde_json::from_slice::<Value>(file) {
        Ok(mut json) if !as_bytes => {
            for _ in 0..=rng.below(2) {
                mutate::json(rng, &mut json);
            }
            bytes = json.to_string().into_bytes();
        }
        _ => mutate::bytes(rng, &mut bytes),
    }
    bytes
}

/// Loads the folder. Fails with what is wrong with the error.
fn load(folder: &Path) -> Result<bool, String> {
    let source = ModelSource::Directory { path: folder.to_owned(), served_names: Vec::new() };
    let settings = Settings { kv_cache_memory: Some(1 << 20), ..Settings::default() };
    let started = start(vec![source], settings);
    let panics = PANICS.swap(0, Ordering::Relaxed);
    let error = match started {
        Ok(_) => return if panics == 0 { Ok(true) } else { Err("loads, with a panic".to_owned()) },
        Err(error) => error.to_string(),
    };
    let is_clear = panics == 0 && !error.is_empty() && error.lines().count() == 1;
    if is_clear { Ok(false) } else { Err(format!("{panics} panics: {error}")) }
}

#[test]
fn mutated_models_load_or_fail_in_one_line() {
    std::panic::set_hook(Box::new(|info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        println!("{info}");
    }));
    let model = model();
    assert_eq!(load(&model), Ok(true), "the model without mutations");
    let (mut loaded, mut wrong) = (0, Vec::new());
    let cases = mutate::cases("OMNIBUS_FUZZ_MODELS", 200);
    for case in cases.clone() {
        let rng = &mut Rng::new(case);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mutated-{case}"));
        std::fs::create_dir_all(&folder).unwrap();
        let target = *rng.pick(FILES);
        for file in FILES {
            let bytes = std::fs::read(model.join(file)).unwrap();
            let bytes = if *file == target { mutated(rng, file, &bytes) } else { bytes };
            std::fs::write(folder.join(file), bytes).unwrap();
        }
        match load(&folder) {
            Ok(loads) => loaded += usize::from(loads),
            Err(why) => wrong.push(format!("case {case}, {target}: {why}")),
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
    drop(std::panic::take_hook());
    let count = cases.count();
    println!("{count} mutated models, {loaded} load");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}
