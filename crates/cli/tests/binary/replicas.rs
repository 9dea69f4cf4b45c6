//! Replicas of a model: streams of a process that dies resume at another one, and prompts go where their beginning is cached.

use serde_json::{Value, json};

use super::client::{get, post};
use super::folders::Folder;
use super::isolation::{disturbed, requests, undisturbed};
use super::process::{Server, run, signal, text};

const TWO: [&str; 4] = ["--log", "off", "--data-parallel-size", "2"];

fn replicas(server: &Server) -> Vec<Value> {
    get(server.address, "/v1/status").json()["replicas"].as_array().unwrap().clone()
}

fn process_of(replica: &Value) -> u32 {
    replica["process"].as_u64().unwrap() as u32
}

/// Which replica has requests.
fn busy(server: &Server) -> usize {
    let has_some = |replica: &Value| replica["running"].as_u64() > Some(0);
    replicas(server).iter().position(has_some).expect("a replica runs the requests")
}

#[test]
fn streams_resume_at_another_replica_although_theirs_cannot_be_started_again() {
    let folder = Folder::new("replicas");
    let config = std::path::Path::new(folder.path()).join("config.json");
    let aside = config.with_extension("aside");
    let arguments = [&[folder.path()][..], &TWO].concat();
    let server = Server::start(&arguments);
    let bodies = requests(6);
    let expected = undisturbed(server.address, &bodies);
    let killed = std::sync::Mutex::new(0);
    let kill = || {
        std::fs::rename(&config, &aside).unwrap();
        let replica = busy(&server);
        *killed.lock().unwrap() = replica;
        assert!(signal(process_of(&replicas(&server)[replica]), "KILL"));
    };
    assert_eq!(disturbed(&server, &bodies, kill), expected);
    let killed = killed.into_inner().unwrap();
    assert_eq!(get(server.address, "/health").status, 200, "the other one serves");
    assert_eq!(undisturbed(server.address, &bodies), expected);
    let metrics = get(server.address, "/metrics").body;
    for replica in 0..2 {
        let line = format!("omnibus_engine_restarts_total{{replica=\"{replica}\"}} ");
        let restarts = metrics.lines().find_map(|metric| metric.strip_prefix(&line)).unwrap();
        assert_eq!(restarts != "0", replica == killed, "{metrics}");
    }
    // The one that was killed comes back once its files have.
    std::fs::rename(&aside, &config).unwrap();
    let detail = || get(server.address, "/health").json()["detail"].as_str().unwrap().to_owned();
    while detail().contains("cannot be loaded") || detail().contains("restarts") {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(undisturbed(server.address, &bodies), expected);
}

#[test]
fn a_request_that_crashes_replicas_is_refused_and_the_others_resume() {
    let server = Server::start_with(&TWO, &[("OMNIBUS_FAULTS", "abort@token=300")]);
    let bodies = requests(4);
    let expected = undisturbed(server.address, &bodies);
    let poison = || post(server.address, "/v1/completions", r#"{"prompt":[5,300,6],"max_tokens":12}"#);
    assert_eq!(disturbed(&server, &bodies, || assert_eq!(poison().status, 500)), expected);
    assert_eq!(undisturbed(server.address, &bodies), expected);
}

#[test]
fn prompts_are_spread_and_go_where_their_beginning_is_cached() {
    let server = Server::start(&TWO);
    let complete = |prompt: String| {
        let body = json!({"prompt": prompt, "max_tokens": 1, "temperature": 0});
        let reply = post(server.address, "/v1/completions", &body.to_string());
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    let prompt = |group: &str, own: &str| format!("{} and {own}", group.repeat(60));
    let groups = ["the red bus stops, ", "one more tram, ", "a long walk home, ", "trains are late; "];
    for group in groups {
        assert_eq!(complete(prompt(group, "first")), 0);
    }
    for own in ["second", "third"] {
        for group in groups {
            assert!(complete(prompt(group, own)) >= 64, "{group}: {:?}", replicas(&server));
        }
    }
    let computed = replicas(&server);
    let computed = computed.iter().map(|replica| replica["computed_tokens_total"].as_u64().unwrap());
    assert!(computed.min() > Some(100), "both compute prompts: {:?}", replicas(&server));
}

#[test]
fn sessions_are_those_of_all_replicas() {
    let server = Server::start(&TWO);
    for (session, word) in [("a", "bus "), ("b", "tram "), ("c", "walk ")] {
        let body = json!({"prompt": word.repeat(100), "max_tokens": 2, "session_id": session});
        assert_eq!(post(server.address, "/v1/completions", &body.to_string()).status, 200);
    }
    let listed = get(server.address, "/v1/sessions").json();
    let mut ids: Vec<&str> =
        listed["data"].as_array().unwrap().iter().map(|session| session["id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["a", "b", "c"]);
}

#[test]
fn replicas_end_with_their_server() {
    let server = Server::start(&TWO);
    server.signal("TERM");
    // All processes write to the same pipe, which closes when all have ended.
    assert_eq!(server.wait().0.code(), Some(0));
    let server = Server::start(&TWO);
    server.signal("KILL");
    assert_eq!(server.wait().0.code(), None, "the server ended by the signal");
}

#[test]
fn replicas_need_processes() {
    let output =
        run(&["serve", "--port", "0", "--log", "error", "--data-parallel-size", "2", "--in-process"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("--data-parallel-size 2 needs engine processes"), "{stderr}");
}
