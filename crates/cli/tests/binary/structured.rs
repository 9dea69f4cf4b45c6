//! Structured output and tool calls that must be, through every API and the command line, with the embedded model.

use serde_json::{Value, json};

use super::client::post;
use super::process::{Server, omnibus, run, text};

const CHAT: &str = "/v1/chat/completions";

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": { "stop": { "enum": ["market", "harbour"] }, "minutes": { "type": "integer", "minimum": 1, "maximum": 59 } },
        "required": ["stop", "minutes"],
        "additionalProperties": false
    })
}

fn check(answer: &Value) {
    assert!(["market", "harbour"].contains(&answer["stop"].as_str().unwrap_or_default()), "{answer}");
    assert!((1..60).contains(&answer["minutes"].as_i64().unwrap_or_default()), "{answer}");
    assert_eq!(answer.as_object().map(serde_json::Map::len), Some(2), "{answer}");
}

fn ask(server: &Server, route: &str, body: &Value) -> Value {
    let reply = post(server.address, route, &body.to_string());
    assert_eq!(reply.status, 200, "{body}: {}", reply.body);
    serde_json::from_str(&reply.body).unwrap()
}

fn parsed(value: &Value) -> Value {
    serde_json::from_str(value.as_str().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {value}"))
}

fn hello() -> Value {
    json!([{ "role": "user", "content": "When does the bus leave?" }])
}

#[test]
fn answers_match_their_schema_in_every_api() {
    let server = Server::start(&["--log", "error"]);
    let format =
        json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema(), "strict": true } });
    let body =
        json!({ "messages": hello(), "response_format": format, "max_tokens": 60, "n": 2, "temperature": 1 });
    for choice in ask(&server, CHAT, &body)["choices"].as_array().unwrap() {
        assert_eq!(choice["finish_reason"], "stop");
        check(&parsed(&choice["message"]["content"]));
    }
    let body = json!({ "prompt": "the bus", "max_tokens": 60,
        "structured_outputs": { "json": schema(), "disable_any_whitespace": true } });
    let text = ask(&server, "/v1/completions", &body)["choices"][0]["text"].clone();
    assert!(!text.as_str().unwrap().contains(' '), "{text}");
    check(&parsed(&text));
    let body = json!({ "input": "When?", "max_output_tokens": 60,
        "text": { "format": { "type": "json_schema", "name": "n", "schema": schema(), "strict": true } } });
    let output = ask(&server, "/v1/responses", &body);
    check(&parsed(&output["output"][0]["content"][0]["text"]));
    assert_eq!(output["text"]["format"]["type"], "json_schema");
    let body = json!({ "messages": hello(), "max_tokens": 60, "model": "any",
        "output_config": { "format": { "type": "json_schema", "schema": schema() } } });
    check(&parsed(&ask(&server, "/v1/messages", &body)["content"][0]["text"]));
    let body = json!({ "messages": hello(), "guided_choice": ["north", "south"], "max_tokens": 20 });
    let content = ask(&server, CHAT, &body)["choices"][0]["message"]["content"].clone();
    assert!(content == "north" || content == "south", "{content}");
}

#[test]
fn what_of_a_schema_is_not_enforced_is_named_in_a_header_or_refused() {
    let server = Server::start(&["--log", "error"]);
    let schema = json!({ "type": "array", "items": { "enum": [1, 2] }, "uniqueItems": true, "maxItems": 2 });
    let body = |strict: bool, stream: bool| {
        let format = json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema, "strict": strict } });
        json!({ "messages": hello(), "response_format": format, "max_tokens": 30, "stream": stream })
            .to_string()
    };
    for stream in [false, true] {
        let reply = post(server.address, CHAT, &body(false, stream));
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(reply.header("x-omnibus-schema-not-enforced"), Some("/uniqueItems"));
        let refused = post(server.address, CHAT, &body(true, stream));
        assert_eq!(refused.status, 400, "{}", refused.body);
        let error = &serde_json::from_str::<Value>(&refused.body).unwrap()["error"];
        assert_eq!(error["param"], "response_format.json_schema.schema.uniqueItems");
        assert!(error["message"].as_str().unwrap().contains("at `/uniqueItems`"), "{error}");
    }
    let enforced = json!({ "messages": hello(), "max_tokens": 30,
        "response_format": { "type": "json_schema", "json_schema": { "name": "n", "schema": self::schema() } } });
    assert_eq!(
        post(server.address, CHAT, &enforced.to_string()).header("x-omnibus-schema-not-enforced"),
        None
    );
}

