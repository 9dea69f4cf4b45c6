//! Tests of the configuration.

use expect_test::{Expect, expect};

use super::*;
use crate::place::Place;

fn read(text: &str) -> Result<Config, String> {
    Config::read(text, &|name| (name == "TOKEN").then(|| "sk-secret".to_owned()))
}

fn refused(text: &str, expected: &Expect) {
    expected.assert_eq(&read(text).map(|_| "accepted".to_owned()).unwrap_or_else(|why| why));
}

#[test]
fn a_file_of_claude_desktop_is_read() {
    let config = read(
        r#"{"mcpServers": {
            "files": {"command": "npx", "args": ["-y", "pkg", "/data"], "env": {"KEY": "${TOKEN}"}},
            "docs": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"},
                "alwaysAllow": ["search"], "timeout": 5},
            "off": {"command": "x", "disabled": true}},
          "globalShortcut": "", "omnibus": {"maxRounds": 3, "auto": ["docs/search"]}}"#,
    )
    .unwrap();
    assert_eq!(config.servers.keys().collect::<Vec<_>>(), ["docs", "files"]);
    let Place::Process { command, args, env, .. } = &config.servers["files"].place else { unreachable!() };
    assert_eq!((command.as_str(), args.len(), env["KEY"].as_str()), ("npx", 3, "sk-secret"));
    let docs = &config.servers["docs"];
    let Place::Http { headers, .. } = &docs.place else { unreachable!() };
    assert_eq!(headers["Authorization"], "Bearer sk-secret");
    assert_eq!((docs.approval.rule("search"), docs.approval.rule("write")), (Rule::Never, Rule::Always));
    assert_eq!((docs.timeout.as_secs(), config.limits.rounds, config.auto.len()), (5, 3, 1));
    assert!(!format!("{config:?}").contains("sk-secret"));
}

#[test]
fn vs_codes_root_is_read_and_a_file_of_other_settings_is_refused() {
    assert_eq!(read(r#"{"servers": {"a": {"command": "x"}}}"#).unwrap().servers.len(), 1);
    refused(r#"{"mcp": {}}"#, &expect!["has no `mcpServers`"]);
    refused(r#"{"mcpServers": {}, "servers": {}}"#, &expect!["has both `mcpServers` and `servers`"]);
}

#[test]
fn the_search_of_the_web_is_a_tool_without_approvals() {
    let config = |approval: &str, search: &str| {
        let server = format!(r#"{{"command": "x", "approval": {approval}}}"#);
        read(&format!(r#"{{"mcpServers": {{"s": {server}}}, "omnibus": {{"webSearch": "{search}"}}}}"#))
    };
    let found = config(r#"{"never": ["find"]}"#, "s/find").unwrap().web_search.unwrap();
    assert_eq!((found.server.as_str(), found.tool.as_str()), ("s", "find"));
    let refused = |approval: &str, search: &str| config(approval, search).unwrap_err();
    assert_eq!(refused("\"never\"", "s"), "`omnibus.webSearch` must be a tool, as `server/tool`, not `s`");
    assert_eq!(
        refused("\"never\"", "t/find"),
        "`omnibus.webSearch` names the server `t`, which is not configured or disabled"
    );
    assert_eq!(
        refused("\"always\"", "s/find"),
        "`omnibus.webSearch` names `s/find`, whose calls need an approval; add `\"approval\": {\"never\": [\"find\"]}` to the server"
    );
}

#[test]
fn what_is_wrong_is_named() {
    let server = |entry: &str| format!(r#"{{"mcpServers": {{"a": {entry}}}}}"#);
    for (entry, expected) in [
        (r#"{}"#, "the server `a`: needs a `command` or a `url`"),
        (r#"{"type": "http"}"#, "the server `a`: needs a `url`"),
        (r#"{"command": "x", "url": "http://y"}"#, "the server `a`: has both `command` and `url`"),
        (r#"{"url": "file:///x"}"#, "the server `a`: `url` must begin with http:// or https://"),
        (
            r#"{"command": "x", "env": {"A": "${B}"}}"#,
            "the server `a`: `env.A` needs the variable B, which is not set",
        ),
        (
            r#"{"command": "x", "timeout": 0}"#,
            "the server `a`: `timeout` must be a number of seconds above 0",
        ),
        (
            r#"{"command": "x", "timeout": -1e300}"#,
            "the server `a`: `timeout` must be a number of seconds above 0",
        ),
        (
            r#"{"command": "x", "sandbox": {"mode": "no"}}"#,
            "the server `a`: `sandbox.mode` must be `auto`, `required` or `off`",
        ),
        (
            r#"{"command": "x", "sandbox": {"writable": ["a"]}}"#,
            "the server `a`: `sandbox.writable` has `a`, which is not an absolute path",
        ),
        (r#"{"command": "x", "memoryBytes": 5}"#, "the server `a`: `memoryBytes` must be at least 1048576"),
        (
            r#"{"type": "sse", "url": "http://y"}"#,
            "the server `a`: `type` is `sse`, an old transport that is not supported; use streamable HTTP (`http`)",
        ),
    ] {
        assert_eq!(read(&server(entry)).unwrap_err(), expected);
    }
    let unknown = read(&server(r#"{"command": "x", "envFile": ".env"}"#)).unwrap_err();
    assert!(unknown.starts_with("the server `a`: unknown field `envFile`"), "{unknown}");
    refused(
        r#"{"mcpServers": {"a/b": {"command": "x"}}}"#,
        &expect!["the server name `a/b` must have 1 to 64 characters, without `/`"],
    );
    refused(
        r#"{"mcpServers": {}, "omnibus": {"auto": ["a"]}}"#,
        &expect!["`omnibus` names the server `a`, which is not configured or disabled"],
    );
    refused(
        r#"{"mcpServers": {}, "omnibus": {"maxRounds": 0}}"#,
        &expect!["`omnibus.maxRounds` must be at least 1"],
    );
}
