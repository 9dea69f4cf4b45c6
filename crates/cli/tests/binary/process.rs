//! Starts and stops the binary.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The longest that a server may take to end. Makes a hanging test fail.
const ENDS_WITHIN: Duration = Duration::from_secs(120);

/// The binary, in an environment without settings of the test's user.
pub fn omnibus(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_omnibus"));
    let settings = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("OMNIBUS_"));
    for (name, _) in settings {
        command.env_remove(name);
    }
    let nowhere = std::env::temp_dir().join("omnibus-tests-home");
    command
        .args(arguments)
        .env("HOME", &nowhere)
        .env("XDG_CONFIG_HOME", &nowhere)
        .env("XDG_STATE_HOME", &nowhere)
        .env_remove("XDG_RUNTIME_DIR");
    command.current_dir(std::env::temp_dir());
    command
}

/// Runs the binary to its end.
pub fn run(arguments: &[&str]) -> Output {
    omnibus(arguments).stdin(Stdio::null()).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Sends a signal. False when there is no such process.
pub fn signal(process: u32, name: &str) -> bool {
    assert_ne!(process, 0, "that is every process of the tests' own group");
    let mut kill = Command::new("kill");
    kill.arg(format!("-{name}")).arg(process.to_string()).stderr(Stdio::null());
    kill.status().unwrap().success()
}

/// A server, killed when dropped.
pub struct Server {
    pub address: SocketAddr,
    /// The lines on stderr up to the `curl` line.
    pub startup_lines: Vec<String>,
    child: Child,
    /// The lines on stderr after them. Locked because threads of a test share their server.
    lines: Mutex<Receiver<String>>,
}

/// The lines on stderr. They are read as they come, because a server whose pipe is full stops at its next line of log.
fn lines_of(stderr: ChildStderr) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines() {
            // Read to the end, even after the test has ended.
            _ = sender.send(line.unwrap());
        }
    });
    lines
}

impl Server {
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[])
    }

    /// Starts a server with additional environment variables.
    pub fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let all: Vec<&str> = ["serve", "--port", "0"].iter().chain(arguments).copied().collect();
        let mut command = omnibus(&all);
        command.envs(variables.iter().copied()).stdin(Stdio::null());
        Self::start_command(command)
    }

    /// Starts a server by a command of its own.
    pub fn start_command(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = lines_of(child.stderr.take().unwrap());
        let (mut startup_lines, mut address) = (Vec::new(), None);
        loop {
            let Ok(line) = lines.recv() else {
                panic!("the server ended: {startup_lines:?}, {:?}", child.wait());
            };
            let line = line.trim().to_owned();
            if let Some((_, found)) = line.split_once("http://").or_else(|| line.split_once("https://")) {
                let end = found.find(['"', '/']).unwrap_or(found.len());
                address = address.or_else(|| found[..end].parse().ok());
            }
            let last = line.starts_with("curl ") || line.contains(r#""message":"listening""#);
            startup_lines.push(line);
            if last {
                break;
            }
        }
        // A UNIX socket has none.
        let address = address.unwrap_or_else(|| ([0, 0, 0, 0], 0).into());
        Self { address, startup_lines, child, lines: Mutex::new(lines) }
    }

    pub fn signal(&self, name: &str) {
        assert!(signal(self.child.id(), name));
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line on stderr that has this text. Waits for it.
    pub fn line_with(&mut self, text: &str) -> String {
        let found = self.lines.get_mut().unwrap().iter().find(|line| line.contains(text));
        found.unwrap_or_else(|| panic!("the server ended without a line with {text}")).trim().to_owned()
    }

    /// Waits for the end of it and of the processes that it started; returns its exit status and the rest of stderr.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let until = Instant::now() + ENDS_WITHIN;
        let mut rest = String::new();
        let lines = self.lines.get_mut().unwrap();
        loop {
            match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => rest.extend([line.as_str(), "\n"]),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("processes of the server still have its stderr"),
            }
        }
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status, rest);
            }
            assert!(Instant::now() < until, "the server closed stderr and still runs");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether the process runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
