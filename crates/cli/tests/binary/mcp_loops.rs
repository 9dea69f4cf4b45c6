//! Loops of tools with the embedded model: what of each turn's prompt is cached, and that no blocks stay in use.

use omnibus_testing::client::{JSON, request, send_and_leave};
use omnibus_testing::mcp::{configuration, entry_with};
use serde_json::{Value, json};

use super::client::{get, post};
use super::process::Server;

/// Least share of a turn's prompt that is cached, once its conversation has begun.
const CACHED_SHARE_MIN: f64 = 0.98;

/// A server with the embedded model, whose prefix cache is empty, and the tool `folder` of an MCP server.
fn server(folder: &std::path::Path) -> Server {
    let path = folder.join("mcp.json");
    let entry = entry_with(&[], json!({"approval": "never"}));
    std::fs::write(&path, configuration(&[("s", entry)], json!({"auto": ["s/folder"]}))).unwrap();
    let config = path.to_str().unwrap();
    let server = Server::start(&["--log", "error", "--kv-cache-memory", "256MiB", "--mcp-config", config]);
    while get(server.address, "/v1/mcp/tools").json()["count"] == 0 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    server
}

fn words() -> String {
    "The bus stops at the town hall. ".repeat(220)
}

/// An API: its path, a request that has to call the tool, the field of its most tokens, and where its usage has the tokens of
/// prompts and the cached ones.
type Api = (&'static str, Value, &'static str, fn(&Value) -> (u64, u64));

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn apis() -> [Api; 3] {
    let message = json!([{"role": "user", "content": words()}]);
    let chat = json!({"messages": message, "tools": "auto", "temperature": 0,
        "tool_choice": {"type": "function", "function": {"name": "s__folder"}}});
    let responses = json!({"input": words(), "temperature": 0,
        "tools": [{"type": "mcp", "server_label": "s", "allowed_tools": ["folder"]}],
        "tool_choice": {"type": "mcp", "server_label": "s", "name": "folder"}});
    let toolset = json!({"type": "mcp_toolset", "mcp_server_name": "s", "default_config": {"enabled": false},
        "configs": {"folder": {"enabled": true}}});
    let messages = json!({"model": "m", "messages": message, "tools": [toolset], "temperature": 0,
        "mcp_servers": [{"type": "url", "name": "s"}], "tool_choice": {"type": "tool", "name": "s__folder"}});
    let of_chat = |usage: &Value| {
        (number(&usage["prompt_tokens"]), number(&usage["prompt_tokens_details"]["cached_tokens"]))
    };
    let of_responses = |usage: &Value| {
        (number(&usage["input_tokens"]), number(&usage["input_tokens_details"]["cached_tokens"]))
    };
    let of_messages = |usage: &Value| {
        let cached = number(&usage["cache_read_input_tokens"]);
        (number(&usage["input_tokens"]) + cached, cached)
    };
    [
        ("/v1/chat/completions", chat, "max_tokens", of_chat),
        ("/v1/responses", responses, "max_output_tokens", of_responses),
        ("/v1/messages", messages, "max_tokens", of_messages),
    ]
}

/// The tokens of all prompts of a request, and those that were cached.
fn usage(server: &Server, (path, body, limit, read): &Api, most: u64) -> (u64, u64) {
    let mut body = body.clone();
    body[*limit] = json!(most);
    let reply = post(server.address, path, &body.to_string());
    assert_eq!(reply.status, 200, "{}", reply.body);
    let reply = reply.json();
    // A call and its result are in the answer where a second turn was made.
    assert_eq!(reply.to_string().contains("omnibus-mcp-"), most > 1, "{reply}");
    read(&reply["usage"])
}

/// Waits until no sequence has blocks.
fn blocks_are_free(server: &Server) {
    let used = || get(server.address, "/v1/status").json()["engine"]["kv_blocks_used"].clone();
    let since = std::time::Instant::now();
    while used() != 0 {
        assert!(since.elapsed().as_secs() < 60, "{} blocks stay in use", used());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn each_turn_of_a_loop_has_its_prompt_cached() {
    for api in apis() {
        let folder = tempfile::tempdir().unwrap();
        let server = server(folder.path());
        let (both, cached) = usage(&server, &api, 60);
        // The first turn again: it ends before its call is complete. Nothing of it was cached before.
        let (first, again) = usage(&server, &api, 1);
        let share = cached as f64 / (both - first) as f64;
        println!("{}: the second turn has {cached} of {} tokens cached: {share:.4}", api.0, both - first);
        assert!((CACHED_SHARE_MIN..=1.0).contains(&share), "{}: {share}", api.0);
        let share = again as f64 / first as f64;
        assert!(share >= CACHED_SHARE_MIN, "{}: of a prompt that was computed before {share}", api.0);
        blocks_are_free(&server);
    }
}

#[test]
fn clients_that_leave_during_a_loop_leave_no_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    for (path, mut body, limit, _) in apis() {
        body[limit] = json!(60);
        body["stream"] = json!(true);
        for read in [0, 300, 1500] {
            let bytes = request("POST", path, &[JSON], body.to_string().as_bytes());
            send_and_leave(server.address, &bytes, read);
        }
    }
    blocks_are_free(&server);
}