#[test]
fn a_call_that_must_be_is_a_valid_call() {
    let server = Server::start(&["--log", "error"]);
    let tool =
        |name: &str| json!({ "type": "function", "function": { "name": name, "parameters": schema() } });
    let tools = json!([tool("find_bus"), tool("book_seat")]);
    let named = json!({ "type": "function", "function": { "name": "book_seat" } });
    for (choice, names) in [(json!("required"), vec!["find_bus", "book_seat"]), (named, vec!["book_seat"])] {
        let body = json!({ "messages": hello(), "tools": tools, "tool_choice": choice, "max_tokens": 120,
            "parallel_tool_calls": false, "temperature": 1, "seed": 3, "n": 2 });
        let answer = ask(&server, CHAT, &body);
        assert_eq!(answer["choices"].as_array().unwrap().len(), 2);
        for choice in answer["choices"].as_array().unwrap() {
            assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
            let function = &choice["message"]["tool_calls"][0]["function"];
            assert!(names.contains(&function["name"].as_str().unwrap()), "{answer}");
            check(&parsed(&function["arguments"]));
        }
    }
    let tools = json!([{ "name": "find_bus", "input_schema": schema(), "strict": true }]);
    let body = json!({ "messages": hello(), "tools": tools, "max_tokens": 120, "model": "any",
        "tool_choice": { "type": "any", "disable_parallel_tool_use": true } });
    let answer = ask(&server, "/v1/messages", &body);
    assert_eq!(
        (&answer["stop_reason"], &answer["content"][0]["type"]),
        (&json!("tool_use"), &json!("tool_use")),
        "{answer}"
    );
    check(&answer["content"][0]["input"]);
    let tools = json!([{ "type": "function", "name": "find_bus", "parameters": schema(), "strict": true }]);
    let body = json!({ "input": "When?", "tools": tools, "tool_choice": "required", "max_output_tokens": 120,
        "parallel_tool_calls": false });
    let answer = ask(&server, "/v1/responses", &body);
    let calls = answer["output"].as_array().unwrap().iter().find(|item| item["type"] == "function_call");
    check(&parsed(&calls.unwrap_or_else(|| panic!("{answer}"))["arguments"]));
    let body = json!({ "messages": hello(), "tools": [tool("a")], "tool_choice": { "type": "function", "function": { "name": "b" } } });
    let reply = post(server.address, CHAT, &body.to_string());
    assert_eq!((reply.status, reply.error()["param"].as_str()), (400, Some("tool_choice")), "{}", reply.body);
}

#[test]
fn a_call_that_must_be_is_valid_in_other_notations() {
    let day = json!({ "type": "object", "properties": {
        "stop": { "enum": ["market", "harbour"] }, "minutes": { "type": "integer", "minimum": 1, "maximum": 59 },
        "days": { "type": "array", "items": { "type": "string", "format": "date" }, "minItems": 1, "maxItems": 2 } },
        "required": ["stop", "minutes", "days"], "additionalProperties": false });
    let tools = json!([{ "type": "function", "function": { "name": "find_bus", "parameters": day } }]);
    for format in ["gemma-4", "minimax-m3", "kimi-k3", "muse", "llama-3"] {
        let server = Server::start(&["--log", "error", "--tool-call-format", format]);
        let body = json!({ "messages": hello(), "tools": tools, "tool_choice": "required", "max_tokens": 300,
            "parallel_tool_calls": false, "seed": 3, "temperature": 0.7 });
        let answer = ask(&server, CHAT, &body);
        let function = &answer["choices"][0]["message"]["tool_calls"][0]["function"];
        assert_eq!(function["name"], "find_bus", "{format}: {answer}");
        let mut arguments = parsed(&function["arguments"]);
        let days = arguments.as_object_mut().unwrap().remove("days").unwrap();
        let is_date = |day: &Value| day.as_str().is_some_and(|day| day.len() == 10 && day.contains('-'));
        assert!(
            !days.as_array().unwrap().is_empty() && days.as_array().unwrap().iter().all(is_date),
            "{days}"
        );
        check(&arguments);
        let body = json!({ "messages": hello(), "max_tokens": 40, "tools": [{ "type": "function", "function": {
            "name": "find_bus", "parameters": schema(), "strict": true } }] });
        assert!(ask(&server, CHAT, &body)["usage"]["completion_tokens"].as_u64() > Some(1), "{format}");
    }
}

