//! A server's process: started with a small environment, in a folder and a process group of its own, within limits.
//!
//! Invariants: no variable of this process reaches it but those of [`INHERITED`]. The whole group ends with the value.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use crate::environment;
use crate::guard::{Breach, GuardedReader};
use crate::place::ProcessLimits;
use crate::sandbox::{Sandbox, SandboxRules};
use crate::secrets::Secrets;

/// The variables that a server gets of this process.
const INHERITED: &[&str] = &["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];
/// Sets limits and becomes the program: `memory in KiB`, `CPU seconds`, the program and its arguments.
const WITH_LIMITS: &str =
    r#"ulimit -d "$1" 2>/dev/null; ulimit -t "$2" 2>/dev/null; ulimit -c 0 2>/dev/null; shift 2; exec "$@""#;
/// Bytes that are kept of the end of what a server logs.
const LOG_BYTES: usize = 4096;
/// How long a server may take to end once its input is closed.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the end of the log of a server that has ended is waited for.
const LOG_TIMEOUT: Duration = Duration::from_millis(500);

/// What to start.
pub struct Start<'a> {
    /// The program.
    pub command: &'a str,
    /// Its arguments.
    pub args: &'a [String],
    /// Its own environment.
    pub env: &'a BTreeMap<String, String>,
    /// Its working folder.
    pub folder: Option<&'a Path>,
    /// What it may take.
    pub limits: ProcessLimits,
    /// What it may reach.
    pub rules: &'a SandboxRules,
}

/// A running process, without its pipes.
pub struct Process {
    child: Child,
    group: Option<Pid>,
    log: Log,
    /// Ends when the server's log does.
    reading: JoinHandle<()>,
    breach: Breach,
    sandbox: Sandbox,
    /// The folder of a server without one.
    _own_folder: Option<TempDir>,
}

/// Its pipes.
pub type Pipes = (GuardedReader<ChildStdout>, ChildStdin);

/// The end of what a server logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Process {
    /// Starts a process.
    pub fn start(start: &Start<'_>) -> Result<(Self, Pipes), String> {
        let sandbox = Sandbox::of_rules(start.rules)?;
        let (folder, own_folder) = folder(start.folder)?;
        let home = environment::variable("HOME").map(PathBuf::from);
        let mut words: Vec<OsString> = vec![
            "-c".into(),
            WITH_LIMITS.into(),
            "sh".into(),
            (start.limits.memory_bytes / 1024).to_string().into(),
            start.limits.cpu_seconds.to_string().into(),
        ];
        words.extend(sandbox.words(start.rules, &folder, home.as_deref()));
        words.push(start.command.into());
        words.extend(start.args.iter().map(OsString::from));
        let inherited = INHERITED.iter().filter_map(|name| Some((*name, environment::variable(name)?)));
        let mut child = Command::new("/bin/sh")
            .args(words)
            .env_clear()
            .envs(inherited)
            .envs(start.env)
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("it cannot be started: {error}"))?;
        let pipes = (child.stdout.take(), child.stdin.take(), child.stderr.take());
        let (Some(stdout), Some(stdin), Some(stderr)) = pipes else {
            return Err("it has no pipes".to_owned());
        };
        let (log, stdout) = (Log::default(), GuardedReader::new(stdout));
        let reading = tokio::spawn(log.clone().read(stderr));
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let breach = stdout.breach();
        Ok((Self { child, group, log, reading, breach, sandbox, _own_folder: own_folder }, (stdout, stdin)))
    }

    /// What confines it.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Waits until it ends, as it should once its input is closed, and ends it otherwise. Says why it ended.
    pub async fn end(&mut self, secrets: &Secrets) -> String {
        let status = tokio::time::timeout(END_TIMEOUT, self.child.wait()).await;
        self.kill();
        if let Some(why) = self.breach.get() {
            return why.clone();
        }
        let how = match status {
            Ok(Ok(status)) => format!("it ended: {status}"),
            Ok(Err(error)) => format!("it ended: {error}"),
            Err(_) => "it closed its output".to_owned(),
        };
        // What it wrote last may still be in the pipe, which one of its children may hold open.
        _ = tokio::time::timeout(LOG_TIMEOUT, &mut self.reading).await;
        match self.log.last_line(secrets) {
            Some(line) => format!("{how}; it last logged: {line}"),
            None => how,
        }
    }

    fn kill(&mut self) {
        if let Some(group) = self.group.take() {
            // A group that has ended is gone.
            _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The working folder, and the empty one that is removed with the process.
fn folder(configured: Option<&Path>) -> Result<(PathBuf, Option<TempDir>), String> {
    match configured {
        Some(folder) if folder.is_dir() => Ok((folder.to_owned(), None)),
        Some(folder) => Err(format!("its `cwd` {} is not a folder", folder.display())),
        None => {
            let own = tempfile::Builder::new().prefix("omnibus-mcp-").tempdir();
            let own = own.map_err(|error| format!("it cannot get a folder: {error}"))?;
            Ok((own.path().to_owned(), Some(own)))
        }
    }
}

impl Log {
    /// Reads what a server logs, so that it is not held up, and keeps the end.
    async fn read(self, mut stderr: ChildStderr) {
        let mut buffer = [0; 1024];
        while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend_from_slice(buffer.get(..read).unwrap_or_default());
            let excess = kept.len().saturating_sub(LOG_BYTES);
            kept.drain(..excess);
        }
    }

    /// The last whole line: a secret in a line that was cut would not be found.
    fn last_line(&self, secrets: &Secrets) -> Option<String> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept).into_owned();
        let whole = if kept.len() < LOG_BYTES { text.as_str() } else { text.split_once('\n')?.1 };
        let line = whole.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
        let line = crate::plain_text::plain(&secrets.redacted(line));
        Some(line.chars().take(300).collect())
    }
}
