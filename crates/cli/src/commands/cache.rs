//! `omnibus cache`: prompt cache files, and the blocks in `--cache-dir`.

use std::path::Path;
use std::process::ExitCode;

use omnibus_engine::{
    CachedModel, Chat, Event, Input, PromptCacheFile, PromptEnd, Settings as EngineSettings, cached_models,
    remove_cached_model,
};
use serde_json::json;

use super::generate;
use crate::error::Error;
use crate::settings::{Config, Output};
use crate::{completion_output, model, output};

/// Computes a prompt and writes its KV cache to a file.
pub fn prompt(config: &Config) -> Result<ExitCode, Error> {
    let Some(path) = config.prompt.cache_file.clone() else {
        return Err(Error::usage("missing file: pass --prompt-cache-file FILE"));
    };
    // A later prompt continues the same message, so the template leaves it open.
    let input = match generate::input(config)? {
        Input::Chat(chat) => Input::Chat(Chat { end: PromptEnd::OpenMessage, ..chat }),
        other => other,
    };
    let source = model::source(config.model.as_deref(), &[])?;
    let prompt_cache = Some(PromptCacheFile::Write(path.clone()));
    let engine = EngineSettings { prompt_cache, ..config.engine.clone() };
    let handle = omnibus_engine::start(vec![source], engine).map_err(Error::failed)?;
    let mut request = completion_output::request(config, input);
    request.max_new_tokens = Some(1);
    let mut events = handle.submit(request).map_err(Error::failed)?;
    while let Some(event) = events.blocking_next() {
        match event {
            Event::Finished { usage, .. } => {
                output::note(format!("{} tokens in {}", usage.prompt_tokens, path.display()));
                return Ok(ExitCode::SUCCESS);
            }
            Event::Failed(failure) => return Err(Error::failed(failure)),
            Event::Started { .. }
            | Event::Prompt(_)
            | Event::Alignment(_)
            | Event::Hidden(_)
            | Event::TokenLogits(_)
            | Event::Progress { .. }
            | Event::Delta { .. } => {}
        }
    }
    Err(Error::failed("the engine stopped before the prompt was computed"))
}

/// Lists the blocks in a directory, by model.
pub fn list(config: &Config) -> Result<ExitCode, Error> {
    let directory = directory(config)?;
    let models = models_in(directory)?;
    if models.is_empty() && config.output == Output::Text {
        output::note(format!(
            "no blocks in {}; `omnibus serve --cache-dir` writes them",
            directory.display()
        ));
    }
    match config.output {
        Output::Json => output::line(json!(models).to_string()),
        Output::Text => models.iter().for_each(|model| {
            let megabytes = model.bytes as f64 / 1e6;
            output::line(format!("{}  {:>8} blocks  {megabytes:>10.1} MB", model.fingerprint, model.files));
        }),
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes the blocks of these models, or of all models.
pub fn remove(config: &Config, fingerprints: &[String]) -> Result<ExitCode, Error> {
    let directory = directory(config)?;
    let models = models_in(directory)?;
    if let Some(unknown) =
        fingerprints.iter().find(|name| !models.iter().any(|model| model.fingerprint == **name))
    {
        return Err(Error::failed(format!("{} has no blocks of {unknown}", directory.display())));
    }
    for model in
        models.iter().filter(|model| fingerprints.is_empty() || fingerprints.contains(&model.fingerprint))
    {
        remove_cached_model(directory, model)
            .map_err(|error| Error::failed(format!("cannot remove {}: {error}", model.fingerprint)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn directory(config: &Config) -> Result<&Path, Error> {
    let directory = config.engine.disk.as_ref().map(|disk| disk.directory.as_path());
    directory
        .filter(|directory| !directory.as_os_str().is_empty())
        .ok_or_else(|| Error::usage("missing directory: pass --cache-dir DIR"))
}

fn models_in(directory: &Path) -> Result<Vec<CachedModel>, Error> {
    cached_models(directory)
        .map_err(|error| Error::failed(format!("cannot read {}: {error}", directory.display())))
}
