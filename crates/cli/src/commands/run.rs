//! `omnibus run`: a chat with a model, or one completion, as Ollama's users type it.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use super::{chat, generate};
use crate::error::Error;
use crate::settings::Config;

/// Chats, or completes the prompt behind the model or in stdin.
pub fn run(mut config: Config, arguments: &[String]) -> Result<ExitCode, Error> {
    let (model, words) = match (&config.model, arguments) {
        (Some(_), words) => (None, words),
        (None, [model, words @ ..]) => (Some(model.clone()), words),
        (None, []) => (None, arguments),
    };
    config.model = model.or(config.model);
    if !words.is_empty() && config.prompt.text.is_some() {
        return Err(Error::usage("the prompt is there twice: give it by position or by -p"));
    }
    if !words.is_empty() {
        config.prompt.text = Some(words.join(" "));
    }
    let stdin = std::io::stdin();
    match config.prompt.text {
        Some(_) => generate::run(&config),
        None if stdin.is_terminal() => chat::run(&config),
        None => {
            let text = std::io::read_to_string(stdin.lock().by_ref()).map_err(Error::failed)?;
            if text.trim().is_empty() {
                return Err(Error::usage(
                    "missing prompt: give it behind the model, or in stdin; a terminal has a chat",
                ));
            }
            config.prompt.text = Some(text);
            generate::run(&config)
        }
    }
}