/// The examples of the README that have tools: each route, and its body.
fn examples() -> Vec<(String, Value)> {
    let readme = include_str!("../../../../README.md");
    let commands = readme.split("curl http://127.0.0.1:8000").skip(1);
    let example = |command: &str| {
        let (route, rest) = command.split_once(' ')?;
        let body = rest.split_once("-d '")?.1.split_once('\'')?.0;
        let body: Value = serde_json::from_str(body).ok()?;
        body.get("tools").is_some().then(|| (route.to_owned(), body))
    };
    commands.filter_map(example).collect()
}

#[test]
fn the_embedded_model_calls_the_tool_of_the_readmes_examples() {
    let server = Server::start(&["--log", "error"]);
    let routes: Vec<String> = examples().into_iter().map(|(route, _)| route).collect();
    assert_eq!(routes, ["/v1/messages", CHAT, "/v1/responses"]);
    for (route, mut body) in examples() {
        body["temperature"] = 0.into();
        let answer = ask(&server, &route, &body);
        let (name, arguments) = match route.as_str() {
            CHAT => {
                let call = &answer["choices"][0]["message"]["tool_calls"][0]["function"];
                (&call["name"], parsed(&call["arguments"]))
            }
            "/v1/messages" => {
                let call =
                    answer["content"].as_array().unwrap().iter().find(|block| block["type"] == "tool_use");
                let call = call.unwrap_or_else(|| panic!("{answer}"));
                (&call["name"], call["input"].clone())
            }
            _ => {
                let call =
                    answer["output"].as_array().unwrap().iter().find(|item| item["type"] == "function_call");
                let call = call.unwrap_or_else(|| panic!("{answer}"));
                (&call["name"], parsed(&call["arguments"]))
            }
        };
        assert_eq!((name, arguments), (&json!("get_weather"), json!({ "city": "Paris" })), "{answer}");
    }
}

#[test]
fn a_completion_of_the_command_line_matches_its_schema_or_grammar() {
    let schema = schema().to_string();
    let generate = |flags: &[&str]| {
        let output =
            run(&[&["generate", "-p", "When does the bus leave?", "--max-tokens", "60"], flags].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    check(&serde_json::from_str(&generate(&["--json-schema", &schema])).unwrap());
    let folder = std::env::temp_dir().join(format!("omnibus-grammar-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("answer.lark");
    std::fs::write(&file, "start: \"at \" HOUR \" sharp\"\nHOUR: /[0-9]/\n").unwrap();
    let answer = generate(&["--grammar", file.to_str().unwrap()]);
    assert!(answer.starts_with("at ") && answer.ends_with(" sharp\n"), "{answer:?}");
    std::fs::remove_dir_all(&folder).unwrap();
    let wrong = omnibus(&["generate", "-p", "hi", "--json-schema", "/nowhere.json"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
    let wrong = run(&["generate", "-p", "hi", "--json-schema", r#"{"not": {}}"#]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(
        text(&wrong.stderr).contains("at the root of the schema: no value matches it"),
        "{}",
        text(&wrong.stderr)
    );
}
