//! Lists and calls of servers that do what they should, in both generations of the protocol.

use omnibus_mcp::{CallError, ServerState};
use omnibus_testing::mcp::{entry, entry_with};
use serde_json::json;

use super::{call, server, servers, status, text};

#[tokio::test]
async fn both_generations_of_the_protocol_are_spoken() {
    for (modes, protocol) in [(&[][..], "2025-11-25"), (&["modern"], "2026-07-28")] {
        let servers = server(entry(modes)).await;
        assert_eq!(
            (status(&servers).state, status(&servers).protocol.as_str()),
            (ServerState::Ready, protocol)
        );
        assert_eq!(text(&servers, "echo", json!({"text": "hi"})).await, "hi");
        let sum = call(&servers, "add", json!({"a": 1, "b": 2})).await.unwrap();
        assert_eq!((sum.text.as_str(), sum.structured), ("3", Some(json!({"sum": 3}))));
    }
}

#[tokio::test]
async fn tools_have_the_names_of_their_servers_and_a_fixed_order() {
    let servers = servers(&[("b", entry(&[])), ("a", entry(&["modern"]))]).await;
    let names: Vec<String> = servers.tools().into_iter().map(|tool| tool.offered).collect();
    assert_eq!(names[..2], ["a__echo", "a__add"]);
    assert_eq!(names.len(), 24);
    assert_eq!(servers.find("a__echo").unwrap().server, "a");
    assert_eq!(servers.find("b/echo").unwrap().offered, "b__echo");
    assert_eq!(servers.find("c/echo").unwrap_err(), CallError::Unknown("c/echo".into()));
}

#[tokio::test]
async fn arguments_are_checked_before_a_call() {
    let servers = server(entry(&[])).await;
    let error = call(&servers, "add", json!({"a": 1})).await.unwrap_err();
    assert_eq!(error, CallError::Arguments("\"b\" is a required property".into()));
}

#[tokio::test]
async fn a_tool_that_fails_says_so_to_the_model() {
    let servers = server(entry(&[])).await;
    let outcome = call(&servers, "fail", json!({})).await.unwrap();
    assert!(outcome.is_error);
    assert_eq!(outcome.text, "it is broken");
}

#[tokio::test]
async fn calls_run_beside_each_other() {
    let servers = server(entry(&[])).await;
    // Each is answered once both have come.
    let (one, two) = tokio::join!(text(&servers, "slow", json!({})), text(&servers, "slow", json!({})));
    assert_eq!((one.as_str(), two.as_str()), ("both came", "both came"));
}

#[tokio::test]
async fn tools_that_the_configuration_leaves_out_are_not_offered() {
    let servers = server(entry_with(&[], json!({"allowedTools": ["echo"]}))).await;
    assert_eq!(servers.tools().len(), 1);
    let error = call(&servers, "add", json!({"a": 1, "b": 2})).await.unwrap_err();
    assert!(error.to_string().contains("the configuration does not allow it"), "{error}");
}

#[tokio::test]
async fn a_long_result_is_cut() {
    let servers = server(entry_with(&[], json!({"maxResultBytes": 1000}))).await;
    let text = text(&servers, "long", json!({})).await;
    assert!(
        text.len() < 1100 && text.ends_with("[cut: the result has 300000 bytes, of which 1000 are shown]")
    );
}
