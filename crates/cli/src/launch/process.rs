//! The process of an agent.

use std::path::Path;
use std::process::{Child, Command, ExitCode};

use super::agents::Setup;
use crate::completion_output::runtime;
use crate::error::Error;
use crate::stop_signals::{StopSignal, StopSignals};

/// The exit code of a process that a signal ended.
const SIGNALLED: u8 = 1;

/// The agent's command, with the user's arguments at the end.
pub fn command(program: &Path, setup: &Setup, arguments: &[String]) -> Command {
    let mut command = Command::new(program);
    for name in setup.removed {
        command.env_remove(name);
    }
    command.envs(setup.variables.iter().map(|(name, value)| (name, value)));
    command.args(&setup.arguments).args(arguments);
    command
}

/// Becomes the agent: its exit code and signals are its own.
#[cfg(unix)]
pub fn become_agent(mut command: Command) -> Result<ExitCode, Error> {
    use std::os::unix::process::CommandExt as _;
    let error = command.exec();
    Err(Error::failed(format!("{}: {error}", command.get_program().display())))
}

/// Runs the agent to its end.
#[cfg(not(unix))]
pub fn become_agent(command: Command) -> Result<ExitCode, Error> {
    run(command)
}

/// Runs the agent to its end, and returns its exit code. Ctrl-C reaches the agent alone.
pub fn run(mut command: Command) -> Result<ExitCode, Error> {
    runtime()?.block_on(async {
        // From here on a signal does not end this process, which has to end its server.
        let mut signals = StopSignals::new().map_err(Error::failed)?;
        let mut child = command.spawn().map_err(Error::failed)?;
        let terminate = terminate_of(&child);
        let mut ended = tokio::task::spawn_blocking(move || child.wait());
        loop {
            tokio::select! {
                status = &mut ended => {
                    let status = status.map_err(Error::failed)?.map_err(Error::failed)?;
                    let code = status.code().and_then(|code| u8::try_from(code).ok());
                    return Ok(ExitCode::from(code.unwrap_or(SIGNALLED)));
                }
                // The terminal sends Ctrl-C to the agent itself.
                stop = signals.next() => if stop == StopSignal::Terminate {
                    terminate();
                },
            }
        }
    })
}

/// Ends an agent in order, before it is waited for.
#[cfg(unix)]
fn terminate_of(child: &Child) -> impl Fn() + use<> {
    let id = rustix::process::Pid::from_child(child);
    // It may have ended before.
    move || _ = rustix::process::kill_process(id, rustix::process::Signal::TERM)
}

#[cfg(not(unix))]
fn terminate_of(_child: &Child) -> impl Fn() + use<> {
    || {}
}
