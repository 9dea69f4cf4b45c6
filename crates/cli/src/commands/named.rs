//! Arguments by position that a flag can give as well: a model by `-m`, a prompt by `-p`. Behind `-p`, `generate` has its
//! model by position.

use crate::command_name::CommandName;
use crate::error::Error;
use crate::settings::Config;

/// Moves the arguments that a flag of the command stands for into the settings, or the flag's into the arguments. Returns
/// those that are left. Fails where one thing is named twice.
pub fn take(command: CommandName, arguments: &[String], config: &mut Config) -> Result<Vec<String>, Error> {
    let several = |flag: &str, what: &str| {
        Error::usage(format!("the {what} is there twice: give it by position or by {flag}"))
    };
    match command {
        CommandName::Generate => {
            arguments.first().map_or(Ok(()), |argument| take_prompt(argument, config))?;
            Ok(Vec::new())
        }
        CommandName::Convert => {
            let named = [arguments.first().cloned(), config.model.take(), config.conversion.from.take()];
            let mut named = named.into_iter().flatten();
            let model = named.next();
            if named.next().is_some() {
                return Err(several("--hf-path or -m", "model"));
            }
            config.conversion.from = model;
            Ok(Vec::new())
        }
        CommandName::Chat
        | CommandName::Batch
        | CommandName::CachePrompt
        | CommandName::BenchServe
        | CommandName::BenchPrefix
        | CommandName::BenchEngine
        | CommandName::BenchEnergy
        | CommandName::BenchReport
        | CommandName::BenchSpeculation => {
            let Some(model) = arguments.first() else { return Ok(Vec::new()) };
            if config.model.is_some() {
                return Err(several("-m", "model"));
            }
            config.model = Some(model.clone());
            Ok(Vec::new())
        }
        CommandName::Serve
        | CommandName::Perplexity
        | CommandName::Plan
        | CommandName::Pull
        | CommandName::RemoveModels => match config.model.take() {
            None => Ok(arguments.to_vec()),
            Some(model) if arguments.is_empty() => Ok(vec![model]),
            Some(_) => Err(several("-m", "model")),
        },
        CommandName::Run
        | CommandName::Ps
        | CommandName::Launch
        | CommandName::Replay
        | CommandName::Models
        | CommandName::Doctor
        | CommandName::BenchCompare
        | CommandName::BenchSim
        | CommandName::CacheList
        | CommandName::CacheRemove
        | CommandName::ListModels
        | CommandName::Push
        | CommandName::McpList
        | CommandName::McpCall
        | CommandName::ServiceInstall
        | CommandName::ServiceUninstall
        | CommandName::ServiceStatus
        | CommandName::ServiceLogs
        | CommandName::Completions => Ok(arguments.to_vec()),
    }
}

/// The prompt of `generate`, or the model where -p has the prompt.
fn take_prompt(argument: &str, config: &mut Config) -> Result<(), Error> {
    match (&config.prompt.text, &config.model) {
        (None, _) => config.prompt.text = Some(argument.to_owned()),
        (Some(_), None) => config.model = Some(argument.to_owned()),
        (Some(_), Some(_)) => {
            return Err(Error::usage(format!(
                "`{argument}` is neither the prompt, which -p gives, nor the model, which -m names"
            )));
        }
    }
    Ok(())
}
