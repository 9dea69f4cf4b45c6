//! A prompt restored from a prompt cache file continues as if it had been computed now. `tests/peers/prompt_cache.py`
//! compares the same files with mlx-lm.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

use crate::common::fixture::{directory, engine, request, try_engine};
use crate::common::{output_tokens, run, wait_for};
use omnibus_engine::{Input, PromptCacheFile, Settings, StartError};

fn settings(prompt_cache: Option<PromptCacheFile>) -> Settings {
    Settings { prompt_cache, kv_cache_memory: Some(32 << 20), ..Settings::default() }
}

fn tokens(input: &Input) -> Vec<u32> {
    let Input::Tokens(tokens) = input else { panic!("these requests are in tokens") };
    tokens.clone()
}

/// For each kind of layer group, and for lengths that few block sizes divide.
#[test]
fn a_written_prompt_is_continued_exactly() {
    for (name, length) in [("qwen3", 37), ("gemma3_text", 60), ("mamba2", 41), ("qwen3_next", 48)] {
        let model = directory(name, "prompt-file");
        let file = model.join("prompt.safetensors");
        let whole = request(0, length + 5, 12);
        let (prompt, rest) = {
            let tokens = tokens(&whole.input);
            (tokens[..length].to_vec(), tokens[length..].to_vec())
        };
        let with = |input, max_new_tokens| {
            let mut request = request(0, 1, max_new_tokens);
            request.input = Input::Tokens(input);
            request
        };
        let expected = run(&engine(&model, settings(None)), whole);
        let write = settings(Some(PromptCacheFile::Write(file.clone())));
        run(&engine(&model, write), with(prompt, 1));
        let read = engine(&model, settings(Some(PromptCacheFile::Read(file))));
        let output = wait_for(read.submit(with(rest, 12)).unwrap());
        assert_eq!(output.usage.cached_tokens, length, "{name}");
        let (expected, output) = (output_tokens(&expected), output_tokens(&output));
        let ids = |output_tokens: &[(u32, Option<f32>)]| {
            output_tokens.iter().map(|(id, _)| *id).collect::<Vec<_>>()
        };
        assert_eq!(ids(&output), ids(&expected), "{name}");
        let apart = output
            .iter()
            .zip(&expected)
            .map(|(output, expected)| (output.1.unwrap() - expected.1.unwrap()).abs());
        assert!(apart.fold(0.0, f32::max) < 1e-3, "{name}: {output:?} {expected:?}");
    }
}

fn refusal_of(model: &Path, file: PathBuf) -> StartError {
    try_engine(model, settings(Some(PromptCacheFile::Read(file)))).expect_err("refused")
}

#[test]
fn a_file_that_does_not_fit_is_refused_in_one_line() {
    let model = directory("qwen3", "prompt-refused");
    let refusal = |name: &str, bytes: &[u8]| -> StartError {
        let file: PathBuf = model.join(name);
        std::fs::write(&file, bytes).unwrap();
        refusal_of(&model, file)
    };
    let weights = std::fs::read(model.join("model.safetensors")).unwrap();
    for (name, bytes) in
        [("empty.st", &b""[..]), ("text.st", b"hello, this is not it"), ("weights.st", &weights)]
    {
        let error = refusal(name, bytes).to_string();
        assert!(error.contains(name) && !error.contains('\n'), "{error}");
    }
}

/// Changes a file's metadata of layers, without its tokens.
fn forge(from: &Path, to: &Path, change: impl Fn(&mut mlx::io::Safetensors)) {
    let mut file = mlx::io::load_safetensors_with_metadata(from).unwrap();
    file.metadata.remove("0.omnibus_tokens");
    change(&mut file);
    let arrays = file.arrays.iter().map(|(name, array)| (name.as_str(), array));
    let metadata = file.metadata.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    mlx::io::save_safetensors(to, arrays, metadata).unwrap();
}

fn number(number: i32) -> mlx::Array {
    mlx::Array::from_slice(&[number], &[]).unwrap()
}

/// A rotating cache may claim more tokens than it holds, so nothing else in the file bounds their number.
#[test]
fn a_file_that_claims_more_tokens_than_a_sequence_has_is_refused() {
    let model = directory("gemma3_text", "prompt-claims");
    let config = std::fs::read_to_string(model.join("config.json")).unwrap();
    let windows = config.replace(r#""sliding_window_pattern":3"#, r#""sliding_window_pattern":4"#);
    assert_ne!(windows, config);
    std::fs::write(model.join("config.json"), windows).unwrap();
    let (honest, forged) = (model.join("honest.safetensors"), model.join("forged.safetensors"));
    let write = settings(Some(PromptCacheFile::Write(honest.clone())));
    run(&engine(&model, write), request(0, 20, 1));
    let claim = |tokens: i32| {
        forge(&honest, &forged, |file| {
            (0..3).for_each(|layer| drop(file.arrays.insert(format!("{layer}.2"), number(tokens))));
        });
    };
    claim(20);
    assert!(try_engine(&model, settings(Some(PromptCacheFile::Read(forged.clone())))).is_ok());
    for tokens in [257, i32::MAX] {
        claim(tokens);
        let error = refusal_of(&model, forged.clone()).to_string();
        assert!(error.contains("forged.safetensors") && error.contains("omnibus cache prompt"), "{error}");
        assert!(error.contains(&tokens.to_string()) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn a_rotating_cache_for_a_full_attention_layer_is_refused() {
    let model = directory("qwen3", "prompt-ring");
    let (honest, forged) = (model.join("honest.safetensors"), model.join("forged.safetensors"));
    let write = settings(Some(PromptCacheFile::Write(honest.clone())));
    run(&engine(&model, write), request(0, 20, 1));
    forge(&honest, &forged, |file| {
        file.metadata.insert("1.0".to_owned(), "RotatingKVCache".to_owned());
        for (place, says) in [(2, 40), (3, 0), (4, 20), (5, 20)] {
            file.arrays.insert(format!("0.{place}"), number(says));
        }
        file.arrays.insert("1.2".to_owned(), number(20));
    });
    let error = refusal_of(&model, forged).to_string();
    assert!(error.contains("it holds 20 tokens of 40, and the layer attends to 40"), "{error}");
}

#[test]
fn a_state_of_another_shape_is_refused() {
    let model = directory("mamba2", "prompt-state");
    let (honest, forged) = (model.join("honest.safetensors"), model.join("forged.safetensors"));
    let write = settings(Some(PromptCacheFile::Write(honest.clone())));
    run(&engine(&model, write), request(0, 20, 1));
    forge(&honest, &forged, |file| {
        file.metadata.insert("0.omnibus_tokens".to_owned(), format!("{:?}", vec![1; 20]));
        let convolution = file.arrays["1.0.0"].clone();
        file.arrays.insert("1.0.1".to_owned(), convolution);
    });
    let error = refusal_of(&model, forged).to_string();
    assert!(error.contains("layer 1") && error.contains("is not a state of this model"), "{error}");
}
