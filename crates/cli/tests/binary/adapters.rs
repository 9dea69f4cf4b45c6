//! Named adapters through every API: chosen by `model`, loaded and unloaded by route, kept when the engine restarts.
//!
//! What mlx-lm generates with them is in tests/adapters, which make.py there wrote.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use super::client::{JSON, Reply, connect, get, parse, post, request};
use super::process::{Server, run, signal, text};

const BASE: &str = "omnibus-mini";
const LOAD: &str = "/v1/load_lora_adapter";
const UNLOAD: &str = "/v1/unload_lora_adapter";

fn folder(name: &str) -> String {
    format!("{}/tests/adapters/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// With `drift` from the start; `turn` can be loaded.
fn server() -> Server {
    let drift = format!("drift={}", folder("drift"));
    Server::start(&["--log", "off", "--adapter-path", &drift, "--allow-runtime-lora-updating"])
}

fn load(server: &Server, name: &str, path: &str) -> Reply {
    post(server.address, LOAD, &json!({"lora_name": name, "lora_path": path}).to_string())
}

fn unload(server: &Server, name: &str) -> Reply {
    post(server.address, UNLOAD, &json!({"lora_name": name}).to_string())
}

fn begin(address: SocketAddr, body: &Value) -> TcpStream {
    let mut stream = connect(address);
    stream.write_all(&request("POST", "/v1/completions", &[JSON], body.to_string().as_bytes())).unwrap();
    stream
}

fn finish(mut stream: TcpStream, mut received: Vec<u8>) -> String {
    stream.read_to_end(&mut received).unwrap();
    let reply = parse(&received);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let text = |chunk: Value| chunk["choices"][0]["text"].as_str().unwrap_or_default().to_owned();
    reply.chunks().into_iter().map(text).collect()
}

fn completion(model: &str, prompt: &str, tokens: usize) -> Value {
    json!({"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": true,
        "stream": true})
}

/// Greedy texts of the base model and of two adapters, in one batch.
#[test]
fn one_batch_gives_what_mlx_lm_gives_for_each_adapter() {
    let server = server();
    let loaded = load(&server, "turn", &folder("turn"));
    assert_eq!(loaded.status, 200, "{}", loaded.body);
    assert_eq!(loaded.json()["parent"], BASE);
    let golden = std::fs::read_to_string(folder("golden.json")).unwrap();
    let golden: Value = serde_json::from_str(&golden).unwrap();
    let mut streams = Vec::new();
    for (model, answers) in golden.as_object().unwrap() {
        for (index, answer) in answers.as_array().unwrap().iter().enumerate() {
            // By either name.
            let model = match (model.as_str(), index) {
                ("", _) => BASE.to_owned(),
                (name, 0) => name.to_owned(),
                (name, _) => format!("{BASE}:{name}"),
            };
            let body = completion(&model, answer["prompt"].as_str().unwrap(), 24);
            streams.push((model, begin(server.address, &body), answer["text"].as_str().unwrap().to_owned()));
        }
    }
    for (model, stream, expected) in streams {
        assert_eq!(finish(stream, Vec::new()), expected, "{model}");
    }
    let models = get(server.address, "/v1/models").json();
    let listed: Vec<_> =
        models["data"].as_array().unwrap().iter().map(|m| [&m["id"], &m["parent"]]).collect();
    assert_eq!(json!(listed), json!([[BASE, null], ["drift", BASE], ["turn", BASE]]));
    assert_eq!(models["data"][1]["root"], folder("drift"));
    assert_eq!(get(server.address, "/v1/models/drift").json()["id"], "drift");
}

fn chat_text(server: &Server, model: &str) -> String {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Which bus is it?"}],
        "max_tokens": 12, "temperature": 0});
    let reply = post(server.address, "/v1/chat/completions", &body.to_string());
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(reply.json()["model"], model);
    reply.json()["choices"][0]["message"].to_string()
}

fn messages_text(server: &Server, model: &str) -> String {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Which bus is it?"}],
        "max_tokens": 12, "temperature": 0});
    let reply = post(server.address, "/v1/messages", &body.to_string());
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()["content"].to_string()
}

