//! MCP servers with the binary: `mcp ls` and `mcp call`, and a model that calls a tool in `serve`, with the real engine.

use std::path::{Path, PathBuf};

use omnibus_testing::mcp::{configuration, entry_with};
use serde_json::{Value, json};

use super::client::{get, post};
use super::process::{Server, run, text};
use super::scripted_model::{FILE, directory};

/// A file of servers, in a folder of its own.
fn file(folder: &Path, entry: Value) -> PathBuf {
    let path = folder.join("mcp.json");
    std::fs::write(&path, configuration(&[("s", entry)], json!({"auto": ["s"]}))).unwrap();
    path
}

fn trusted() -> Value {
    entry_with(&[], json!({"approval": "never", "env": {"SECRET": "sk-do-not-show"}}))
}

/// The exit code, stdout and stderr.
fn result(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = run(arguments);
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn tools_are_listed_with_hashes_pinned_and_called() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), trusted());
    let config = path.to_str().unwrap();
    let (code, shown, errors) = result(&["mcp", "ls", "--mcp-config", config, "--json"]);
    assert_eq!(code, Some(0), "{errors}");
    let listed: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&listed[0]["state"], &listed[0]["protocol"]), (&json!("ready"), &json!("2025-11-25")));
    let hash = listed[0]["tools"][0]["hash"].as_str().unwrap().to_owned();
    assert!(!shown.contains("sk-do-not-show") && !errors.contains("sk-do-not-show"));

    let (code, shown, errors) = result(&["mcp", "ls", "--mcp-config", config, "--pin"]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(shown.starts_with("s  stdio  ready  protocol 2025-11-25  sandbox: "), "{shown}");
    assert!(
        shown.contains(&format!("  s/echo  {}  offered  approval: never  Repeats a text.", &hash[..12])),
        "{shown}"
    );
    let pins: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.path().join("mcp.pins.json")).unwrap()).unwrap();
    assert_eq!(pins["s"]["echo"], json!(hash));

    let call =
        |tool: &str, arguments: &str| result(&["mcp", "call", "--mcp-config", config, tool, arguments]);
    assert_eq!(call("s/add", r#"{"a":1,"b":2}"#), (Some(0), "3\n".into(), String::new()));
    let (code, shown, _) = call("s/fail", "{}");
    assert_eq!((code, shown.as_str()), (Some(1), "it is broken\n"));
    let (code, _, errors) = call("s/add", "{}");
    assert!(code == Some(2) && errors.contains("\"a\" is a required property"), "{errors}");

    // A definition that is not the pinned one is not offered.
    let other = pins.to_string().replace(&hash, &"0".repeat(64));
    std::fs::write(folder.path().join("mcp.pins.json"), other).unwrap();
    let (code, _, errors) = call("s/echo", r#"{"text":"x"}"#);
    assert!(code == Some(1) && errors.contains("is not the pinned one"), "{errors}");
}

#[test]
fn what_is_wrong_with_a_file_is_said_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), json!({"command": "x", "nonsense": 1}));
    for command in [&["mcp", "ls"][..], &["serve", "--port", "0"]] {
        let arguments: Vec<&str> =
            command.iter().copied().chain(["--mcp-config", path.to_str().unwrap()]).collect();
        let (code, _, errors) = result(&arguments);
        assert_eq!(code, Some(2), "{errors}");
        assert!(errors.contains("the server `s`: unknown field `nonsense`"), "{errors}");
    }
    let (code, _, errors) = result(&["mcp", "ls"]);
    assert!(code == Some(2) && errors.contains("pass --mcp-config FILE"), "{errors}");
    let failing = file(folder.path(), entry_with(&["exits"], json!({})));
    let (code, shown, _) = result(&["mcp", "ls", "--mcp-config", failing.to_str().unwrap()]);
    assert!(
        code == Some(1) && shown.contains("s  stdio  failed: ") && shown.contains("no license"),
        "{shown}"
    );
}

#[test]
fn a_model_calls_a_tool_and_its_prompt_stays_cached() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), trusted());
    let model = directory("mcp", &["--tool", "s__echo"]);
    let server = Server::start(&[
        model.to_str().unwrap(),
        "--log",
        "error",
        "--kv-cache-memory",
        "64MiB",
        "--mcp-config",
        path.to_str().unwrap(),
    ]);
    // The MCP server is started beside the model.
    while get(server.address, "/v1/mcp/tools").json()["tools"][0]["name"] != "s__echo" {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let body = json!({"messages": [{"role": "user", "content": "Read the file."}], "tools": "auto", "max_tokens": 100});
    let answer = post(server.address, "/v1/chat/completions", &body.to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer = answer.json();
    let message = &answer["choices"][0]["message"];
    assert!(message["content"].as_str().unwrap().contains("The file says that the word is"), "{answer}");
    let call = &message["mcp_calls"][0];
    assert_eq!(
        (&call["name"], &call["output"], &call["status"]),
        (&json!("echo"), &json!(FILE), &json!("completed"))
    );
    // The second prompt begins with the first and its answer.
    let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!(cached > 0, "{answer}");
}
