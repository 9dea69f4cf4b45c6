//! `omnibus launch`: a coding agent with a running server, or with a server of its own.

use std::path::Path;
use std::process::ExitCode;

use crate::completion_output::runtime;
use crate::error::Error;
use crate::launch::agents::{Agent, Setup, find, names};
use crate::launch::server::OwnServer;
use crate::launch::target::{Target, choose};
use crate::launch::{print, process};
use crate::output;
use crate::server_client::{ServedModel, ServerClient, Unanswered};
use crate::settings::{ClientSettings, Config, LaunchAction, program};

/// Starts the agent that the first argument names, with the others as its arguments.
pub fn run(config: &Config, arguments: &[String]) -> Result<ExitCode, Error> {
    let (agent, rest) = match arguments {
        [name, rest @ ..] => (find(name).ok_or_else(|| unknown(name))?, rest),
        [] => return Err(Error::usage(format!("missing agent: give one of {}", names()))),
    };
    if config.launch == LaunchAction::Print {
        return print_setup(config, agent, rest);
    }
    let program = program::find(agent.program)
        .map_err(|why| Error::failed(format!("{why}: install {} with `{}`", agent.name, agent.install)))?;
    let client = ServerClient::new(&config.client)?;
    match runtime()?.block_on(client.models()) {
        Ok(models) => {
            let target = target(config, client.origin(), &models)?;
            process::become_agent(process::command(&program, &setup(agent, &target), rest))
        }
        Err(Unanswered::Unreachable(_)) if config.client.url.is_none() => {
            with_own_server(config, agent, &program, rest)
        }
        Err(why) => Err(Error::failed(why)),
    }
}

fn unknown(name: &str) -> Error {
    Error::usage(format!("there is no agent `{name}`: give one of {}", names()))
}

/// The server ends when the agent has.
fn with_own_server(
    config: &Config,
    agent: &Agent,
    program: &Path,
    arguments: &[String],
) -> Result<ExitCode, Error> {
    let server = OwnServer::start(config.model.as_deref(), config.client.key.as_deref())?;
    let settings = ClientSettings { url: Some(server.url.clone()), key: config.client.key.clone() };
    let models = runtime()?.block_on(ServerClient::new(&settings)?.models()).map_err(Error::failed)?;
    // Its only model, by the name that it serves it under.
    let any = Config { model: None, ..config.clone() };
    let target = target(&any, &server.url, &models)?;
    process::run(process::command(program, &setup(agent, &target), arguments))
}

fn target(config: &Config, origin: &str, models: &[ServedModel]) -> Result<Target, Error> {
    let model = choose(models, config.model.as_deref())
        .map_err(|why| Error::failed(format!("the server at {origin} {why}")))?;
    Ok(Target {
        origin: origin.to_owned(),
        key: config.client.key.clone(),
        model: model.id.clone(),
        window: model.window,
    })
}

/// What the agent is given, after what the user should know of it.
fn setup(agent: &Agent, target: &Target) -> Setup {
    let setup = (agent.setup)(target);
    for note in target.warning().iter().chain(&setup.note) {
        output::note(format!("note: {note}"));
    }
    setup
}

/// Prints what the agent would be given. Without a server, its context is not known.
fn print_setup(config: &Config, agent: &Agent, arguments: &[String]) -> Result<ExitCode, Error> {
    let client = ServerClient::new(&config.client)?;
    let target = match runtime()?.block_on(client.models()) {
        Ok(models) => target(config, client.origin(), &models)?,
        Err(Unanswered::Unreachable(why)) => {
            output::note(format!("note: {why}; without it the context is not known"));
            Target {
                origin: client.origin().to_owned(),
                key: config.client.key.clone(),
                model: config.model.clone().unwrap_or_else(|| crate::embedded::NAME.to_owned()),
                window: None,
            }
        }
        Err(why) => return Err(Error::failed(why)),
    };
    let hidden = target.key.as_ref().map(|_| print::HIDDEN_KEY.to_owned());
    let target = Target { key: hidden, ..target };
    for line in print::lines(agent, &setup(agent, &target), arguments) {
        output::line(line);
    }
    Ok(ExitCode::SUCCESS)
}
