//! Tensor parallelism: ranks give the same tokens whatever a request is computed with, and end and begin together.

use std::process::Command;

use super::client::get;
use super::isolation::{disturbed, process, requests, undisturbed};
use super::process::{Server, run, signal, text};

/// The processes that a process has started.
pub fn children(parent: u32) -> Vec<u32> {
    let listed = Command::new("ps").args(["-A", "-o", "pid=,ppid="]).output().unwrap();
    let listed = text(&listed.stdout);
    let lines = listed.lines().filter_map(|line| {
        let (child, of) = line.trim().split_once(' ')?;
        Some((child.parse().ok()?, of.trim().parse::<u32>().ok()?))
    });
    lines.filter(|(_, of)| *of == parent).map(|(child, _)| child).collect()
}

/// Whether a process runs or is stopped. One that has ended may wait for its parent.
pub fn runs(process: u32) -> bool {
    let state = Command::new("ps").args(["-o", "stat=", "-p", &process.to_string()]).output().unwrap();
    let state = text(&state.stdout);
    !state.trim().is_empty() && !state.trim().starts_with('Z')
}

fn two_ranks() -> Server {
    Server::start(&["--log", "off", "--tensor-parallel-size", "2", "--watchdog-s", "5"])
}

#[test]
fn streams_resume_after_a_rank_is_killed_or_stopped() {
    let server = two_ranks();
    let bodies = requests(4);
    let expected = undisturbed(server.address, &bodies);
    // A sequence alone and among others, with a restart in between: equal tokens.
    for name in ["KILL", "STOP"] {
        let first = process(&server);
        let followers = children(first);
        let [follower] = followers[..] else { panic!("{followers:?}") };
        assert_eq!(disturbed(&server, &bodies, || assert!(signal(follower, name))), expected, "{name}");
        assert_ne!(process(&server), first, "{name}");
        assert!(!runs(follower), "the follower runs after {name}");
    }
    let first = process(&server);
    assert_eq!(disturbed(&server, &bodies, || assert!(signal(first, "KILL"))), expected);
    // All processes write to the same pipe, which closes when all have ended.
    server.signal("TERM");
    assert_eq!(server.wait().0.code(), Some(0));
}

#[test]
fn a_draft_model_changes_no_token() {
    let bodies = requests(3);
    let expected = {
        let server = Server::start(&["--log", "off", "--tensor-parallel-size", "2", "--draft", "off"]);
        undisturbed(server.address, &bodies)
    };
    let draft = concat!(env!("CARGO_MANIFEST_DIR"), "/models/omnibus-mini");
    let drafts = ["--draft", "model", "--draft-model", draft, "--draft-policy", "all"];
    let arguments = [&["--log", "off", "--tensor-parallel-size", "2"][..], &drafts].concat();
    let server = Server::start(&arguments);
    assert_eq!(undisturbed(server.address, &bodies), expected);
    let metrics = get(server.address, "/metrics").body;
    let accepted = metrics.lines().find(|line| line.starts_with("omnibus_accepted_draft_tokens_total"));
    assert!(accepted.is_some_and(|line| !line.ends_with(" 0")), "{accepted:?}");
}

#[test]
fn steps_launched_ahead_and_warm_up_change_no_token() {
    let ranks = ["--log", "off", "--tensor-parallel-size", "2"];
    let bodies = requests(3);
    let expected = undisturbed(Server::start(&ranks).address, &bodies);
    // Followers have no token of a step in flight but those that the first rank shares.
    let ahead = Server::start(&[&ranks[..], &["--async-scheduling", "on", "--warm-up", "on"]].concat());
    assert_eq!(undisturbed(ahead.address, &bodies), expected);
}

#[test]
fn ranks_do_not_outlive_their_server() {
    let server = two_ranks();
    server.signal("KILL");
    assert_eq!(server.wait().0.code(), None, "the server ended by the signal");
}

pub fn check_refused(arguments: &[&str], why: &str) {
    let all: Vec<&str> =
        ["serve", "--port", "0", "--log", "error"].iter().chain(arguments).copied().collect();
    let output = run(&all);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{stderr}");
    assert!(stderr.contains(why), "{stderr}");
}

#[test]
fn what_ranks_cannot_do_is_refused_in_one_line() {
    check_refused(&["--tensor-parallel-size", "7"], "do not divide by 7; --tensor-parallel-size may be 2, 4");
    check_refused(&["--tensor-parallel-size", "2", "--in-process"], "leave out --in-process");
    check_refused(&["--tensor-parallel-size", "2", "--swap-space", "1G"], "does not work with --swap-space");
}
