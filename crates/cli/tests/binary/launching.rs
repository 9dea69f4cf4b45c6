//! `launch`, with agents that only write down what they were given.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::process::{Server, omnibus, signal, text};

/// A folder with agents, removed when dropped.
struct Agents(PathBuf);

impl Agents {
    /// An agent that prints its variables and arguments, and then runs this script.
    fn new(name: &str, program: &str, script: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("omnibus-agents-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(program);
        std::fs::write(
            &path,
            format!("#!/bin/sh\nenv\nfor word in \"$@\"; do echo \"argument $word\"; done\n{script}\n"),
        )
        .unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self(folder)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        // Nothing but the agent and the tools of its script.
        let path = format!("{}:/usr/bin:/bin", self.0.display());
        let mut command = omnibus(&[&["launch"], arguments].concat());
        command.env("PATH", path).env("HOME", &self.0);
        command
    }

    fn launch(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        self.command(arguments).envs(variables.iter().copied()).output().unwrap()
    }

    /// What an agent printed.
    fn seen(&self, arguments: &[&str], variables: &[(&str, &str)]) -> String {
        let output = self.launch(arguments, variables);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    /// The files in the home folder of the agent's user, but for the agent.
    fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        let is_agent =
            |path: &PathBuf| path.is_file() && path.metadata().unwrap().permissions().mode() & 0o100 != 0;
        entries.filter(|path| !is_agent(path)).collect()
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

fn has(text: &str, line: &str) {
    assert!(text.lines().any(|found| found == line), "{line} in {text}");
}

#[test]
fn an_agent_is_given_the_running_server() {
    let server = Server::start(&["--log", "error", "--served-model-name", "it's a \"model\""]);
    let url = format!("http://{}", server.address);
    let agents = Agents::new("running", "claude", "exit 7");
    let inherited = [("ANTHROPIC_API_KEY", "real"), ("CLAUDE_CODE_USE_BEDROCK", "1")];
    let output = agents.launch(&["claude", "--url", &url, "--", "-p", "hi there", "--url"], &inherited);
    assert_eq!(output.status.code(), Some(7), "the agent's exit code: {}", text(&output.stderr));
    let seen = text(&output.stdout);
    has(&seen, &format!("ANTHROPIC_BASE_URL={url}"));
    has(&seen, "ANTHROPIC_API_KEY=");
    has(&seen, "ANTHROPIC_MODEL=it's a \"model\"");
    has(&seen, "CLAUDE_CODE_MAX_CONTEXT_TOKENS=4096");
    has(&seen, "CLAUDE_CODE_AUTO_COMPACT_WINDOW=3072");
    for argument in ["--disallowedTools=LSP", "-p", "hi there", "--url"] {
        has(&seen, &format!("argument {argument}"));
    }
    assert!(!seen.contains("CLAUDE_CODE_USE_BEDROCK"), "{seen}");
    assert!(agents.files().is_empty(), "{:?}", agents.files());
    assert!(text(&output.stderr).contains("context of 4096 tokens"), "a warning");
}

#[test]
fn print_shows_what_would_be_set_and_starts_nothing() {
    let server = Server::start(&["--log", "error", "--api-key", "secret-key"]);
    let url = format!("http://{}/v1/", server.address);
    let agents = Agents::new("print", "codex", "");
    let printed =
        agents.seen(&["codex", "--url", &url, "--print", "--api-key", "secret-key", "--", "exec"], &[]);
    assert!(
        printed.contains("codex -c") && printed.trim_end().ends_with("-m omnibus-mini exec"),
        "{printed}"
    );
    assert!(
        printed.contains(&format!("http://{}/v1", server.address)) && !printed.contains("secret-key"),
        "{printed}"
    );
    assert!(!printed.contains("argument "), "the agent did not run: {printed}");
    let without = agents.launch(&["codex", "--url", &url], &[]);
    assert_eq!(without.status.code(), Some(1));
    assert!(text(&without.stderr).contains("wants a key"), "{}", text(&without.stderr));
    let nothing = agents.launch(&["opencode", "--print", "--url", "http://127.0.0.1:1", "-m", "some"], &[]);
    assert!(text(&nothing.stdout).contains("omnibus/some"), "{}", text(&nothing.stdout));
    assert!(text(&nothing.stderr).contains("the context is not known"), "{}", text(&nothing.stderr));
}

/// Whether a server is found without a URL, or what else has its port.
fn default_port_is_taken() -> bool {
    TcpStream::connect("127.0.0.1:8000").is_ok()
}

/// The address of the server in a line of opencode's variables.
fn address_of(line: &str) -> Option<String> {
    let config: Value = serde_json::from_str(line.strip_prefix("OPENCODE_CONFIG_CONTENT=")?).unwrap();
    assert_eq!(config["model"], "omnibus/omnibus-mini");
    let url = config["provider"]["omnibus"]["options"]["baseURL"].as_str().unwrap();
    Some(url.trim_start_matches("http://").trim_end_matches("/v1").to_owned())
}

#[test]
fn a_server_of_its_own_ends_with_the_agent() {
    if default_port_is_taken() {
        return;
    }
    let agents = Agents::new("own", "opencode", "");
    let seen = agents.seen(&["opencode", "-m", "omnibus-mini"], &[]);
    let address = seen.lines().find_map(address_of).unwrap();
    assert!(TcpStream::connect(&address).is_err(), "{address} still listens");
}

#[test]
fn a_launch_that_is_terminated_ends_its_agent_and_its_server() {
    if default_port_is_taken() {
        return;
    }
    let agents = Agents::new("terminated", "opencode", "exec sleep 100000");
    let mut child =
        agents.command(&["opencode"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines.map_while(Result::ok).find_map(|line| address_of(&line)).unwrap();
    assert!(TcpStream::connect(&address).is_ok(), "{address} listens while the agent runs");
    assert!(signal(child.id(), "TERM"));
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(TcpStream::connect(&address).is_err(), "{address} still listens");
}

#[test]
fn what_cannot_be_launched_says_what_to_do() {
    let server = Server::start(&["--log", "error"]);
    let url = format!("http://{}", server.address);
    let empty = Agents::new("wrong", "claude", "");
    let check = |arguments: &[&str], code: i32, expected: &str| {
        let output = empty.launch(arguments, &[]);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(expected), "{arguments:?}: {}", text(&output.stderr));
    };
    check(&["emacs"], 2, "claude, codex, opencode, qwen");
    check(&["aider", "--url", &url], 1, "pip install aider-chat");
    check(&["claude", "--url", &url, "-m", "other"], 1, "serves `omnibus-mini`, not `other`");
    check(&["claude", "--url", "http://127.0.0.1:1"], 1, "omnibus serve");
    check(&["claude", "--url", "ftp://x"], 2, "--url");
}
