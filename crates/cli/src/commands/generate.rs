//! `omnibus generate`: completes one prompt.

use std::io::Read;
use std::process::ExitCode;

use omnibus_engine::{
    ContentPart, Input, MediaIndex, Message, PromptCacheFile, Role, Settings as EngineSettings,
};

use crate::completion_output;
use crate::error::Error;
use crate::model;
use crate::settings::{Config, PromptFormat};

/// Completes the prompt.
pub fn run(config: &Config) -> Result<ExitCode, Error> {
    let input = input(config)?;
    let source = model::source(config.model.as_deref(), &[])?;
    let prompt_cache = config.prompt.cache_file.clone().map(PromptCacheFile::Read);
    // One sequence: pools have room for the longest, not for a server's load.
    let engine = EngineSettings { prompt_cache, max_num_seqs: 1, ..config.engine.clone() };
    let handle = omnibus_engine::start(vec![source], engine).map_err(Error::failed)?;
    let events = handle.submit(completion_output::request(config, input)).map_err(Error::failed)?;
    let completion = completion_output::runtime()?.block_on(completion_output::print_stream(events))?;
    completion_output::print_stats(config, &handle, &completion);
    Ok(ExitCode::SUCCESS)
}

/// The engine input of `--prompt`, as a chat or as raw text.
pub(super) fn input(config: &Config) -> Result<Input, Error> {
    let prompt = match config.prompt.text.as_deref() {
        None => return Err(Error::usage("missing prompt: pass -p TEXT, or -p - for stdin")),
        Some("-") => std::io::read_to_string(std::io::stdin().lock().by_ref()).map_err(Error::failed)?,
        Some(text) => text.to_owned(),
    };
    let system = config.prompt.system.as_deref();
    match (config.prompt.format, system) {
        (PromptFormat::Raw, Some(_)) => {
            Err(Error::usage("--system-prompt needs the chat template, which --raw skips"))
        }
        (PromptFormat::Raw, None) if !config.prompt.images.is_empty() => {
            Err(Error::usage("--image needs the chat template, which --raw skips"))
        }
        (PromptFormat::Raw, None) if !config.prompt.audio.is_empty() => {
            Err(Error::usage("--audio needs the chat template, which --raw skips"))
        }
        (PromptFormat::Raw, None) => Ok(Input::Text(prompt)),
        (PromptFormat::Chat, system) => {
            let system = system.map(|system| Message::new(Role::System, system));
            let (images, audio) = (&config.prompt.images, &config.prompt.audio);
            let files = images.iter().chain(audio).map(|path| completion_output::media(path));
            let files = files.collect::<Result<Vec<_>, _>>()?;
            let part = |index| match index < images.len() {
                true => ContentPart::Image(MediaIndex(index)),
                false => ContentPart::Audio(MediaIndex(index)),
            };
            let question = completion_output::question(&prompt, (0..files.len()).map(part).collect());
            Ok(completion_output::chat(system.into_iter().chain([question]).collect(), files))
        }
    }
}
