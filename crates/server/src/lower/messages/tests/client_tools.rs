//! Tools that the client runs and that come without a schema.

use expect_test::expect;
use serde_json::json;

use super::*;

fn tools(tools: Value) -> Result<Vec<Tool>, String> {
    let request = read(with(json!([{"role": "user", "content": "hi"}]), json!({"tools": tools})))?;
    match request.input {
        Input::Chat(chat) => Ok(chat.tools),
        other => Err(format!("{other:?}")),
    }
}

/// Names, properties of the input, and the values of the first property if it has some.
fn shape(tool: &Tool) -> String {
    let definition = tool.definition()["function"]["parameters"].clone();
    let properties = definition["properties"].as_object().unwrap();
    let names: Vec<&str> = properties.keys().map(String::as_str).collect();
    let values = properties.values().next().and_then(|first| first.get("enum")).and_then(Value::as_array);
    let values = values.map_or(0, Vec::len);
    format!("{}: {} ({values}) {}", tool.name, names.join(" "), definition["required"])
}

#[test]
fn tools_of_the_client_have_the_documented_shape() {
    let all = tools(json!([
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250124", "name": "str_replace_editor"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 9},
        {"type": "memory_20250818", "name": "memory", "cache_control": {"type": "ephemeral"}},
        {"type": "computer_20241022", "name": "computer", "display_width_px": 800, "display_height_px": 600, "display_number": 1},
        {"type": "computer_20251124", "name": "zoomed", "display_width_px": 800, "display_height_px": 600, "enable_zoom": true},
    ]))
    .unwrap();
    let shapes: Vec<String> = all.iter().map(shape).collect();
    expect![[r#"
        bash: command restart (0) null
        str_replace_editor: command path file_text old_str new_str insert_line view_range (5) ["command","path"]
        str_replace_based_edit_tool: command path file_text old_str new_str insert_line view_range insert_text (4) ["command","path"]
        memory: command path view_range file_text old_str new_str insert_line insert_text old_path new_path (6) ["command"]
        computer: action coordinate text (10) ["action"]
        zoomed: action coordinate text start_coordinate duration scroll_direction scroll_amount region (17) ["action"]"#]]
    .assert_eq(&shapes.join("\n"));
    let computer = all[4].definition()["function"]["description"].to_string();
    assert!(computer.contains("800x600 pixels"), "{computer}");
}

#[test]
fn a_schema_of_the_client_replaces_the_documented_one() {
    let own = json!({"type": "bash_20250124", "name": "bash", "description": "mine", "input_schema": {"type": "object"}});
    let mine = &tools(json!([own])).unwrap()[0];
    assert_eq!(mine.definition()["function"]["description"], "mine");
    assert_eq!(mine.definition()["function"]["parameters"], json!({"type": "object"}));
}

#[test]
fn what_cannot_be_called_is_refused_by_name_and_servers_tools_are_left_out() {
    let left_out = json!([{"type": "web_search_20260318", "name": "web_search"},
        {"type": "mcp_toolset", "mcp_server_name": "s"}, {"type": "tool_of_tomorrow"}]);
    assert_eq!(tools(left_out).unwrap(), []);
    let refused = |tool: Value, expected: Expect| expected.assert_eq(&tools(json!([tool])).unwrap_err());
    refused(
        json!({"type": "computer_toolset_20260801"}),
        expect![
            "tools[0].type: tools[0].type: `computer_toolset_20260801`: toolsets are not supported; use `computer_20251124`"
        ],
    );
    refused(
        json!({"type": "browser_toolset_20260801"}),
        expect![
            "tools[0].type: tools[0].type: `browser_toolset_20260801`: toolsets are not supported; describe the tools with `input_schema`"
        ],
    );
    refused(
        json!({"type": "bash_20300101", "name": "bash"}),
        expect![
            "tools[0].type: tools[0].type: `bash_20300101`: this version is not known; describe the tool with `input_schema`"
        ],
    );
    refused(json!({"type": "bash_20250124"}), expect!["tools[0].name: `tools[0].name` is missing"]);
}
