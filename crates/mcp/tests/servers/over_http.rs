//! Servers at URLs.

use omnibus_mcp::ServerState;
use omnibus_testing::mcp::HttpServer;
use serde_json::json;

use super::{failure, server, status, text};

#[tokio::test]
async fn answers_come_as_json_or_as_events_in_both_generations() {
    for modes in [&[][..], &["sse"], &["modern"], &["modern", "sse"]] {
        let folder = tempfile::tempdir().unwrap();
        let http = HttpServer::start(modes, "", folder.path());
        let servers = server(json!({"url": http.url()})).await;
        assert_eq!(status(&servers).state, ServerState::Ready, "{modes:?}");
        assert_eq!(text(&servers, "echo", json!({"text": "hi"})).await, "hi", "{modes:?}");
    }
}

#[tokio::test]
async fn headers_are_sent_and_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let http = HttpServer::start(&[], "sk-do-not-show", folder.path());
    let with =
        |token: &str| json!({"url": http.url(), "headers": {"Authorization": format!("Bearer {token}")}});
    let servers = server(with("sk-do-not-show")).await;
    assert_eq!(text(&servers, "echo", json!({"text": "hi"})).await, "hi");
    let servers = server(with("sk-wrong-token")).await;
    assert!(!failure(&servers).contains("sk-wrong-token"), "{}", failure(&servers));
}

#[tokio::test]
async fn a_server_that_is_gone_is_named_as_such() {
    let servers = server(json!({"url": "http://127.0.0.1:9/mcp"})).await;
    assert!(!failure(&servers).is_empty());
}
