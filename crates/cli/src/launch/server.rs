//! A server of this binary for one agent, which ends with it.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::Value;

use crate::error::Error;
use crate::output;

/// A server that runs as long as this value.
pub struct OwnServer {
    child: Child,
    /// Its URL.
    pub url: String,
}

/// What a server gets beside its model.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServerFlags<'a> {
    /// Flags of `serve`.
    pub flags: &'a [String],
    /// Variables of its environment.
    pub variables: &'a [(&'a str, &'a str)],
}

impl OwnServer {
    /// Starts a server of this model on a free port, and waits until it serves.
    pub fn start(model: Option<&str>, key: Option<&str>) -> Result<Self, Error> {
        Self::start_with(model, key, &ServerFlags::default())
    }

    /// Starts one with these flags.
    pub fn start_with(
        model: Option<&str>,
        key: Option<&str>,
        ServerFlags { flags, variables }: &ServerFlags<'_>,
    ) -> Result<Self, Error> {
        let program = std::env::current_exe().map_err(Error::failed)?;
        let mut command = Command::new(program);
        command.args(["serve", "--port", "0", "--log", "warn", "--log-format", "json"]);
        // After a flag, or a name that begins with a dash would be one.
        command.args(model.into_iter().flat_map(|model| ["--model", model]));
        command.args(*flags).envs(variables.iter().copied());
        if let Some(key) = key {
            // Other users of the machine see the arguments of processes.
            command.env("OMNIBUS_API_KEY", key);
        }
        detach(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(Error::failed)?;
        let stderr = child.stderr.take().map(BufReader::new);
        let mut server = Self { child, url: String::new() };
        server.url = stderr.ok_or_else(|| Error::failed("the server has no stderr")).and_then(listening)?;
        Ok(server)
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        stop(&mut self.child);
        // It may have ended before.
        _ = self.child.wait();
    }
}

/// The URL that the server prints. Lines before it are shown, those after it are read and dropped, so that the server never
/// waits for a reader, nor draws over the agent.
fn listening(mut stderr: BufReader<ChildStderr>) -> Result<String, Error> {
    loop {
        let mut line = String::new();
        if stderr.read_line(&mut line).map_err(Error::failed)? == 0 {
            return Err(Error::failed("the server ended before it served"));
        }
        let parsed: Option<Value> = serde_json::from_str(&line).ok();
        let text = |name: &str| parsed.as_ref().and_then(|line| line.get(name)?.as_str());
        if let (Some("listening"), Some(url)) = (text("message"), text("url")) {
            let url = url.to_owned();
            std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
            return Ok(url);
        }
        output::note(line.trim_end());
    }
}

/// Keeps a Ctrl-C in the terminal, which is meant for the agent, from the server.
#[cfg(unix)]
fn detach(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;
    command.process_group(0);
}

#[cfg(not(unix))]
fn detach(_command: &mut Command) {}

/// Lets the server end in order.
#[cfg(unix)]
fn stop(child: &mut Child) {
    let id = rustix::process::Pid::from_child(child);
    // It may have ended before.
    _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
}

#[cfg(not(unix))]
fn stop(child: &mut Child) {
    _ = child.kill();
}
