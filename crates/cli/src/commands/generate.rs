//! `omnibus generate`: one prompt, one answer.

use std::io::Read;
use std::process::ExitCode;

use omnibus_engine::{Input, PromptCacheFile, Settings as EngineSettings};

use super::say;
use crate::error::Error;
use crate::model;
use crate::settings::{Config, PromptForm};

/// Answers the prompt.
pub fn run(config: &Config) -> Result<ExitCode, Error> {
    let input = input(config)?;
    let source = model::source(config.model.as_deref(), &[])?;
    let prompt_cache = config.prompt.cache_file.clone().map(PromptCacheFile::Read);
    let engine = EngineSettings { prompt_cache, ..config.engine.clone() };
    let handle = omnibus_engine::start(vec![source], engine).map_err(Error::failed)?;
    let events = handle.submit(say::request(config, input)).map_err(Error::failed)?;
    let said = say::runtime()?.block_on(say::show(events))?;
    say::report(config, &handle, &said);
    Ok(ExitCode::SUCCESS)
}

/// The prompt that was given, in the form that was asked for.
pub(super) fn input(config: &Config) -> Result<Input, Error> {
    let prompt = match config.prompt.text.as_deref() {
        None => return Err(Error::usage("a prompt is needed: -p TEXT, or -p - for stdin")),
        Some("-") => std::io::read_to_string(std::io::stdin().lock().by_ref()).map_err(Error::failed)?,
        Some(text) => text.to_owned(),
    };
    let system = config.prompt.system.as_deref();
    match (config.prompt.form, system) {
        (PromptForm::Raw, Some(_)) => {
            Err(Error::usage("--system-prompt needs the chat template, which --raw skips"))
        }
        (PromptForm::Raw, None) => Ok(Input::Text(prompt)),
        (PromptForm::Chat, system) => {
            let system = system.map(|system| say::message("system", system));
            Ok(say::chat(system.into_iter().chain([say::message("user", &prompt)]).collect()))
        }
    }
}
