//! A prompt that was computed into a file is gone on from as if it had been computed now. `tests/peers/prompt_cache.py`
//! holds the same files against mlx-lm.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::PathBuf;

use common::fixture::{directory, engine, request, try_engine};
use common::{hear, run, said};
use omnibus_engine::{Input, PromptCacheFile, Settings, StartError};

fn settings(prompt_cache: Option<PromptCacheFile>) -> Settings {
    Settings { prompt_cache, kv_cache_memory: Some(32 << 20), ..Settings::default() }
}

fn tokens(input: &Input) -> Vec<u32> {
    let Input::Tokens(tokens) = input else { panic!("these requests are in tokens") };
    tokens.clone()
}

/// For each kind of memory a layer can have, and for lengths that no block size divides well.
#[test]
fn a_written_prompt_is_gone_on_from_exactly() {
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
        let wanted = run(&engine(&model, settings(None)), whole);
        let write = settings(Some(PromptCacheFile::Write(file.clone())));
        run(&engine(&model, write), with(prompt, 1));
        let read = engine(&model, settings(Some(PromptCacheFile::Read(file))));
        let told = hear(read.submit(with(rest, 12)).unwrap());
        assert_eq!(told.usage.cached_tokens, length, "{name}");
        let (wanted, told) = (said(&wanted), said(&told));
        let ids = |said: &[(u32, Option<f32>)]| said.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        assert_eq!(ids(&told), ids(&wanted), "{name}");
        let apart =
            told.iter().zip(&wanted).map(|(told, wanted)| (told.1.unwrap() - wanted.1.unwrap()).abs());
        assert!(apart.fold(0.0, f32::max) < 1e-3, "{name}: {told:?} {wanted:?}");
    }
}

#[test]
fn a_file_that_does_not_fit_is_refused_in_one_line() {
    let model = directory("qwen3", "prompt-refused");
    let refusal = |name: &str, bytes: &[u8]| -> StartError {
        let file: PathBuf = model.join(name);
        std::fs::write(&file, bytes).unwrap();
        try_engine(&model, settings(Some(PromptCacheFile::Read(file)))).err().expect("refused")
    };
    let weights = std::fs::read(model.join("model.safetensors")).unwrap();
    for (name, bytes) in
        [("empty.st", &b""[..]), ("text.st", b"hello, this is not it"), ("weights.st", &weights)]
    {
        let error = refusal(name, bytes).to_string();
        assert!(error.contains(name) && !error.contains('\n'), "{error}");
    }
}
