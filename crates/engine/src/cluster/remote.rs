//! The first process's side: starts a follower on another machine, or finds one that was started, and connects to it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::follower::{FOLLOWER_SUBCOMMAND, PORT_LINE};
use super::handshake::introduce;
use super::{Cluster, Host, Reach, Secret};

/// Between two attempts to connect to a process that may not listen yet.
const PAUSE: Duration = Duration::from_millis(200);

/// A line of a remote command's output is shorter.
const LINE_MAX: u64 = 4096;

/// A follower on another machine.
pub(crate) struct RemoteFollower {
    /// The command that it runs in, if this process has started it.
    pub(crate) command: Option<RemoteCommand>,
    /// To the follower. A stream socket like any other, whatever its family.
    pub(crate) socket: UnixStream,
}

/// Starts a follower on a host, or connects to the one there. `limit`: how long it has to listen. An error is one line.
pub(crate) fn start_remote(
    cluster: &Cluster,
    host: &Host,
    version: &str,
    limit: Duration,
) -> Result<RemoteFollower, String> {
    let began = Instant::now();
    let (command, port, secret) = match &host.reach {
        Reach::Ssh(name) => {
            let secret = Secret::random().map_err(|error| error.to_string())?;
            let (command, port) = run(cluster, name, &format!("{} {}", secret.hex(), host.address), limit)?;
            (Some(command), port, secret)
        }
        Reach::Listening(port) => {
            let secret = cluster.secret.clone().ok_or("there is no secret")?;
            (None, *port, secret)
        }
    };
    let address = SocketAddr::new(host.address, port);
    let failed = |error: io::Error| format!("{address}: {error}");
    let mut socket = loop {
        match TcpStream::connect_timeout(&address, limit) {
            // It may be loading its program, or be ending what it did before.
            Err(_) if command.is_none() && began.elapsed() < limit => std::thread::sleep(PAUSE),
            connected => break connected.map_err(failed)?,
        }
    };
    socket.set_nodelay(true).map_err(failed)?;
    socket.set_read_timeout(Some(limit)).map_err(failed)?;
    socket.set_write_timeout(Some(limit)).map_err(failed)?;
    introduce(&mut socket, &secret, version).map_err(|why| format!("{address}: {why}"))?;
    Ok(RemoteFollower { command, socket: UnixStream::from(OwnedFd::from(socket)) })
}

/// A command that runs a follower.
pub(crate) struct RemoteCommand {
    pub(crate) child: Child,
    /// Its input, which is kept open as long as it is to run: waiting for a process closes what it has of its own.
    pub(crate) input: ChildStdin,
}

/// Runs a follower on the machine of this name, with what it needs on its input, and waits until it says its port.
fn run(cluster: &Cluster, name: &str, input: &str, limit: Duration) -> Result<(RemoteCommand, u16), String> {
    let (program, arguments) = cluster.ssh.split_first().ok_or("no command is given in place of ssh")?;
    let failed = |error: io::Error| format!("{program} {name}: {error}");
    let mut command = Command::new(program);
    command.args(arguments).arg(name).arg(format!("{} {FOLLOWER_SUBCOMMAND}", cluster.program));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("a command without input or output".to_owned());
    };
    // One that has ended already says why on its standard error.
    let written = writeln!(stdin, "{input}").map_err(failed);
    let (found, port) = channel();
    let reader = move || found.send(port_of(stdout));
    std::thread::Builder::new().name("omnibus-remote".to_owned()).spawn(reader).map_err(failed)?;
    let port = written.and_then(|()| match port.recv_timeout(limit) {
        Ok(Some(port)) => Ok(port),
        Ok(None) => Err(format!("{program} {name}: the command has ended, and no follower has started")),
        Err(_) => Err(format!("{program} {name}: no follower has started after {} s", limit.as_secs())),
    });
    let ended = |why: String| {
        let _reaped = child.kill().and_then(|()| child.wait());
        why
    };
    let port = port.map_err(ended)?;
    Ok((RemoteCommand { child, input: stdin }, port))
}

/// The port that a follower writes to its output, after what the machine may write there.
fn port_of(stdout: ChildStdout) -> Option<u16> {
    let mut stdout = BufReader::new(stdout);
    loop {
        let mut line = String::new();
        let read = stdout.by_ref().take(LINE_MAX).read_line(&mut line).ok()?;
        if read == 0 {
            return None;
        }
        if let Some(port) = line.trim().strip_prefix(PORT_LINE) {
            return port.trim().parse().ok();
        }
    }
}
