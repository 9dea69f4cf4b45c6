//! Custom tools, allowed tools, and calls in the older shape.

use expect_test::expect;
use omnibus_engine::{CallLimit, InputGrammar, ToolChoice};

use super::*;

fn names(request: &Request) -> Vec<String> {
    match &request.input {
        Input::Chat(chat) => chat.tools.iter().map(|tool| tool.name.clone()).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_custom_tool_is_a_function_of_one_text() {
    let grammar = r#"{"type":"grammar","grammar":{"syntax":"regex","definition":"a+"}}"#;
    let request = lowered(&format!(
        r#""tools":[{{"type":"custom","custom":{{"name":"c","description":"C.","format":{grammar}}}}}],"tool_choice":{{"type":"custom","custom":{{"name":"c"}}}}"#
    ));
    assert_eq!(request.tool_choice, ToolChoice::Function("c".into()));
    let Input::Chat(chat) = request.input else { panic!() };
    assert_eq!(chat.tools[0].rule, CallRule::Input(InputGrammar::Regex("a+".into())));
    expect![[
        r#"{"type":"function","function":{"name":"c","description":"C.","parameters":{"type":"object","properties":{"input":{"type":"string","description":"Text of this grammar:\na+"}},"required":["input"]}}}"#
    ]]
    .assert_eq(&chat.tools[0].definition().to_string());
    check_refused(r#""tools":[{"type":"custom"}]"#, expect!["tools[0].custom: `tools[0].custom` is missing"]);
    check_refused(
        r#""tools":[{"type":"custom","custom":{"name":"c"},"function":{}}]"#,
        expect!["tools[0].function: `tools[0].function` does not belong to a custom tool"],
    );
    check_refused(
        r#""tools":[{"type":"custom","custom":{"name":"c","format":{"type":"grammar","grammar":{"syntax":"bnf"}}}}]"#,
        expect![
            "tools[0].custom.format.grammar.syntax: `tools[0].custom.format.grammar.syntax` must be lark or regex"
        ],
    );
}

#[test]
fn only_allowed_tools_are_offered() {
    let tools =
        r#""tools":[{"type":"function","function":{"name":"f"}},{"type":"custom","custom":{"name":"c"}}]"#;
    let allowed = |mode: &str, tool: &str| {
        format!(
            r#"{tools},"tool_choice":{{"type":"allowed_tools","allowed_tools":{{"mode":"{mode}","tools":[{tool}]}}}}"#
        )
    };
    let one = lowered(&allowed("required", r#"{"type":"custom","custom":{"name":"c"}}"#));
    assert_eq!((names(&one), one.tool_choice), (vec!["c".to_owned()], ToolChoice::Required));
    check_refused(
        &allowed("auto", r#"{"type":"function","function":{"name":"g"}}"#),
        expect!["tool_choice: `tool_choice` allows `g`, which is none of `tools`"],
    );
}

#[test]
fn functions_are_tools_of_which_one_is_called() {
    let functions = r#""functions":[{"name":"f","parameters":{"type":"object"}}]"#;
    let request = lowered(&format!(r#"{functions},"function_call":{{"name":"f"}}"#));
    assert_eq!(names(&request), ["f"]);
    assert_eq!(request.tool_choice, ToolChoice::Function("f".into()));
    assert_eq!(request.output, OutputMode::Message { calls: Some(CallLimit::One) });
    assert_eq!(names(&lowered(&format!(r#"{functions},"function_call":"none""#))), [""; 0]);
    check_refused(
        &format!(r#"{functions},"tools":[{{"type":"function","function":{{"name":"g"}}}}]"#),
        expect!["functions: `functions` and `tools` do not go together; use `tools`"],
    );
    check_refused(
        &format!(r#"{functions},"function_call":{{"name":"g"}}"#),
        expect!["function_call: `function_call` names `g`, which is not among the tools"],
    );
}

#[test]
fn calls_of_every_shape_come_back() {
    check_messages(
        r#"[{"role":"user","content":"hi"},
            {"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{\"a\":1}"}},
            {"role":"function","name":"f","content":"3"},
            {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"custom","custom":{"name":"c","input":"x"},"extra_content":{}}]},
            {"role":"tool","tool_call_id":"1","content":"y"}]"#,
        expect![[
            r#"[{"role":"user","content":"hi"},{"role":"assistant","content":"","tool_calls":[{"id":"messages[1].function_call","type":"function","function":{"name":"f","arguments":{"a":1}}}]},{"role":"tool","content":"3","name":"f","tool_call_id":"messages[1].function_call"},{"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"c","arguments":{"input":"x"}}}]},{"role":"tool","content":"y","tool_call_id":"1"}]"#
        ]],
    );
    check_messages(
        r#"[{"role":"function","name":"g","content":"3"}]"#,
        expect!["messages[0].name: `messages[0].name` refers to `g`, which no earlier message called"],
    );
    check_messages(
        r#"[{"role":"function","content":"3"}]"#,
        expect!["messages[0].name: `messages[0].name` is missing"],
    );
    check_messages(
        r#"[{"role":"assistant","tool_calls":[{"id":"1","type":"custom","custom":{"name":"c"}}]}]"#,
        expect![
            "messages[0].tool_calls[0].custom.input: `messages[0].tool_calls[0].custom.input` is missing"
        ],
    );
    check_messages(
        r#"[{"role":"assistant","tool_calls":[{"id":"1","type":"robot"}]}]"#,
        expect![
            "messages[0].tool_calls[0].type: `messages[0].tool_calls[0].type` must be `function` or `custom`, not `robot`"
        ],
    );
}
