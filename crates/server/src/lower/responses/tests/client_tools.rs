//! Tools that the client runs: what the model is shown, and the items of a conversation with them.

use expect_test::expect;

use super::*;
use crate::wire::client_tools::ClientTool;

fn tools(tools: Value) -> Value {
    json!({"input": "hi", "tools": tools})
}

#[test]
fn tools_of_the_client_are_functions_of_their_own_names() {
    let all = json!([{"type": "local_shell"}, {"type": "shell", "environment": {"type": "local", "skills": [
            {"name": "pdf", "description": "reads", "path": "skills/pdf"}]}},
        {"type": "apply_patch"}, {"type": "computer"},
        {"type": "computer_use_preview", "display_width": 800, "display_height": 600, "environment": "linux"}]);
    let (chat, toolbox) = lowered(tools(all)).unwrap();
    assert_eq!(names(&chat).0, ["local_shell", "shell", "apply_patch", "computer", "computer_use_preview"]);
    for tool in &chat.tools {
        let kind = ClientTool::of_type(&tool.name).unwrap();
        assert_eq!((toolbox.kind(&tool.name), &tool.rule), (ToolKind::Client(kind), &CallRule::Strict));
    }
    let about = |index: usize| chat.tools[index].definition()["function"]["description"].to_string();
    assert!(about(1).contains("Skill `pdf` at skills/pdf: reads"), "{}", about(1));
    assert!(about(4).contains("800x600 pixels. The system is linux."), "{}", about(4));
}

#[test]
fn calls_and_outputs_of_the_client_become_messages() {
    check(
        json!({"input": [
            {"role": "user", "content": "hi"},
            {"type": "local_shell_call", "id": "lsh_1", "call_id": "c1", "status": "completed", "action":
                {"type": "exec", "command": ["ls"], "env": {}, "timeout_ms": null}},
            {"type": "local_shell_call_output", "id": "lsh_1", "output": "a b"},
            {"type": "shell_call", "id": "sh_1", "call_id": "c2", "status": "completed", "environment": {"type": "local"},
                "action": {"commands": ["x", "y", "z"], "timeout_ms": null, "max_output_length": 9}},
            {"type": "shell_call_output", "call_id": "c2", "max_output_length": 9, "output": [
                {"stdout": "out", "stderr": "err", "outcome": {"type": "exit", "exit_code": 2}},
                {"stdout": "", "stderr": "", "outcome": {"type": "timeout"}},
                {"stdout": "ok", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
            {"type": "apply_patch_call", "id": "apc_1", "call_id": "c3", "status": "completed",
                "operation": {"type": "update_file", "path": "a", "diff": "@@\n-a\n+b"}},
            {"type": "apply_patch_call_output", "call_id": "c3", "status": "failed", "output": "no such line"},
            {"type": "apply_patch_call_output", "call_id": "c3", "status": "completed"},
            {"type": "computer_call", "id": "cu_1", "call_id": "c4", "status": "completed", "pending_safety_checks": [],
                "action": {"type": "screenshot"}},
            {"type": "computer_call_output", "call_id": "c4", "output": {"type": "computer_screenshot",
                "image_url": "data:image/png;base64,AA"}},
            {"type": "computer_call", "id": "cu_2", "call_id": "c5", "status": "completed", "pending_safety_checks": [],
                "actions": [{"type": "wait"}]},
            {"type": "computer_call_output", "call_id": "c5", "output": {"type": "computer_screenshot", "file_id": "f"}},
        ]}),
        expect![[r#"
            user: "hi"
            assistant: call c1 local_shell Json("{\"command\":[\"ls\"]}")
            tool: result c1 "a b"
            assistant: call c2 shell Json("{\"commands\":[\"x\",\"y\",\"z\"],\"max_output_length\":9}")
            tool: result c2 "out\nerr\nThe exit code is 2.\n\nThe command took too long and was ended.\n\nok"
            assistant: call c3 apply_patch Json("{\"type\":\"update_file\",\"path\":\"a\",\"diff\":\"@@\\n-a\\n+b\"}")
            tool: result c3 "The patch was not applied.\nno such line"
            tool: result c3 "The patch was applied."
            assistant: call c4 computer_use_preview Json("{\"action\":{\"type\":\"screenshot\"}}")
            tool: result c4 "", Image(MediaIndex(0))
            assistant: call c5 computer Json("{\"actions\":[{\"type\":\"wait\"}]}")
            tool: result c5 "[screenshot: this server keeps no files]""#]],
    );
}

#[test]
fn tools_that_cannot_be_had_are_refused_by_name() {
    check(
        tools(json!([{"type": "shell", "environment": {"type": "container_auto"}}])),
        expect![
            "tools[0].environment.type: `tools[0].environment.type` must be `local`: this server has no containers"
        ],
    );
    check(
        tools(json!([{"type": "function", "name": "shell"}, {"type": "shell"}])),
        expect!["tools[1]: `tools[1]` has the name `shell`, as another one of `tools` has"],
    );
    check(
        json!({"input": [{"type": "shell_call", "call_id": "c"}]}),
        expect!["input[0].action: `input[0].action` is missing"],
    );
    check(
        json!({"input": [{"type": "computer_call_output", "call_id": "c"}]}),
        expect!["input[0].output: `input[0].output` is missing"],
    );
    check(
        json!({"input": [{"type": "shell_call_output", "call_id": "c", "output": 3}]}),
        expect!["input[0].output: `input[0].output` must be a list, not an integer"],
    );
    check(
        json!({"input": [{"type": "apply_patch_call_output", "status": "completed"}]}),
        expect!["input[0].call_id: `input[0].call_id` is missing"],
    );
}

#[test]
fn only_allowed_tools_may_be_called() {
    let choice = |names: Value| json!({"type": "allowed_tools", "mode": "required", "tools": names});
    let all = json!([{"type": "shell"}, {"type": "custom", "name": "c"}, {"type": "function", "name": "f"}]);
    let body = |names: Value| json!({"input": "hi", "tools": all, "tool_choice": choice(names)});
    let (chat, _) = lowered(body(json!([{"type": "shell"}, {"type": "function", "name": "f"}]))).unwrap();
    assert_eq!(names(&chat).1, ["shell", "f"]);
    check(
        body(json!([{"type": "custom", "name": "d"}])),
        expect!["tool_choice: `tool_choice` allows `d`, which is none of `tools`"],
    );
}
