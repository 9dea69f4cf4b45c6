//! Blocks of another server: fetched, used, and given up when the other one fails.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use serde_json::{Value, json};

use super::client::{get, post};
use super::folders::Folder;
use super::process::Server;

const PREFILL: [&str; 4] = ["--log", "off", "--role", "prefill"];

/// Seconds: longer than any machine needs.
const PATIENT: &str = "600";
/// What a peer that hangs may cost.
const IMPATIENT: &str = "1";

/// A server that fetches blocks of this address, and has it compute prompts.
fn decode_server(peer: SocketAddr, more: &[&str]) -> Server {
    fetching_server("decode", (peer, PATIENT), more)
}

/// `peer`: with how long it is waited for.
fn fetching_server(role: &str, (peer, timeout): (SocketAddr, &str), more: &[&str]) -> Server {
    let peer = format!("http://{peer}");
    let arguments = ["--log", "off", "--role", role, "--kv-peer-timeout", timeout, "--kv-peer", &peer];
    Server::start(&[&arguments, more].concat())
}

fn prompt() -> String {
    "The bus waits at the corner of the long street. ".repeat(30)
}

fn complete(server: &Server, fields: Value) -> Value {
    let mut body = json!({"prompt": prompt(), "max_tokens": 12, "temperature": 0});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    let reply = post(server.address, "/v1/completions", &body.to_string());
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

fn cached(response: &Value) -> u64 {
    response["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
}

fn text(response: &Value) -> &str {
    response["choices"][0]["text"].as_str().unwrap()
}

/// Waits for a failure with this reason, the only one.
fn check_failure(server: &Server, reason: &str) {
    let fetch = || get(server.address, "/v1/status").json()["engine"]["kv_transfer"]["fetch"].clone();
    let count =
        |fetch: &Value| fetch["failures"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    let mut now = fetch();
    while count(&now) == 0_u64 {
        std::thread::sleep(std::time::Duration::from_millis(20));
        now = fetch();
    }
    assert_eq!((&now["failures"][reason], count(&now)), (&json!(1), 1), "{now}");
    assert!(now["peers"][0]["failure"].is_string(), "{now}");
}

/// Stands between two servers, and does something to a connection once it has sent so many bytes to the asking one.
fn relay(to: SocketAddr, after: usize, act: fn(&mut TcpStream, &mut [u8]) -> bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(to).unwrap());
            let (mut from, mut into) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut into));
            std::thread::spawn(move || {
                let (mut buffer, mut sent) = ([0; 1024], 0);
                while let Ok(count) = server.read(&mut buffer) {
                    let piece = &mut buffer[..count];
                    if count == 0 || sent > after && !act(&mut client, piece) {
                        return;
                    }
                    sent += count;
                    if client.write_all(piece).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn flip(_: &mut TcpStream, piece: &mut [u8]) -> bool {
    piece[piece.len() / 2] ^= 1;
    true
}

fn cut(client: &mut TcpStream, _: &mut [u8]) -> bool {
    let _gone = client.shutdown(Shutdown::Both);
    false
}

fn hang(client: &mut TcpStream, _: &mut [u8]) -> bool {
    std::mem::forget(client.try_clone());
    false
}

fn flood(client: &mut TcpStream, piece: &mut [u8]) -> bool {
    while client.write_all(piece).is_ok() {}
    false
}

#[test]
fn a_server_answers_with_the_blocks_of_another() {
    let first = Server::start(&PREFILL);
    let alone = complete(&first, json!({}));
    let second = fetching_server("both", (first.address, PATIENT), &[]);
    let with_blocks = complete(&second, json!({}));
    assert_eq!(text(&with_blocks), text(&alone));
    assert_eq!(cached(&alone), 0);
    assert!(cached(&with_blocks) > 200, "{with_blocks}");
    let transfer = get(second.address, "/v1/status").json()["engine"]["kv_transfer"].clone();
    assert!(transfer["fetch"]["fetched_blocks_total"].as_u64() > Some(5), "{transfer}");
    assert_eq!(transfer["fetch"]["peers"][0]["usable"], true, "{transfer}");
    let served = get(first.address, "/v1/status").json()["engine"]["kv_transfer"].clone();
    assert_eq!(served["served_blocks_total"], transfer["fetch"]["fetched_blocks_total"]);
    let metrics = get(second.address, "/metrics").body;
    assert!(metrics.contains("omnibus_kv_peer_failures_total{reason=\"timeout\"} 0"), "{metrics}");
    // Another tenant's blocks have other hashes.
    let salted = complete(&second, json!({"cache_salt": "other"}));
    assert_eq!((text(&salted), cached(&salted)), (text(&alone), 0));
}

/// Only the server that decodes gets the request.
#[test]
fn a_server_that_decodes_has_prompts_computed_by_its_peer() {
    let first = Server::start(&PREFILL);
    let second = decode_server(first.address, &[]);
    let answer = complete(&second, json!({}));
    assert!(cached(&answer) > 200, "{answer}");
    let fetch = get(second.address, "/v1/status").json()["engine"]["kv_transfer"]["fetch"].clone();
    assert_eq!(fetch["prefills_total"], 1, "{fetch}");
    assert!(fetch["prefill_tokens_total"].as_u64() > Some(200), "{fetch}");
    assert_eq!(text(&answer), text(&complete(&first, json!({}))));
    // Its tenant's blocks: another salt has its own.
    let salted = complete(&second, json!({"cache_salt": "other"}));
    assert_eq!(text(&salted), text(&answer));
    let metrics = get(first.address, "/metrics").body;
    assert!(metrics.contains("omnibus_requests_total{api=\"kv_prefill\",outcome=\"stop\""), "{metrics}");
}

#[test]
fn blocks_on_the_disk_of_another_server_are_fetched() {
    let folder = Folder::new("kv-peer-disk");
    let cache = std::path::Path::new(folder.path()).join("cache");
    let arguments = [&PREFILL[..], &["--cache-dir", cache.to_str().unwrap()]].concat();
    let alone = {
        let first = Server::start(&arguments);
        let alone = complete(&first, json!({}));
        first.signal("TERM");
        assert!(first.wait().0.success());
        alone
    };
    let first = Server::start(&arguments);
    let with_blocks = complete(&decode_server(first.address, &[]), json!({}));
    assert_eq!(text(&with_blocks), text(&alone));
    assert!(cached(&with_blocks) > 200, "{with_blocks}");
}

#[test]
fn a_peer_that_fails_costs_its_blocks_and_no_answer() {
    let first = Server::start(&PREFILL);
    let alone = complete(&first, json!({}));
    type Act = fn(&mut TcpStream, &mut [u8]) -> bool;
    let cases: [(Act, &str, &str); 4] = [
        (flip, PATIENT, "invalid_total"),
        (cut, PATIENT, "unreachable_total"),
        (hang, IMPATIENT, "timeout_total"),
        (flood, PATIENT, "invalid_total"),
    ];
    for (act, timeout, reason) in cases {
        let second = fetching_server("decode", (relay(first.address, 4000, act), timeout), &[]);
        let answer = complete(&second, json!({}));
        assert_eq!(text(&answer), text(&alone), "{reason}");
        check_failure(&second, reason);
    }
}

#[test]
fn a_peer_with_another_format_or_role_or_none_at_all_is_not_used() {
    let first = Server::start(&PREFILL);
    let alone = complete(&first, json!({}));
    let other_format = decode_server(first.address, &["--block-size", "16"]);
    let answer = complete(&other_format, json!({}));
    assert_eq!((text(&answer), cached(&answer)), (text(&alone), 0));
    check_failure(&other_format, "other_model_total");
    let chained = decode_server(other_format.address, &[]);
    assert_eq!(text(&complete(&chained, json!({}))), text(&alone));
    // It serves no blocks.
    check_failure(&chained, "refused_total");
    let no_peer = decode_server("127.0.0.1:1".parse().unwrap(), &[]);
    assert_eq!(text(&complete(&no_peer, json!({}))), text(&alone));
    check_failure(&no_peer, "unreachable_total");
}

/// What vLLM's proxy does: the prompt to one server, then what its answer says to the other one.
#[test]
fn a_proxy_hands_a_prompt_from_one_server_to_the_other() {
    let prefill = Server::start(&PREFILL);
    let decode = decode_server(prefill.address, &[]);
    let remote_decode = json!({
        "do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": null,
        "remote_block_ids": null, "remote_host": null, "remote_port": null,
    });
    let computed = complete(&prefill, json!({"max_tokens": 1, "kv_transfer_params": remote_decode}));
    let params = computed["kv_transfer_params"].clone();
    assert_eq!((&params["do_remote_prefill"], &params["do_remote_decode"]), (&json!(true), &json!(false)));
    assert_eq!(params["remote_engine_id"], computed["id"]);
    let sessions = get(prefill.address, "/v1/sessions").json();
    assert_eq!(sessions["data"][0]["id"], computed["id"], "its blocks are kept: {sessions}");
    let answer = complete(&decode, json!({"kv_transfer_params": params}));
    assert!(cached(&answer) > 200, "{answer}");
    assert_eq!(answer["kv_transfer_params"], Value::Null);
    assert_eq!(text(&answer), text(&complete(&prefill, json!({}))));
    let both =
        json!({"prompt": "a", "kv_transfer_params": {"do_remote_decode": true, "do_remote_prefill": true}});
    let refused = post(decode.address, "/v1/completions", &both.to_string());
    assert_eq!((refused.status, &refused.error()["param"]), (400, &json!("kv_transfer_params")));
}
