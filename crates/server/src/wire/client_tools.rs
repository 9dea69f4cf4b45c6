//! Tools of the Responses API that the client runs and that have no schema in the request: OpenAI's models know them.
//!
//! Invariant: another model gets a function of the documented shape under the tool's name. Its arguments become the
//! fields of the item that the client expects, and these fields become the same arguments again.

use serde_json::{Map, Value, json};

/// A tool that the client runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientTool {
    /// One command with its arguments.
    LocalShell,
    /// Several command lines.
    Shell,
    /// Changes of files.
    ApplyPatch,
    /// Several actions on a screen.
    Computer,
    /// One action on a screen.
    ComputerPreview,
}

impl ClientTool {
    /// The tool of a definition of this type.
    pub fn of_type(kind: &str) -> Option<Self> {
        match kind {
            "local_shell" => Some(Self::LocalShell),
            "shell" => Some(Self::Shell),
            "apply_patch" => Some(Self::ApplyPatch),
            "computer" => Some(Self::Computer),
            "computer_use_preview" | "computer_use" => Some(Self::ComputerPreview),
            _ => None,
        }
    }

    /// The name of the function, which is also the type of the definition.
    pub fn name(self) -> &'static str {
        match self {
            Self::LocalShell => "local_shell",
            Self::Shell => "shell",
            Self::ApplyPatch => "apply_patch",
            Self::Computer => "computer",
            Self::ComputerPreview => "computer_use_preview",
        }
    }

    /// The type of the item of a call.
    pub fn call_type(self) -> &'static str {
        match self {
            Self::LocalShell => "local_shell_call",
            Self::Shell => "shell_call",
            Self::ApplyPatch => "apply_patch_call",
            Self::Computer | Self::ComputerPreview => "computer_call",
        }
    }

    /// What the ids of these items begin with.
    pub fn id_prefix(self) -> &'static str {
        match self {
            Self::LocalShell => "lsh",
            Self::Shell => "sh",
            Self::ApplyPatch => "apc",
            Self::Computer | Self::ComputerPreview => "cu",
        }
    }

    /// What the model is given.
    pub fn description(self) -> &'static str {
        match self {
            Self::LocalShell => "Runs a program on the user's machine. Returns what it wrote.",
            Self::Shell => {
                "Runs command lines in a shell on the user's machine. Returns what each wrote and its exit code."
            }
            Self::ApplyPatch => {
                "Creates, updates or deletes a file. A diff has the format V4A: a line `@@` with the function or \
                 class that holds the change begins a section, whose lines begin with a space if they stay, `-` if \
                 they are removed and `+` if they are added. Every line of a new file begins with `+`."
            }
            Self::Computer | Self::ComputerPreview => {
                "Uses the mouse and the keyboard of a computer. Returns a screenshot of it after the actions."
            }
        }
    }

    /// The schema of the function's arguments.
    pub fn parameters(self) -> Value {
        let text = |about: &str| json!({"type": "string", "description": about});
        let lines = |about: &str| json!({"type": "array", "items": {"type": "string"}, "description": about});
        let milliseconds = json!({"type": "integer", "description": "Most milliseconds to wait for it."});
        match self {
            Self::LocalShell => object(
                json!({
                    "command": lines("The program and its arguments."),
                    "working_directory": text("Where it runs."),
                    "timeout_ms": milliseconds,
                    "env": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Variables of its environment."},
                }),
                json!(["command"]),
            ),
            Self::Shell => object(
                json!({
                    "commands": lines("The command lines, which run one after the other."),
                    "timeout_ms": milliseconds,
                    "max_output_length": {"type": "integer", "description": "Most characters of the output to return."},
                }),
                json!(["commands"]),
            ),
            Self::ApplyPatch => object(
                json!({
                    "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
                    "path": text("The path of the file."),
                    "diff": text("The lines of the new file, or the change; not of a file that is deleted."),
                }),
                json!(["type", "path"]),
            ),
            Self::Computer => object(
                json!({"actions": {"type": "array", "items": action(), "description": "What to do, in order."}}),
                json!(["actions"]),
            ),
            Self::ComputerPreview => object(json!({"action": action()}), json!(["action"])),
        }
    }

    /// The fields of a call's item that hold its arguments.
    pub fn fields(self, arguments: &str) -> Map<String, Value> {
        let parsed = match serde_json::from_str(arguments) {
            Ok(Value::Object(parsed)) => parsed,
            // A call that was cut; its item is incomplete.
            _ => Map::new(),
        };
        let with = |mut own: Map<String, Value>, defaults: &[(&str, Value)]| {
            for (name, value) in defaults {
                own.entry(*name).or_insert_with(|| value.clone());
            }
            Value::Object(own)
        };
        let list = || Value::Array(Vec::new());
        let null = Value::Null;
        match self {
            Self::LocalShell => {
                let mut action = Map::from_iter([("type".to_owned(), "exec".into())]);
                action.extend(parsed);
                let rest = [
                    ("command", list()),
                    ("env", json!({})),
                    ("timeout_ms", null.clone()),
                    ("user", null.clone()),
                    ("working_directory", null),
                ];
                Map::from_iter([("action".to_owned(), with(action, &rest))])
            }
            Self::Shell => {
                let rest = [("commands", list()), ("timeout_ms", null.clone()), ("max_output_length", null)];
                let environment = json!({"type": "local"});
                Map::from_iter([
                    ("action".to_owned(), with(parsed, &rest)),
                    ("environment".to_owned(), environment),
                ])
            }
            Self::ApplyPatch => Map::from_iter([("operation".to_owned(), operation(parsed))]),
            Self::Computer => {
                Map::from_iter([("actions".to_owned(), field(parsed, "actions", list)), safe()])
            }
            Self::ComputerPreview => {
                let wait = || json!({"type": "wait"});
                Map::from_iter([("action".to_owned(), field(parsed, "action", wait)), safe()])
            }
        }
    }

    /// The arguments of a call whose item has these fields.
    pub fn arguments(self, mut fields: Map<String, Value>) -> Value {
        let inner = |fields: &mut Map<String, Value>, name: &str| match fields.remove(name) {
            Some(Value::Object(inner)) => inner.into_iter().filter(|(_, value)| !value.is_null()).collect(),
            _ => Map::new(),
        };
        match self {
            Self::LocalShell => {
                let mut action = inner(&mut fields, "action");
                action.retain(|name, value| name != "type" && !(name == "env" && *value == json!({})));
                Value::Object(action)
            }
            Self::Shell => Value::Object(inner(&mut fields, "action")),
            Self::ApplyPatch => Value::Object(inner(&mut fields, "operation")),
            Self::Computer => json!({"actions": fields.remove("actions").unwrap_or_default()}),
            Self::ComputerPreview => json!({"action": fields.remove("action").unwrap_or_default()}),
        }
    }
}

