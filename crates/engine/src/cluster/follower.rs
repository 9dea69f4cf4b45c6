//! A process on another machine than the first one's: listens for it, and runs an engine process on the connection.
//!
//! Invariant: one connection at a time has an engine process, and gets it after the handshake. When the input of a follower that was
//! started for one run is closed, it ends, whatever it does.

use std::io::{self, BufRead, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Secret;
use super::handshake::{Peer, accept};

/// The first argument that makes the binary a follower.
pub(super) const FOLLOWER_SUBCOMMAND: &str = "follower-process";
/// Before the port in what a follower writes.
pub(super) const PORT_LINE: &str = "omnibus-follower-port";
/// How long a peer has for the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A secret and an address are shorter.
const LINE_MAX: u64 = 256;

/// Where a follower listens, and for how long.
#[derive(Debug)]
pub enum FollowerPlace {
    /// What the first process writes to this one's input, for one connection.
    Input,
    /// There, with this secret, for one connection after the other.
    At(SocketAddr, Secret),
}

/// Follows the first process of a cluster. `engine`: the command of an engine process whose standard input is the connection. An
/// error is one line.
pub fn run_follower(place: FollowerPlace, engine: impl Fn() -> Command) -> Result<(), String> {
    match place {
        FollowerPlace::Input => {
            let (secret, address) = read_input()?;
            let listener = listen(SocketAddr::new(address, 0))?;
            let port = listener.local_addr().map_err(|error| error.to_string())?.port();
            let mut stdout = io::stdout().lock();
            writeln!(stdout, "{PORT_LINE} {port}").map_err(|error| error.to_string())?;
            stdout.flush().map_err(|error| error.to_string())?;
            drop(stdout);
            end_with_input()?;
            let peer = next_peer(&listener, &secret)?;
            // Nothing else is accepted.
            drop(listener);
            serve(peer, &engine)
        }
        FollowerPlace::At(address, secret) => {
            let listener = listen(address)?;
            loop {
                let peer = next_peer(&listener, &secret)?;
                if let Err(why) = serve(peer, &engine) {
                    tracing::warn!("{why}");
                }
            }
        }
    }
}

/// The secret and the address that the first process writes.
fn read_input() -> Result<(Secret, IpAddr), String> {
    let mut line = String::new();
    let read = io::stdin().lock().take(LINE_MAX).read_line(&mut line);
    read.map_err(|error| error.to_string())?;
    let fields = line.trim().split_once(' ');
    let found = fields.and_then(|(secret, address)| Some((Secret::from_hex(secret)?, address.parse().ok()?)));
    found.ok_or_else(|| "the input of a follower is a secret and an address".to_owned())
}

/// Ends this process when the command that it was started with has ended.
fn end_with_input() -> Result<(), String> {
    let wait = || {
        let mut byte = [0];
        while io::stdin().lock().read(&mut byte).is_ok_and(|read| read > 0) {}
        std::process::exit(1);
    };
    let thread = std::thread::Builder::new().name("omnibus-input".to_owned()).spawn(wait);
    thread.map(|_| ()).map_err(|error| error.to_string())
}

fn listen(address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address).map_err(|error| format!("cannot listen on {address}: {error}"))
}

/// The next connection of a process with the secret and of this version.
fn next_peer(listener: &TcpListener, secret: &Secret) -> Result<TcpStream, String> {
    loop {
        let (mut peer, address) = listener.accept().map_err(|error| error.to_string())?;
        match met(&mut peer, secret) {
            Ok(Peer::Accepted) => return Ok(peer),
            Ok(Peer::Refused) => {
                tracing::warn!(%address, "a connection without the secret, or of another version")
            }
            Err(error) => tracing::warn!(%address, %error, "a connection without a handshake"),
        }
    }
}

fn met(peer: &mut TcpStream, secret: &Secret) -> io::Result<Peer> {
    peer.set_nodelay(true)?;
    peer.set_read_timeout(Some(HANDSHAKE))?;
    peer.set_write_timeout(Some(HANDSHAKE))?;
    let found = accept(peer, secret, env!("CARGO_PKG_VERSION"))?;
    peer.set_read_timeout(None)?;
    peer.set_write_timeout(None)?;
    Ok(found)
}

/// Runs an engine process on a connection until it ends.
fn serve(peer: TcpStream, engine: &impl Fn() -> Command) -> Result<(), String> {
    let mut command = engine();
    command.stdin(Stdio::from(OwnedFd::from(peer))).stdout(Stdio::from(io::stderr()));
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    // The connection is the engine process's alone, and is closed with it.
    drop(command);
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the engine process has ended ({status})")),
        Err(error) => Err(error.to_string()),
    }
}
