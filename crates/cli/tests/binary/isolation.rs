//! Crashes of the engine process: streams resume after a pause.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use super::client::{JSON, connect, get, parse, post, request};
use super::folders::Folder;
use super::process::{Server, signal};

const TEXT: &str = "/v1/completions";

/// Requests with all kinds of sampling: greedy, seeded, with penalties, with log-probabilities, with grammars.
pub fn requests(count: usize) -> Vec<Value> {
    let body = |number: usize| {
        let mut body = json!({
            "prompt": format!("{} and the bus number {number}", "a stop, ".repeat(number * 5)),
            "max_tokens": 120, "temperature": 0, "ignore_eos": true, "stream": true,
        });
        match number % 4 {
            1 => body["temperature"] = json!(1.1),
            2 => body["frequency_penalty"] = json!(0.7),
            3 => body["logprobs"] = json!(1),
            _ => {}
        }
        if matches!(number, 4 | 5) {
            body["guided_regex"] = json!("(the next stop is [a-z]{3,8}, ){9}and home");
        }
        body["seed"] = json!(number);
        body
    };
    (0..count).map(body).collect()
}

fn begin(address: SocketAddr, body: &Value) -> TcpStream {
    let mut stream = connect(address);
    stream.write_all(&request("POST", TEXT, &[JSON], body.to_string().as_bytes())).unwrap();
    stream
}

/// Reads the first bytes of a stream, which hold some tokens.
fn read_first_tokens(stream: &mut TcpStream) -> Vec<u8> {
    let mut received = vec![0; 900];
    stream.read_exact(&mut received).unwrap();
    received
}

fn finish(mut stream: TcpStream, mut received: Vec<u8>) -> String {
    stream.read_to_end(&mut received).unwrap();
    let reply = parse(&received);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let text = |chunk: Value| chunk["choices"][0]["text"].as_str().unwrap_or_default().to_owned();
    reply.chunks().into_iter().map(text).collect()
}

pub fn undisturbed(address: SocketAddr, bodies: &[Value]) -> Vec<String> {
    bodies.iter().map(|body| finish(begin(address, body), Vec::new())).collect()
}

fn engine(server: &Server) -> Value {
    get(server.address, "/v1/status").json()["engine"].clone()
}

pub fn process(server: &Server) -> u32 {
    engine(server)["process"].as_u64().unwrap() as u32
}

/// Starts all requests, calls `disturb` when each has sent tokens, and returns the texts.
pub fn disturbed(server: &Server, bodies: &[Value], disturb: impl Fn()) -> Vec<String> {
    let mut streams: Vec<TcpStream> = bodies.iter().map(|body| begin(server.address, body)).collect();
    let received: Vec<Vec<u8>> = streams.iter_mut().map(read_first_tokens).collect();
    disturb();
    streams.into_iter().zip(received).map(|(stream, received)| finish(stream, received)).collect()
}

#[test]
fn streams_resume_after_the_engine_is_killed() {
    let server = Server::start(&["--log", "off", "--max-num-seqs", "6"]);
    let bodies = requests(8);
    let expected = undisturbed(server.address, &bodies[..6]);
    let first = process(&server);
    assert_ne!(first, server.id());
    let waiting = begin(server.address, &bodies[7]);
    assert_eq!(disturbed(&server, &bodies[..6], || assert!(signal(first, "KILL"))), expected);
    // The request was queued, or arrived while there was no engine process.
    let waited = finish(waiting, Vec::new());
    assert_eq!(undisturbed(server.address, &bodies[7..]), [waited]);
    let second = process(&server);
    assert!(second != first && second != server.id());
    assert!(get(server.address, "/metrics").body.contains("omnibus_engine_restarts_total 1"));
    assert_eq!(get(server.address, "/health").status, 200);
    let now = engine(&server);
    assert_eq!((&now["running"], &now["queued"], &now["kv_blocks_used"]), (&json!(0), &json!(0), &json!(0)));
    // Service managers signal all processes, in any order. The pipe that both write to closes when both have ended.
    signal(second, "TERM");
    server.signal("TERM");
    assert_eq!(server.wait().0.code(), Some(0));
}