fn object(properties: Value, required: Value) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn action() -> Value {
    let pixels = json!({"type": "integer", "description": "In pixels from the upper left corner."});
    let point = json!({"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}});
    object(
        json!({
            "type": {"type": "string", "enum":
                ["click", "double_click", "drag", "keypress", "move", "screenshot", "scroll", "type", "wait"]},
            "button": {"type": "string", "enum": ["left", "right", "wheel", "back", "forward"], "description": "Of `click`."},
            "x": pixels,
            "y": pixels,
            "scroll_x": {"type": "integer", "description": "Of `scroll`: pixels to the right."},
            "scroll_y": {"type": "integer", "description": "Of `scroll`: pixels down."},
            "path": {"type": "array", "items": point, "description": "Of `drag`."},
            "keys": {"type": "array", "items": {"type": "string"}, "description": "Of `keypress`; of others, keys that are held."},
            "text": {"type": "string", "description": "Of `type`."},
        }),
        json!(["type"]),
    )
}

fn field(mut parsed: Map<String, Value>, name: &str, default: impl FnOnce() -> Value) -> Value {
    parsed.remove(name).unwrap_or_else(default)
}

/// This server checks no action.
fn safe() -> (String, Value) {
    ("pending_safety_checks".to_owned(), Value::Array(Vec::new()))
}

/// What is deleted has no diff.
fn operation(mut parsed: Map<String, Value>) -> Value {
    let kind = parsed.entry("type").or_insert_with(|| "update_file".into());
    let is_deleted = kind == "delete_file";
    parsed.entry("path").or_insert_with(|| "".into());
    if is_deleted {
        parsed.remove("diff");
    } else {
        parsed.entry("diff").or_insert_with(|| "".into());
    }
    Value::Object(parsed)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    /// The fields of the item of a call, and that they become the call's arguments again.
    fn check(kind: &str, arguments: &str, expected: Expect) {
        let tool = ClientTool::of_type(kind).unwrap();
        let fields = tool.fields(arguments);
        expected.assert_eq(&Value::Object(fields.clone()).to_string());
        assert_eq!(tool.arguments(fields).to_string(), arguments);
    }

    #[test]
    fn arguments_become_fields_and_arguments_again() {
        check(
            "local_shell",
            r#"{"command":["ls","-l"],"timeout_ms":5}"#,
            expect![[
                r#"{"action":{"type":"exec","command":["ls","-l"],"timeout_ms":5,"env":{},"user":null,"working_directory":null}}"#
            ]],
        );
        check(
            "shell",
            r#"{"commands":["ls"]}"#,
            expect![[
                r#"{"action":{"commands":["ls"],"timeout_ms":null,"max_output_length":null},"environment":{"type":"local"}}"#
            ]],
        );
        check(
            "apply_patch",
            r#"{"type":"create_file","path":"a","diff":"+x"}"#,
            expect![[r#"{"operation":{"type":"create_file","path":"a","diff":"+x"}}"#]],
        );
        check(
            "apply_patch",
            r#"{"type":"delete_file","path":"a"}"#,
            expect![[r#"{"operation":{"type":"delete_file","path":"a"}}"#]],
        );
        check(
            "computer",
            r#"{"actions":[{"type":"click","button":"left","x":1,"y":2}]}"#,
            expect![[
                r#"{"actions":[{"type":"click","button":"left","x":1,"y":2}],"pending_safety_checks":[]}"#
            ]],
        );
        check(
            "computer_use_preview",
            r#"{"action":{"type":"screenshot"}}"#,
            expect![[r#"{"action":{"type":"screenshot"},"pending_safety_checks":[]}"#]],
        );
    }

    #[test]
    fn a_cut_call_has_all_fields() {
        let cut = |kind: &str| Value::Object(ClientTool::of_type(kind).unwrap().fields("{\"com")).to_string();
        expect![[r#"{"operation":{"type":"update_file","path":"","diff":""}}"#]]
            .assert_eq(&cut("apply_patch"));
        expect![[r#"{"action":{"type":"wait"},"pending_safety_checks":[]}"#]].assert_eq(&cut("computer_use"));
        expect![[r#"{"actions":[],"pending_safety_checks":[]}"#]].assert_eq(&cut("computer"));
    }
}
