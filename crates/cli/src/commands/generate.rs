//! `omnibus generate`: completes one prompt.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use omnibus_engine::{
    ContentPart, Input, MediaIndex, Message, PromptCacheFile, Role, Settings as EngineSettings,
};

use crate::error::Error;
use crate::settings::{Config, PromptFormat};
use crate::{completion_output, model};

/// Completes the prompt.
pub fn run(config: &Config) -> Result<ExitCode, Error> {
    let input = input(config)?;
    let source = model::source(config.model.as_deref(), &[])?;
    let prompt_cache = config.prompt.cache_file.clone().map(PromptCacheFile::Read);
    // One sequence: pools have room for the longest, not for a server's load.
    let engine =
        EngineSettings { prompt_cache, max_num_seqs: 1, ..model::with_local_draft(config.engine.clone())? };
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
        (PromptFormat::Raw, None) => match media(config).next() {
            Some((flag, ..)) => {
                Err(Error::usage(format!("{flag} needs the chat template, which --raw skips")))
            }
            None => Ok(Input::Text(prompt)),
        },
        (PromptFormat::Chat, system) => {
            let system = system.map(|system| Message::new(Role::System, system));
            let files = media(config).map(|(_, _, path)| completion_output::media(path));
            let files = files.collect::<Result<Vec<_>, _>>()?;
            let parts = media(config).enumerate().map(|(index, (_, part, _))| part(MediaIndex(index)));
            let question = completion_output::question(&prompt, parts.collect());
            Ok(completion_output::chat(system.into_iter().chain([question]).collect(), files))
        }
    }
}

/// The files before the prompt, in order: the flag that names one, what it is, and where.
fn media(config: &Config) -> impl Iterator<Item = (&'static str, fn(MediaIndex) -> ContentPart, &Path)> {
    type Part = fn(MediaIndex) -> ContentPart;
    let prompt = &config.prompt;
    let kinds: [(&str, Part, &[PathBuf]); 3] = [
        ("--image", ContentPart::Image, &prompt.images),
        ("--video", ContentPart::Video, &prompt.videos),
        ("--audio", ContentPart::Audio, &prompt.audio),
    ];
    kinds
        .into_iter()
        .flat_map(|(flag, part, paths)| paths.iter().map(move |path| (flag, part, path.as_path())))
}