#[test]
fn an_engine_that_hangs_is_restarted() {
    let server = Server::start(&["--log", "off", "--watchdog-s", "3"]);
    let bodies = requests(2);
    let expected = undisturbed(server.address, &bodies);
    let hanging = process(&server);
    assert_eq!(disturbed(&server, &bodies, || assert!(signal(hanging, "STOP"))), expected);
    assert_ne!(process(&server), hanging);
}

#[test]
fn a_request_ends_after_its_limit_while_the_engine_hangs() {
    let server = Server::start(&["--log", "off", "--watchdog-s", "600", "--request-timeout", "0.5"]);
    let ask = || post(server.address, TEXT, r#"{"prompt":"a","max_tokens":4}"#);
    // The status has the process once the engine has reported, which a request makes it do.
    let mut hanging = 0;
    while hanging == 0 {
        ask();
        hanging = process(&server);
    }
    assert!(signal(hanging, "STOP"));
    let reply = ask();
    assert_eq!((reply.status, reply.error()["code"].as_str()), (504, Some("timeout")), "{}", reply.body);
    assert_eq!(reply.error()["message"], "the request timed out after 0.5 s");
    assert!(signal(hanging, "CONT"));
    // The engine goes on, and gets the cancellation.
    let mut now = engine(&server);
    while (&now["running"], &now["queued"]) != (&json!(0), &json!(0)) {
        std::thread::yield_now();
        now = engine(&server);
    }
    assert_eq!(process(&server), hanging, "it was not restarted");
}

#[test]
fn an_engine_that_resumes_within_the_grace_period_ends_by_itself() {
    let mut server = Server::start(&["--log", "error", "--watchdog-s", "3"]);
    let bodies = requests(1);
    let expected = undisturbed(server.address, &bodies);
    let mut stream = begin(server.address, &bodies[0]);
    let received = read_first_tokens(&mut stream);
    let hanging = process(&server);
    assert!(signal(hanging, "STOP"));
    server.line_with("the engine's process hangs");
    assert!(signal(hanging, "CONT"));
    let ended = server.line_with("the engine's process has ended");
    assert!(ended.contains("exit status: 0"), "{ended}");
    assert_eq!([finish(stream, received)], expected[..]);
}

#[test]
fn an_engine_does_not_outlive_its_server() {
    let server = Server::start(&["--log", "off"]);
    let mut stream = begin(server.address, &requests(1)[0]);
    read_first_tokens(&mut stream);
    server.signal("KILL");
    // Both write to the same pipe, which closes when both have ended: an engine that stayed would exceed the time limit.
    let (status, _) = server.wait();
    assert_eq!(status.code(), None, "the server ended by the signal");
}

#[test]
fn in_process_serves_without_a_child() {
    let server = Server::start(&["--log", "error", "--in-process"]);
    assert_eq!(post(server.address, TEXT, r#"{"prompt":"a","max_tokens":3}"#).status, 200);
    assert_eq!(process(&server), server.id());
    server.signal("TERM");
    let (status, stderr) = server.wait();
    assert_eq!((status.code(), stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_load_error_is_one_line() {
    let output = super::process::run(&["serve", "--port", "0", "--log", "error", "--kv-cache-memory", "1"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = super::process::text(&output.stderr);
    assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{stderr}");
    assert!(stderr.contains("--kv-cache-memory needs at least"), "{stderr}");
}

fn check_poison(when: &str) {
    let server =
        Server::start_with(&["--log", "off"], &[("OMNIBUS_FAULTS", &format!("abort@token=300{when}"))]);
    let bodies = requests(3);
    let expected = undisturbed(server.address, &bodies);
    let poison = || post(server.address, TEXT, r#"{"prompt":[5,300,6],"max_tokens":12,"ignore_eos":true}"#);
    let refused = poison();
    assert_eq!(refused.status, 500, "{}", refused.body);
    let message = refused.error()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("this request ended the engine twice"), "{message}");
    assert_eq!(
        engine(&server)["engine_restarts_total"],
        2,
        "a request that ran alone is identified after two crashes"
    );
    assert_eq!(disturbed(&server, &bodies, || assert_eq!(poison().status, 500)), expected);
    assert_eq!(undisturbed(server.address, &bodies), expected);
}

#[test]
fn a_request_that_crashes_the_engine_is_refused_and_the_others_resume() {
    check_poison("");
}

#[test]
fn a_request_that_crashes_the_engine_while_decoding_is_refused() {
    check_poison("/5");
}

#[test]
fn a_model_that_cannot_be_reloaded_answers_503_until_it_can() {
    let folder = Folder::new("gone");
    let config = std::path::Path::new(folder.path()).join("config.json");
    let aside = config.with_extension("aside");
    let server = Server::start(&[folder.path(), "--log", "off"]);
    let bodies = requests(2);
    let expected = undisturbed(server.address, &bodies);
    let mut begun = begin(server.address, &bodies[0]);
    let received = read_first_tokens(&mut begun);
    std::fs::rename(&config, &aside).unwrap();
    assert!(signal(process(&server), "KILL"));
    // The request arrives while loads are retried, and is refused when they have failed repeatedly.
    let held = post(server.address, TEXT, r#"{"prompt":"a","max_tokens":3}"#);
    let check_refused = |reply: super::client::Reply| {
        assert_eq!(reply.status, 503, "{}", reply.body);
        assert!(reply.error()["message"].as_str().unwrap().contains("config.json"), "{}", reply.body);
        assert!((1..=60).contains(&reply.header("retry-after").unwrap().parse::<u64>().unwrap()));
    };
    check_refused(held);
    let mut rest = received;
    begun.read_to_end(&mut rest).unwrap();
    let reply = parse(&rest);
    assert!(reply.chunks().last().unwrap()["error"]["message"].as_str().unwrap().contains("config.json"));
    check_refused(post(server.address, TEXT, &bodies[1].to_string()));
    for path in ["/ready", "/health"] {
        check_refused(get(server.address, path));
    }
    let failures = engine(&server)["engine_load_failures_total"].as_u64().unwrap();
    assert!(failures >= 6, "{failures}");
    assert!(get(server.address, "/metrics").body.contains("omnibus_engine_load_failures_total"));
    std::fs::rename(&aside, &config).unwrap();
    while get(server.address, "/ready").status != 200 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(undisturbed(server.address, &bodies), expected);
}

/// The process's memory is limited: on a CPU, MLX does not check allocations, so the process crashes.
#[cfg(target_os = "linux")]
#[test]
fn streams_resume_after_the_engine_runs_out_of_memory() {
    // `fcfs` prefills in the largest chunks.
    // If the process hangs instead of crashing, the watchdog restarts it.
    let server = Server::start(&["--log", "off", "--schedule", "fcfs", "--watchdog-s", "20"]);
    let bodies = requests(6);
    let expected = undisturbed(server.address, &bodies);
    let long = json!({
        "prompt": "a long way, ".repeat(400), "max_tokens": 20, "temperature": 0, "ignore_eos": true, "stream": true,
        "echo": true, "logprobs": 5,
    });
    let started = std::sync::Mutex::new(None);
    let limit_memory = || {
        let limited = process(&server).to_string();
        let mut prlimit = std::process::Command::new("prlimit");
        assert!(prlimit.args(["--pid", &limited, "--as=1", "--data=1"]).status().unwrap().success());
        // Running requests use memory that is already allocated. A prompt of another size needs more.
        *started.lock().unwrap() = Some(begin(server.address, &long));
    };
    assert_eq!(disturbed(&server, &bodies, limit_memory), expected);
    let resumed = finish(started.into_inner().unwrap().unwrap(), Vec::new());
    assert!(engine(&server)["engine_restarts_total"].as_u64().unwrap() >= 1);
    assert_eq!(undisturbed(server.address, &[long]), [resumed]);
    assert_eq!(undisturbed(server.address, &bodies), expected);
}
