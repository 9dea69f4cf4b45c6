//! Starts the binary, and ends it.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};

/// The binary, untouched by the settings of whoever runs the tests.
pub fn omnibus(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_omnibus"));
    let ours = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("OMNIBUS_"));
    for (name, _) in ours {
        command.env_remove(name);
    }
    let nowhere = std::env::temp_dir().join("omnibus-tests-home");
    command
        .args(arguments)
        .env("HOME", &nowhere)
        .env("XDG_CONFIG_HOME", &nowhere)
        .env("XDG_STATE_HOME", &nowhere);
    command.current_dir(std::env::temp_dir());
    command
}

/// Runs it to its end.
pub fn run(arguments: &[&str]) -> Output {
    omnibus(arguments).stdin(Stdio::null()).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Sends a signal. False when there is no such process.
pub fn signal(process: u32, name: &str) -> bool {
    let mut kill = Command::new("kill");
    kill.arg(format!("-{name}")).arg(process.to_string()).stderr(Stdio::null());
    kill.status().unwrap().success()
}

/// A server, killed when dropped.
pub struct Server {
    pub address: SocketAddr,
    /// What it said before it listened, and the line one can try.
    pub said: Vec<String>,
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Server {
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[])
    }

    /// With more variables in its environment.
    pub fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let all: Vec<&str> = ["serve", "--port", "0"].iter().chain(arguments).copied().collect();
        let mut child = omnibus(&all)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let (mut said, mut address) = (Vec::new(), None);
        loop {
            let mut line = String::new();
            if stderr.read_line(&mut line).unwrap() == 0 {
                panic!("the server ended: {said:?}, {:?}", child.wait());
            }
            let line = line.trim().to_owned();
            if let Some((_, found)) = line.split_once(" on http://") {
                address = found.parse().ok();
            }
            let last = line.starts_with("try: ");
            said.push(line);
            if last {
                break;
            }
        }
        Self { address: address.unwrap(), said, child, stderr }
    }

    pub fn signal(&self, name: &str) {
        assert!(signal(self.child.id(), name));
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end; what it said since it listened comes with it.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap(), said)
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
