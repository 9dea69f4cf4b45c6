//! The stream of live data: what comes, for whom, and when it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use omnibus_engine::{StepRecord, WatchedSteps};
use serde_json::{Value, json};

use super::client::{connect, exchange, request};
use super::keys::{Keyed, table};
use super::{Server, server, server_with_keys};

const STREAM: &str = "/v1/status/stream";

/// A client that watches.
struct Watcher(BufReader<TcpStream>);

impl Watcher {
    fn new(server: &Server, key: &str) -> Self {
        let bearer = format!("Bearer {key}");
        let mut stream = connect(server.address);
        stream.write_all(&request("GET", STREAM, &[("authorization", &bearer)], b"")).unwrap();
        Self(BufReader::new(stream))
    }

    /// The next event; `None` after the last.
    fn next(&mut self) -> Option<Value> {
        let lines = self.0.by_ref().lines().map_while(Result::ok);
        let data = lines.filter_map(|line| Some(line.strip_prefix("data: ")?.to_owned())).next()?;
        Some(serde_json::from_str(&data).unwrap())
    }

    /// The next event of a type.
    fn next_of(&mut self, name: &str) -> Value {
        loop {
            let event = self.next().expect("the stream goes on");
            if event["type"] == name {
                return event;
            }
        }
    }
}

/// Steps of so many decodes.
fn steps(decodes: impl IntoIterator<Item = usize>, lost: u64) -> WatchedSteps {
    let step = |decodes| StepRecord { decodes, prefill: 7, budget: 64, ..StepRecord::default() };
    WatchedSteps { steps: decodes.into_iter().map(step).collect(), lost }
}

#[test]
fn the_state_comes_at_once_and_steps_as_they_happen() {
    let server = server();
    let mut watcher = Watcher::new(&server, "");
    let status = watcher.next().unwrap();
    assert_eq!((&status["type"], &status["alive"]), (&json!("status"), &json!(true)));
    assert!(status["engine"]["steps_total"].is_u64(), "{status}");
    let requests = watcher.next().unwrap();
    assert_eq!(requests, json!({"type": "requests", "total": 0, "data": [], "keys": []}));
    assert_eq!(server.engine.watchers(), 1);
    server.engine.step(&steps([3, 4], 2));
    let event = watcher.next_of("steps");
    assert_eq!((&event["model"], &event["lost"]), (&json!("scripted"), &json!(2)));
    let first = json!({"seconds": 0.0, "decodes": 3, "prefill": 7, "drafts": 0, "encodes": 0, "budget": 64});
    assert_eq!((&event["steps"][0], &event["steps"][1]["decodes"]), (&first, &json!(4)));
}

#[test]
fn no_client_no_watch() {
    let server = server();
    let mut watcher = Watcher::new(&server, "");
    watcher.next().unwrap();
    drop(watcher);
    while server.engine.watchers() > 0 {
        server.engine.step(&steps([1], 0));
        std::thread::yield_now();
    }
}

#[test]
fn a_model_that_is_loaded_again_is_watched_again() {
    let server = server();
    let mut watcher = Watcher::new(&server, "");
    watcher.next().unwrap();
    server.engine.end_watches();
    while server.engine.watchers() == 0 {
        watcher.next().unwrap();
    }
    server.engine.step(&steps([5], 0));
    assert_eq!(watcher.next_of("steps")["steps"][0]["decodes"], 5);
}

#[test]
fn operators_see_all_and_keys_their_own() {
    let keyed = Keyed::new(&(table("root", "role = \"admin\"") + &table("alice", "") + &table("bob", "")));
    let (_running, _) = keyed.endless("sk-alice");
    let requests_of = |key: &str| {
        let mut watcher = Watcher::new(&keyed.server, key);
        (watcher.next_of("requests"), watcher)
    };
    for key in ["sk-alice", "sk-root"] {
        let (event, _watcher) = requests_of(key);
        assert_eq!(
            (&event["total"], &event["data"][0]["key"]),
            (&json!(1), &json!("alice")),
            "{key}: {event}"
        );
        assert_eq!(event["data"][0]["deadline_seconds"], 4.5);
        let load = &event["keys"][0];
        assert_eq!(
            (&load["key"], &load["running"], &load["queued"]),
            (&json!("alice"), &json!(1), &json!(0))
        );
        assert_eq!((&load["kv_blocks"], &load["kv_blocks_shared"]), (&json!(3), &json!(1)));
    }
    let before = keyed.server.engine.watchers();
    let (event, _watcher) = requests_of("sk-bob");
    assert_eq!((&event["total"], &event["keys"]), (&json!(0), &json!([])));
    assert!(keyed.server.engine.watchers() <= before, "steps are those of all keys");
}

#[test]
fn the_stream_ends_with_the_server_and_with_its_key() {
    let mut server = server();
    let mut watcher = Watcher::new(&server, "");
    watcher.next().unwrap();
    server.stop();
    while watcher.next().is_some() {}
    server.join();
    let keyed = Keyed::new(&(table("root", "role = \"admin\"") + &table("alice", "")));
    let mut watcher = Watcher::new(&keyed.server, "sk-alice");
    watcher.next().unwrap();
    keyed.rewrite(&table("root", "role = \"admin\""));
    while watcher.next().is_some() {}
}

#[test]
fn it_needs_a_key_and_has_room_for_so_many() {
    let server = server_with_keys(&["secret"]);
    assert_eq!(super::client::get(server.address, STREAM).status, 401);
    let mut watchers: Vec<Watcher> = (0..32).map(|_| Watcher::new(&server, "secret")).collect();
    watchers.iter_mut().for_each(|watcher| _ = watcher.next().unwrap());
    let more = request("GET", STREAM, &[("authorization", "Bearer secret")], b"");
    assert_eq!(exchange(server.address, &more).unwrap().status, 429);
}
