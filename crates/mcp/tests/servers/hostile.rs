//! Servers that do what they should not. Each costs its own calls, and nothing else.

use std::time::Duration;

use omnibus_mcp::{CallError, ServerState, ToolState};
use omnibus_testing::mcp::{entry, entry_with};
use serde_json::json;

use super::{call, failure, http, server, servers, status, text, until};

/// A server with a short limit of calls.
async fn hasty(modes: &[&str]) -> omnibus_mcp::Servers {
    server(entry_with(modes, json!({"timeout": 2}))).await
}

#[tokio::test]
async fn a_call_without_an_answer_ends_in_time_and_others_go_on() {
    let servers = hasty(&[]).await;
    let (never, echo) =
        tokio::join!(call(&servers, "never", json!({})), text(&servers, "echo", json!({"text": "hi"})));
    assert!(matches!(never, Err(CallError::TimedOut { .. })), "{never:?}");
    assert_eq!(echo, "hi");
    assert_eq!(status(&servers).starts, 1);
}

#[tokio::test]
async fn a_server_that_answers_nothing_is_started_again() {
    let servers = hasty(&[]).await;
    let never = || call(&servers, "never", json!({}));
    let (one, two, three) = tokio::join!(never(), never(), never());
    for outcome in [one, two, three] {
        assert!(matches!(outcome, Err(CallError::TimedOut { .. })), "{outcome:?}");
    }
    until(|| status(&servers).starts >= 2 && status(&servers).state == ServerState::Ready).await;
    assert_eq!(text(&servers, "echo", json!({"text": "again"})).await, "again");
}

#[tokio::test]
async fn an_answer_of_a_gigabyte_ends_at_the_limit_of_a_message() {
    let servers = server(entry(&[])).await;
    let error = call(&servers, "huge", json!({})).await.unwrap_err();
    assert!(matches!(error, CallError::Unavailable { .. }), "{error}");
    until(|| matches!(status(&servers).state, ServerState::Failed(_)) || status(&servers).starts >= 2).await;
    if status(&servers).starts == 1 {
        assert!(failure(&servers).contains("a message of more than"), "{}", failure(&servers));
    }
    until(|| status(&servers).starts >= 2 && status(&servers).state == ServerState::Ready).await;
    assert_eq!(text(&servers, "echo", json!({"text": "again"})).await, "again");
}

#[tokio::test]
async fn a_flood_of_notifications_ends_a_server() {
    let servers = server(entry(&["flood"])).await;
    until(|| status(&servers).starts >= 2 || matches!(status(&servers).state, ServerState::Failed(_))).await;
    if let ServerState::Failed(why) = status(&servers).state {
        assert!(why.contains("messages or"), "{why}");
    }
}

#[tokio::test]
async fn a_tool_that_changes_is_not_offered_any_more() {
    let servers = server(entry(&[])).await;
    assert_eq!(text(&servers, "change", json!({})).await, "changed");
    let state = |name: &str| {
        let tools = status(&servers).tools;
        tools.iter().find(|tool| tool.definition.name == name).map(|tool| tool.state)
    };
    until(|| state("late").is_some()).await;
    assert_eq!((state("echo"), state("late")), (Some(ToolState::Changed), Some(ToolState::New)));
    assert_eq!(state("add"), Some(ToolState::Offered));
    let error = call(&servers, "echo", json!({"text": "hi"})).await.unwrap_err();
    assert!(error.to_string().contains("is not the pinned one"), "{error}");
    assert!(servers.tools().iter().all(|tool| !["echo", "late"].contains(&tool.definition.name.as_str())));
    // A process that is started again is not changed any more, and its tools are the pinned ones.
    _ = call(&servers, "die", json!({})).await;
    until(|| status(&servers).starts >= 2 && status(&servers).state == ServerState::Ready).await;
    assert_eq!(state("echo"), Some(ToolState::Offered));
}

#[tokio::test]
async fn a_server_that_dies_fails_its_call_and_is_started_again() {
    let servers = servers(&[
        ("s", entry_with(&[], json!({"env": {"SECRET": "sk-do-not-show"}}))),
        ("other", entry(&["modern"])),
    ])
    .await;
    let error = call(&servers, "die", json!({})).await.unwrap_err();
    assert!(matches!(error, CallError::Unavailable { .. }), "{error}");
    until(|| matches!(status(&servers).state, ServerState::Failed(_)) || status(&servers).starts >= 2).await;
    if let ServerState::Failed(why) = status(&servers).state {
        assert!(why.contains("the key is ***") && !why.contains("sk-do-not-show"), "{why}");
    }
    until(|| status(&servers).starts >= 2 && status(&servers).state == ServerState::Ready).await;
    assert_eq!(text(&servers, "echo", json!({"text": "again"})).await, "again");
    let other = servers.statuses().into_iter().find(|status| status.name == "other").unwrap();
    assert_eq!((other.state, other.starts), (ServerState::Ready, 1));
}

#[tokio::test]
async fn lists_have_limits() {
    let endless = server(entry(&["endless"])).await;
    assert!(failure(&endless).contains("more than 64 pages"), "{}", failure(&endless));
    let twins = server(entry(&["twins"])).await;
    assert!(failure(&twins).contains("lists the tool `echo` twice"), "{}", failure(&twins));
}

#[tokio::test]
async fn a_server_that_does_not_start_says_why() {
    let exits = server(entry(&["exits"])).await;
    assert!(failure(&exits).contains("it last logged: no license"), "{}", failure(&exits));
    let silent = server(entry_with(&["silent"], json!({"startTimeout": 0.5}))).await;
    assert!(failure(&silent).contains("did not list its tools within 0.5 s"), "{}", failure(&silent));
    let missing = server(json!({"command": "there-is-no-such-program"})).await;
    assert!(failure(&missing).contains("there-is-no-such-program"), "{}", failure(&missing));
    let folder = server(json!({"command": "true", "cwd": "/there/is/none"})).await;
    assert!(failure(&folder).contains("is not a folder"), "{}", failure(&folder));
}

#[tokio::test]
async fn a_silent_server_does_not_hold_up_the_others() {
    let config =
        omnibus_testing::mcp::configuration(&[("s", entry(&["silent"])), ("other", entry(&[]))], json!({}));
    let config = omnibus_mcp::Config::read(&config, &|_| None).unwrap();
    let servers = omnibus_mcp::Servers::start(config, &http()).unwrap();
    until(|| servers.tools().len() == 12).await;
    assert_eq!(status(&servers).state, ServerState::Starting);
    servers.settled(Duration::from_millis(1)).await;
}