fn responses_text(server: &Server, model: &str) -> String {
    let body =
        json!({"model": model, "input": "Which bus is it?", "max_output_tokens": 12, "temperature": 0});
    let reply = post(server.address, "/v1/responses", &body.to_string());
    assert_eq!(reply.status, 200, "{}", reply.body);
    let text = |item: &Value| item["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    reply.json()["output"].as_array().unwrap().iter().map(text).collect()
}

#[test]
fn every_api_chooses_the_adapter_by_model() {
    let server = server();
    for api in [chat_text, messages_text, responses_text] {
        let (base, drift) = (api(&server, BASE), api(&server, "drift"));
        assert_ne!(base, drift);
        assert_eq!(api(&server, &format!("{BASE}:drift")), drift);
        assert_eq!(api(&server, BASE), base);
    }
}

#[test]
fn a_prefix_is_never_shared_between_adapters() {
    let server = server();
    assert_eq!(load(&server, "turn", &folder("turn")).status, 200);
    let prompt = "The bus stops here and there. ".repeat(20);
    let cached = |model: &str| {
        let body = json!({"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0});
        let reply = post(server.address, "/v1/completions", &body.to_string()).json();
        reply["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    for model in [BASE, "drift", "turn"] {
        assert_eq!(cached(model), 0, "{model} finds another's prefix");
        assert!(cached(model) > 50, "{model} does not find its own");
    }
    // An adapter is its content: another name for it gives the adapter that is loaded.
    assert_eq!(load(&server, "again", &folder("turn")).status, 200);
    assert!(cached("again") > 50);
    assert_eq!(unload(&server, "turn").status, 200);
    assert!(cached("again") > 50, "it is still loaded");
}

#[test]
fn an_engine_that_restarts_has_its_adapters() {
    let server = server();
    assert_eq!(load(&server, "turn", &folder("turn")).status, 200);
    assert_eq!(load(&server, "gone", &folder("turn")).status, 200);
    assert_eq!(unload(&server, "gone").status, 200);
    let bodies = [BASE, "drift", "turn"].map(|model| completion(model, "The bus number is", 160));
    let expected = bodies.each_ref().map(|body| finish(begin(server.address, body), Vec::new()));
    assert!(expected[0] != expected[1] && expected[1] != expected[2] && expected[0] != expected[2]);
    let process = || get(server.address, "/v1/status").json()["engine"]["process"].as_u64().unwrap() as u32;
    let first = process();
    let mut streams = bodies.each_ref().map(|body| begin(server.address, body));
    let received = streams.each_mut().map(|stream| {
        let mut received = vec![0; 900];
        stream.read_exact(&mut received).unwrap();
        received
    });
    assert!(signal(first, "KILL"));
    let resumed: Vec<String> =
        streams.into_iter().zip(received).map(|(stream, received)| finish(stream, received)).collect();
    assert_eq!(resumed, expected);
    assert_ne!(process(), first);
    assert_eq!(finish(begin(server.address, &bodies[2]), Vec::new()), expected[2]);
}

#[test]
fn an_unload_waits_for_its_requests_and_refuses_new_ones() {
    let server = server();
    let body = completion("drift", "The bus number is", 160);
    let expected = finish(begin(server.address, &body), Vec::new());
    let mut stream = begin(server.address, &body);
    let mut received = vec![0; 900];
    stream.read_exact(&mut received).unwrap();
    let unloaded = unload(&server, "drift");
    assert_eq!(
        (unloaded.status, unloaded.json()["deleted"].clone()),
        (200, json!(true)),
        "{}",
        unloaded.body
    );
    assert_eq!(finish(stream, received), expected);
    let refused = post(server.address, "/v1/completions", &body.to_string());
    assert_eq!((refused.status, refused.error()["code"].clone()), (404, json!("model_not_found")));
    assert_eq!(get(server.address, "/v1/models/drift").status, 404);
    let again = unload(&server, "drift");
    assert_eq!((again.status, again.error()["param"].clone()), (404, json!("lora_name")));
    // A name may stand for another adapter after its first one was unloaded.
    assert_eq!(load(&server, "drift", &folder("turn")).status, 200);
    assert_ne!(finish(begin(server.address, &body), Vec::new()), expected);
}

#[test]
fn what_cannot_be_loaded_is_refused_by_field() {
    let server = server();
    let check = |reply: Reply, status: u16, param: &str, words: &str| {
        let error = reply.error();
        assert_eq!((reply.status, error["param"].as_str()), (status, Some(param)), "{}", reply.body);
        assert!(error["message"].as_str().unwrap().contains(words), "{}", reply.body);
    };
    check(load(&server, "drift", &folder("turn")), 400, "lora_name", "loaded already");
    check(load(&server, BASE, &folder("turn")), 400, "lora_name", "the model itself");
    check(load(&server, "a b", &folder("turn")), 400, "lora_name", "white space");
    check(load(&server, "", &folder("turn")), 400, "lora_name", "lora_name");
    check(load(&server, "new", "/nowhere"), 400, "lora_path", "/nowhere/adapter_config.json");
    check(post(server.address, LOAD, r#"{"lora_name": "new"}"#), 400, "lora_path", "lora_path");
    check(post(server.address, LOAD, r#"{"lora_nam": "new"}"#), 400, "lora_nam", "unknown field");
    let small = ["--log", "off", "--allow-runtime-lora-updating", "--adapter-memory", "4KiB"];
    let full = Server::start(&small);
    check(load(&full, "new", &folder("turn")), 400, "lora_path", "--adapter-memory is 0.000 GB");
    assert_eq!(unload(&full, "new").status, 404, "nothing of it is loaded");
    let off = Server::start(&["--log", "off"]);
    let refused = load(&off, "new", &folder("turn"));
    assert!(
        refused.status == 404 && refused.body.contains("--allow-runtime-lora-updating"),
        "{}",
        refused.body
    );
    assert_eq!(unload(&off, "new").status, 404);
}

#[test]
fn an_adapter_that_cannot_be_loaded_at_the_start_is_one_line() {
    for (arguments, words) in [
        (vec!["--adapter-path", "a=/nowhere"], "adapter `a`: /nowhere/adapter_config.json"),
        (vec!["--adapter-path", "omnibus-mini=/nowhere"], "is the name of the model itself"),
        (vec!["--adapter-path", "a=/x", "--adapter-path", "a=/y"], "two adapters are named `a`"),
        (vec!["--adapter-path", "/x", "--adapter-path", "/y"], "give the others names"),
    ] {
        let all = ["serve", "--port", "0", "--log", "error"].into_iter().chain(arguments);
        let output = run(&all.collect::<Vec<_>>());
        let stderr = text(&output.stderr);
        assert!(stderr.contains(words) && stderr.lines().count() == 1, "{stderr}");
        assert_ne!(output.status.code(), Some(0));
    }
}
