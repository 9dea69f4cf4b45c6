//! Files with prompts, and computing them before serving, so that later requests find their prefix cached.
//!
//! A file of text is one system prompt. A file whose first line is a JSON object is JSON lines: `{"system": TEXT}`,
//! `{"prompt": TEXT}` or `{"messages": [...], "tools": [...]}`.

use std::path::Path;

use omnibus_engine::{Chat, Event, Handle, Input, Message, Request, Role, Sampling};
use omnibus_server::lower::chat;
use serde_json::{Map, Value};

use crate::error::Error;

/// Reads the prompts of the file that an option names. Fails with the number of the invalid line.
pub fn read(path: &Path, option: &str) -> Result<Vec<Input>, Error> {
    let invalid = |why: String| Error::usage(format!("{option}: {}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| invalid(error.to_string()))?;
    parse(&text).map_err(invalid)
}

fn parse(text: &str) -> Result<Vec<Input>, String> {
    if !text.trim_start().starts_with('{') {
        return match text.trim() {
            "" => Err("the file is empty".to_owned()),
            system => Ok(vec![system_prompt(system)]),
        };
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(at, line)| line_of(line).map_err(|why| format!("line {}: {why}", at + 1))).collect()
}

fn line_of(line: &str) -> Result<Input, String> {
    const EXPECTED: &str = "must be an object with one of `system`, `prompt` and `messages`";
    let fields: Map<String, Value> = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    match (text("system"), text("prompt"), fields.get("messages")) {
        (Some(system), None, None) => Ok(system_prompt(system)),
        (None, Some(prompt), None) => Ok(Input::Text(prompt.to_owned())),
        (None, None, Some(Value::Array(messages))) => {
            let tools = match fields.get("tools") {
                None | Some(Value::Null) => Vec::new(),
                Some(Value::Array(tools)) => tools.clone(),
                Some(_) => return Err("`tools` must be a list".to_owned()),
            };
            let messages = chat::messages(messages.clone()).map_err(|error| error.message().to_owned())?;
            let tools = chat::tools(tools).map_err(|error| error.message().to_owned())?;
            Ok(Input::Chat(Chat { messages, tools, ..Chat::default() }))
        }
        _ => Err(EXPECTED.to_owned()),
    }
}

/// A conversation with a system prompt. Chat templates need a user message, so there is an empty one.
fn system_prompt(text: &str) -> Input {
    let messages = vec![Message::new(Role::System, text), Message::new(Role::User, "")];
    Input::Chat(Chat { messages, ..Chat::default() })
}

/// Computes the prompts for each tenant, one after another. Logs and skips those that fail.
pub fn warm_up(engine: &Handle, prompts: &[Input], tenants: &[String]) {
    for (number, prompt) in prompts.iter().enumerate() {
        for tenant in tenants {
            let mut request = Request::new(format!("warm-{number}-{tenant}"), prompt.clone());
            request.tenant = tenant.clone();
            request.sampling = Sampling::greedy();
            request.max_new_tokens = Some(0);
            let computed = engine.submit(request).and_then(|mut events| {
                while let Some(event) = events.blocking_next() {
                    if let Event::Failed(failure) = event {
                        return Err(failure);
                    }
                }
                Ok(())
            });
            if let Err(error) = computed {
                tracing::warn!(number, %error, "cannot compute a prompt of --warm-prompts");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_system_prompt_or_json_lines() {
        assert_eq!(parse("You are kind.\n").unwrap(), [system_prompt("You are kind.")]);
        let lines = r#"{"system": "You are kind."}

            {"prompt": "Once"}
            {"messages": [{"role": "user", "content": "hi"}]}"#;
        let prompts = parse(lines).unwrap();
        assert_eq!(prompts[..2], [system_prompt("You are kind."), Input::Text("Once".to_owned())]);
        assert_eq!(prompts.len(), 3);
    }

    #[test]
    fn tools_are_read_as_those_of_a_request() {
        let line = r#"{"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function",
            "function": {"strict": true, "name": "f", "parameters": {}}}]}"#;
        let prompts = parse(&line.replace('\n', " ")).unwrap();
        let Input::Chat(Chat { tools, .. }) = &prompts[0] else { panic!("{prompts:?}") };
        let shown = r#"{"type":"function","function":{"name":"f","parameters":{}}}"#;
        assert_eq!(tools[0].definition().to_string(), shown);
        let wrong = parse(r#"{"messages": [], "tools": {}}"#).unwrap_err();
        assert_eq!(wrong, "line 1: `tools` must be a list");
    }

    #[test]
    fn errors_name_the_line() {
        assert_eq!(parse(" \n"), Err("the file is empty".to_owned()));
        let two = parse("{\"system\": \"a\"}\n{\"question\": \"b\"}").unwrap_err();
        assert!(two.starts_with("line 2: must be an object"), "{two}");
        let robot = parse(r#"{"messages": [{"role": "robot", "content": "hi"}]}"#).unwrap_err();
        assert!(robot.starts_with("line 1: `messages[0].role` must be"), "{robot}");
        assert!(parse("{\"system\":").unwrap_err().starts_with("line 1: "));
    }
}
