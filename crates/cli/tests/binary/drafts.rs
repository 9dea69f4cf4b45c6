//! Crashes of the engine process while draft tokens are in flight: streams resume with the tokens that they have without drafts.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::client::get;
use super::first_layers::FirstLayers;
use super::isolation::{disturbed, process, requests, undisturbed};
use super::process::{Server, signal};

/// Draft tokens that each process has verified when it is killed.
const VERIFIED: u64 = 60;
/// Looks at a process before the test fails.
const LOOKS_MAX: usize = 20_000;

/// Streams long enough to be killed twice.
fn long_requests() -> Vec<Value> {
    let mut bodies = requests(5);
    for body in &mut bodies {
        body["max_tokens"] = json!(300);
    }
    bodies
}

fn engine(server: &Server) -> Value {
    get(server.address, "/v1/status").json()["engine"].clone()
}

/// An engine process that drafts.
#[derive(Clone, Copy, Default)]
struct Drafting {
    process: u32,
    /// Draft tokens verified, of all processes so far.
    verified: u64,
}

impl Drafting {
    /// Waits until the process after this one has verified draft tokens while sequences run. Its steps verify drafts until the
    /// sequences end, since all drafts are verified.
    fn next(self, server: &Server) -> Self {
        for _ in 0..LOOKS_MAX {
            let now = engine(server);
            let count = |field: &str| now[field].as_u64().unwrap_or(0);
            let found = Self { process: count("process") as u32, verified: count("draft_tokens_total") };
            // Without a process its number is zero.
            let is_next = found.process != self.process && found.process > 0;
            if is_next && found.verified >= self.verified + VERIFIED && count("running") > 0 {
                return found;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("no process drafts: {}", engine(server));
    }
}

/// The texts of all requests without drafts, once for all tests.
fn undrafted() -> &'static [String] {
    static TEXTS: OnceLock<Vec<String>> = OnceLock::new();
    TEXTS.get_or_init(|| {
        let server = Server::start(&["--log", "off", "--draft", "off"]);
        undisturbed(server.address, &long_requests())
    })
}

/// Kills the engine process twice while it drafts by these flags.
fn check_killed(flags: &[&str]) {
    let bodies = long_requests();
    let arguments = [&["--log", "off", "--draft-policy", "all"][..], flags].concat();
    let server = Server::start(&arguments);
    let plan = get(server.address, "/v1/status").json()["memory"]["omnibus-mini"].clone();
    let drafts_by_network = !flags.contains(&"ngram");
    for part in ["draft_weights_bytes", "draft_kv_bytes"] {
        assert_eq!(plan[part].as_u64() > Some(0), drafts_by_network, "{part}: {plan}");
    }
    let verified = AtomicU64::new(0);
    let kill_twice = || {
        let first = Drafting::default().next(&server);
        assert!(signal(first.process, "KILL"));
        let second = first.next(&server);
        assert!(signal(second.process, "KILL"));
        verified.store(second.verified, Ordering::Relaxed);
    };
    assert_eq!(disturbed(&server, &bodies, kill_twice), *undrafted(), "{flags:?}");
    let now = engine(&server);
    assert_eq!(now["engine_restarts_total"], 2, "{now}");
    let verified = Some(verified.into_inner() + VERIFIED);
    assert!(now["draft_tokens_total"].as_u64() > verified, "the third process drafts: {now}");
    assert_eq!((&now["running"], &now["kv_blocks_used"]), (&json!(0), &json!(0)), "{now}");
    assert_ne!(process(&server), server.id());
}

#[test]
fn streams_resume_after_a_kill_among_ngram_drafts() {
    check_killed(&["--draft", "ngram"]);
}

#[test]
fn streams_resume_after_a_kill_among_drafts_of_a_model() {
    let draft = FirstLayers::new("killed", 5);
    check_killed(&["--draft", "model", "--draft-model", draft.path().to_str().unwrap()]);
}

#[test]
fn streams_resume_after_a_kill_among_drafts_of_a_head() {
    check_killed(&["--draft", "mtp"]);
}
