//! Blocks that are rendered as text: documents, search results, results of servers' tools and compactions.

use expect_test::expect;
use serde_json::json;

use super::*;

fn user(content: Value) -> Value {
    json!([{"role": "user", "content": content}])
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[test]
fn search_results_have_their_source_and_all_their_texts() {
    let result = json!({"type": "search_result", "source": "https://a.example", "title": "A \"b\"",
        "content": [text("one"), text("two")], "citations": {"enabled": true}});
    check(
        user(json!([result, text("so?")])),
        json!({}),
        expect![[
            r#"user: "<search_result title=\"A \\\"b\\\"\" source=\"https://a.example\">\none\n\ntwo\n</search_result>\n\nso?""#
        ]],
    );
    check(
        user(json!([{"type": "tool_result", "tool_use_id": "1", "content": [result]}])),
        json!({}),
        expect![[
            r#"tool: result 1 "<search_result title=\"A \\\"b\\\"\" source=\"https://a.example\">\none\n\ntwo\n</search_result>""#
        ]],
    );
}

#[test]
fn documents_have_their_title_context_and_blocks() {
    let document = |source: Value| json!({"type": "document", "source": source});
    let plain = document(json!({"type": "text", "media_type": "text/plain", "data": "plain"}));
    check(user(json!([plain])), json!({}), expect![[r#"user: "plain""#]]);
    let image =
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}});
    let blocks = document(json!({"type": "content", "content": [text("a"), image, text("b")]}));
    check(user(json!([blocks])), json!({}), expect![[r#"user: "a", Image(MediaIndex(0)), "b""#]]);
    let mut titled = document(json!({"type": "content", "content": "inside"}));
    titled["title"] = "T".into();
    titled["context"] = "from a test".into();
    check(
        user(json!([titled])),
        json!({}),
        expect![[r#"user: "<document title=\"T\">\nfrom a test\n\ninside\n</document>""#]],
    );
    let pdf = document(json!({"type": "url", "url": "https://a.example/a.pdf"}));
    check(user(json!([pdf])), json!({}), expect![[r#"user: "[document: this model reads text only]""#]]);
}

#[test]
fn what_tools_of_servers_returned_is_text_in_the_answer() {
    check(
        json!([{"role": "assistant", "content": [
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
            {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [
                {"type": "web_search_result", "title": "T", "url": "https://t.example", "encrypted_content": "E", "page_age": "May 1"},
                {"type": "web_search_result", "title": "U", "url": "https://u.example", "encrypted_content": "E"}]},
            {"type": "web_search_tool_result", "tool_use_id": "s2",
                "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}},
            {"type": "web_fetch_tool_result", "tool_use_id": "s3", "content": {"type": "web_fetch_result",
                "url": "https://t.example", "retrieved_at": "2026", "content": {"type": "document", "title": "T",
                    "source": {"type": "text", "media_type": "text/plain", "data": "page"}}}},
            {"type": "code_execution_tool_result", "tool_use_id": "s4", "content":
                {"type": "code_execution_result", "stdout": "out", "stderr": "err", "return_code": 1, "content": []}},
            {"type": "bash_code_execution_tool_result", "tool_use_id": "s5", "content":
                {"type": "bash_code_execution_result", "stdout": "out", "stderr": "", "return_code": 0, "content": []}},
            {"type": "mcp_tool_use", "id": "m1", "name": "echo", "server_name": "s", "input": {}},
            {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": false, "content": [text("x"), text("y")]},
            {"type": "mcp_tool_result", "tool_use_id": "m1", "content": "z"},
            text("done"),
        ]}]),
        json!({}),
        expect![[
            r#"assistant: "<server_tool_use name=\"web_search\">\n{\"query\":\"q\"}\n</server_tool_use>\n\n<web_search_tool_result>\nT\nhttps://t.example\nMay 1\n\nU\nhttps://u.example\n</web_search_tool_result>\n\n<web_search_tool_result>\nThe tool failed: max_uses_exceeded\n</web_search_tool_result>\n\n<web_fetch_tool_result>\nhttps://t.example\n<document title=\"T\">\npage\n</document>\n</web_fetch_tool_result>\n\n<code_execution_tool_result>\nout\nerr\nThe exit code is 1.\n</code_execution_tool_result>\n\n<bash_code_execution_tool_result>\nout\n</bash_code_execution_tool_result>\n\n<mcp_tool_use name=\"echo\" server_name=\"s\">\n{}\n</mcp_tool_use>\n\n<mcp_tool_result>\nx\n\ny\n</mcp_tool_result>\n\n<mcp_tool_result>\nz\n</mcp_tool_result>\n\ndone""#
        ]],
    );
}

#[test]
fn files_and_tools_that_servers_worked_on_are_text() {
    let edited = |content: Value| {
        let block =
            json!({"type": "text_editor_code_execution_tool_result", "tool_use_id": "1", "content": content});
        let messages = chat_of(user(json!([block])), json!({})).messages;
        lines(&messages)
            .replace("<text_editor_code_execution_tool_result>", "")
            .replace("</text_editor_code_execution_tool_result>", "")
    };
    let kind = |kind: &str| format!("text_editor_code_execution_{kind}_result");
    let view = json!({"type": kind("view"), "content": "a\nb", "file_type": "text", "num_lines": 2});
    expect![[r#"user: "\na\nb\n""#]].assert_eq(&edited(view));
    let created = json!({"type": kind("create"), "is_file_update": false});
    expect![[r#"user: "\nThe file was created.\n""#]].assert_eq(&edited(created));
    let updated = json!({"type": kind("create"), "is_file_update": true});
    expect![[r#"user: "\nThe file was overwritten.\n""#]].assert_eq(&edited(updated));
    let replaced = json!({"type": kind("str_replace"), "lines": ["-a", "+b"], "old_start": 1});
    expect![[r#"user: "\n-a\n+b\n""#]].assert_eq(&edited(replaced));
    let found = json!({"type": "tool_search_tool_search_result", "tool_references": [
        {"type": "tool_reference", "tool_name": "a"}, {"type": "tool_reference", "tool_name": "b"}]});
    expect![[r#"user: "\na\nb\n""#]].assert_eq(&edited(found));
    expect![[r#"user: "\n\n""#]].assert_eq(&edited(json!({"type": "result_of_tomorrow"})));
}

#[test]
fn a_compaction_replaces_all_before_it() {
    let compaction = |content: Value| json!({"type": "compaction", "content": content, "signature": "s"});
    let messages = |content: Value| {
        json!([
            {"role": "user", "content": "old"},
            {"role": "assistant", "content": [text("older"), content, text("after")]},
            {"role": "user", "content": "new"},
        ])
    };
    check(
        messages(compaction(json!("in short"))),
        json!({"system": "s"}),
        expect![[r#"
            system: "s"
            user: "in short"
            assistant: "after"
            user: "new""#]],
    );
    check(
        messages(compaction(json!(null))),
        json!({}),
        expect![[r#"
            user: "old"
            assistant: "older\n\nafter"
            user: "new""#]],
    );
    let twice = json!([
        {"role": "assistant", "content": [compaction(json!("first"))]},
        {"role": "user", "content": "old"},
        {"role": "assistant", "content": [compaction(json!("second"))]},
        {"role": "user", "content": "new"},
    ]);
    check(
        twice,
        json!({}),
        expect![[r#"
            user: "second"
            user: "new""#]],
    );
}

#[test]
fn broken_blocks_are_refused_by_name() {
    let refused = |block: Value, expected: Expect| {
        expected.assert_eq(&read(with(user(json!([block])), json!({}))).unwrap_err());
    };
    refused(
        json!({"type": "search_result", "content": 3}),
        expect![
            "messages[0].content[0].content: `messages[0].content[0].content` must be a string or a list of blocks, not an integer"
        ],
    );
    refused(
        json!({"type": "mcp_tool_result", "content": [3]}),
        expect![
            "messages[0].content[0].content[0]: `messages[0].content[0].content[0]` must be an object, not an integer"
        ],
    );
    refused(
        json!({"type": "web_fetch_tool_result", "content": {"text": "x"}}),
        expect![
            "messages[0].content[0].content[0].type: `messages[0].content[0].content[0].type` is missing"
        ],
    );
    refused(
        json!({"type": "compaction", "content": []}),
        expect![
            "messages[0].content[0].content: `messages[0].content[0].content` must be a string, not a list"
        ],
    );
}
