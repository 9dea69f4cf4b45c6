//! One model on several machines: two "machines" are this one, reached by a command in place of ssh.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use super::folders::Folder;
use super::isolation::{disturbed, process, requests, undisturbed};
use super::process::{Server, omnibus, run, signal, text};
use super::ranks::{children, runs};

const SECRET: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// A folder with a host file of two hosts, and a command that runs commands here whatever the host.
struct Hosts(PathBuf);

impl Hosts {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("omnibus-hosts-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let hosts = Self(folder);
        let list = r#"[{"ssh": "one", "ips": ["127.0.0.1"]}, {"ssh": "two", "ips": ["127.0.0.1"]}]"#;
        std::fs::write(hosts.path("hosts.json"), list).unwrap();
        std::fs::write(hosts.path("ssh"), "#!/bin/sh\ntest \"$1\" = two || exit 1\nexec $2\n").unwrap();
        std::fs::set_permissions(hosts.path("ssh"), PermissionsExt::from_mode(0o755)).unwrap();
        hosts
    }

    fn path(&self, file: &str) -> String {
        self.0.join(file).to_str().unwrap().to_owned()
    }

    fn server(&self, more: &[&str]) -> Server {
        let file = self.path("hosts.json");
        let arguments = [&["--log", "off", "--watchdog-s", "5", "--hostfile", &file], more].concat();
        let program = env!("CARGO_BIN_EXE_omnibus");
        Server::start_with(
            &arguments,
            &[("OMNIBUS_SSH", &self.path("ssh")), ("OMNIBUS_REMOTE_PROGRAM", program)],
        )
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

fn on_one_machine(more: &[&str]) -> Vec<String> {
    let server = Server::start(&[&["--log", "off"], more].concat());
    undisturbed(server.address, &requests(4))
}

#[test]
fn two_hosts_give_the_tokens_of_one_process_and_end_together() {
    let hosts = Hosts::new("stages");
    let expected = on_one_machine(&[]);
    let server = hosts.server(&[]);
    assert_eq!(undisturbed(server.address, &requests(4)), expected);
    for name in ["KILL", "STOP"] {
        let first = process(&server);
        // The command in place of ssh becomes the follower, which has an engine process.
        let [command] = children(first)[..] else { panic!("one command") };
        let [follower] = children(command)[..] else { panic!("one engine process") };
        assert_eq!(disturbed(&server, &requests(4), || assert!(signal(follower, name))), expected, "{name}");
        assert_ne!(process(&server), first, "{name}");
        assert!(!runs(follower), "the follower runs after {name}");
    }
    server.signal("TERM");
    // All processes write to the same pipe, which closes when all have ended.
    assert_eq!(server.wait().0.code(), Some(0));
}

#[test]
fn ranks_on_two_hosts_give_the_tokens_of_ranks_on_one() {
    let hosts = Hosts::new("ranks");
    let expected = on_one_machine(&["--tensor-parallel-size", "2"]);
    let server = hosts.server(&["--tensor-parallel-size", "2"]);
    assert_eq!(disturbed(&server, &requests(4), || ()), expected);
}

#[test]
fn hosts_that_do_not_fit_are_refused_in_one_line() {
    let hosts = Hosts::new("refused");
    let file = hosts.path("hosts.json");
    let refused = |arguments: &[&str], why: &str| {
        let output = run(&[&["serve", "--port", "0", "--log", "error"], arguments].concat());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.starts_with("error: ") && stderr.lines().count() == 1 && stderr.contains(why),
            "{stderr}"
        );
    };
    refused(&["--hostfile", &file, "--pipeline-parallel-size", "3"], "there are 2 hosts, and");
}

/// A process as `mlx.launch` starts it.
struct Launched(Child);

impl Launched {
    fn start(model: &str, file: &str) -> Self {
        let mut command = omnibus(&["serve", model, "--log", "off"]);
        command.envs([("MLX_RANK", "1"), ("MLX_HOSTFILE", file), ("OMNIBUS_CLUSTER_SECRET", SECRET)]);
        Self(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// An address that nothing listens on.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A connection to a process that may not listen yet.
fn connected(address: SocketAddr) -> TcpStream {
    for _ in 0..600 {
        if let Ok(stream) = TcpStream::connect(address) {
            return stream;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("nothing listens on {address}");
}

#[test]
fn a_process_of_mlx_launch_follows_who_has_the_secret_and_the_same_model() {
    let hosts = Hosts::new("launch");
    let (first, second) = (free_address(), free_address());
    std::fs::write(hosts.path("ring.json"), format!(r#"[["{first}"], ["{second}"]]"#)).unwrap();
    let (file, model) = (hosts.path("ring.json"), Folder::new("launched"));
    let _follower = Launched::start(model.path(), &file);
    let mut stranger = connected(second);
    stranger.write_all(&[7; 32]).unwrap();
    let mut reply = Vec::new();
    // It closes the connection, with a byte unread or not.
    _ = stranger.read_to_end(&mut reply);
    assert_eq!(reply, b"");
    let variables =
        |secret| [("MLX_RANK", "0"), ("MLX_HOSTFILE", &file[..]), ("OMNIBUS_CLUSTER_SECRET", secret)];
    let expected = on_one_machine(&[]);
    for _ in 0..2 {
        let server = Server::start_with(&[model.path(), "--log", "off"], &variables(SECRET));
        assert_eq!(undisturbed(server.address, &requests(4)), expected);
        // The follower waits for the next one.
        server.signal("TERM");
        assert_eq!(server.wait().0.code(), Some(0));
    }
    let mut other = omnibus(&["serve", model.path(), "--port", "0", "--log", "error"]);
    let wrong = SECRET.replace("00", "01");
    let output = other.envs(variables(&wrong)).stdin(Stdio::null()).output().unwrap();
    let stderr = text(&output.stderr);
    assert!(stderr.contains("it does not accept the secret") && stderr.lines().count() == 1, "{stderr}");
}
