//! The limit of open files: it is raised, and a full table of descriptors ends nothing.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use super::client::{connect, get};
use super::process::{Server, omnibus};

/// A server that a shell starts after a command of its own.
fn after(command: &str, log: &str) -> Server {
    let inner = omnibus(&[]);
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{command} && exec \"$0\" serve --port 0 --log {log}"));
    shell.arg(inner.get_program()).stdin(Stdio::null());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    Server::start_command(shell)
}

/// A connection that stays open after its first response.
fn kept(address: SocketAddr) -> TcpStream {
    let mut stream = connect(address);
    stream.write_all(b"GET /ready HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    stream
}

fn is_answered(stream: &mut TcpStream) -> bool {
    let mut begin = [0; 12];
    stream.read_exact(&mut begin).is_ok() && begin == *b"HTTP/1.1 200"
}

#[test]
fn the_soft_limit_is_raised_at_start() {
    let server = after("ulimit -Sn 64", "error");
    let mut open: Vec<TcpStream> = (0..200).map(|_| kept(server.address)).collect();
    assert!(open.iter_mut().all(is_answered));
}

#[test]
fn a_full_table_of_descriptors_is_logged_each_second_with_a_count_and_recovers() {
    let mut server = after("ulimit -n 64", "info");
    let open: Vec<TcpStream> = (0..100).map(|_| kept(server.address)).collect();
    let first = server.line_with("cannot accept connections");
    assert!(first.contains("failures=1") && first.contains("os error 24"), "{first}");
    let second = server.line_with("cannot accept connections");
    let count = second.split("failures=").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    assert!(count.is_some_and(|count| count > 1), "{second}");
    drop(open);
    server.line_with("accepting connections again");
    assert_eq!(get(server.address, "/ready").status, 200);
}
