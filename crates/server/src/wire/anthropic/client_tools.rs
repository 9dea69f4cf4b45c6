//! Anthropic's tools that the client runs and that have no schema in the request: the models of Anthropic know them.
//!
//! Invariant: another model gets a function of the documented name and shape, whose calls the client can run as they are.

use serde_json::{Value, json};

/// What becomes of a tool that comes without a schema.
#[derive(Debug, Clone, PartialEq)]
pub enum Schemaless {
    /// The client runs it: the model is given this.
    Client {
        /// What it does.
        description: String,
        /// The shape of its input.
        input_schema: Value,
    },
    /// Anthropic's servers run it: the model answers without it.
    Server,
    /// The client expects calls that cannot be made here, for this reason.
    Refused(&'static str),
    /// Not known here.
    Unknown,
}

/// Types of tools that Anthropic's servers run begin so.
const SERVERS: &[&str] =
    &["web_search_", "web_fetch_", "code_execution_", "tool_search_tool_", "advisor_", "mcp_toolset"];

/// The screen of a computer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Display {
    /// In pixels.
    pub width: Option<usize>,
    /// In pixels.
    pub height: Option<usize>,
    /// Whether a part of it can be seen in full resolution.
    pub zoom: Zoom,
}

/// Whether a part of a screen can be seen in full resolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zoom {
    /// It can.
    Offered,
    /// It cannot.
    Absent,
}

/// What becomes of a tool of this type.
pub fn of_type(kind: &str, display: &Display) -> Schemaless {
    let client = |description: &str, input_schema| Schemaless::Client {
        description: description.to_owned(),
        input_schema,
    };
    match kind {
        "bash_20241022" | "bash_20250124" => client(BASH, bash()),
        "text_editor_20241022" | "text_editor_20250124" => client(EDITOR, editor(Undo::Offered)),
        "text_editor_20250429" | "text_editor_20250728" => client(EDITOR, editor(Undo::Absent)),
        "memory_20250818" => client(MEMORY, memory()),
        "computer_20241022" => computer(COMPUTER_ACTIONS.get(..10).unwrap_or_default(), display),
        "computer_20251124" if display.zoom == Zoom::Offered => computer(COMPUTER_ACTIONS, display),
        "computer_20250124" | "computer_20251124" => {
            computer(COMPUTER_ACTIONS.get(..16).unwrap_or_default(), display)
        }
        toolset if toolset.starts_with("computer_toolset_") => {
            Schemaless::Refused("toolsets are not supported; use `computer_20251124`")
        }
        toolset if toolset.starts_with("browser_toolset_") => {
            Schemaless::Refused("toolsets are not supported; describe the tools with `input_schema`")
        }
        of_client if CLIENTS.iter().any(|prefix| of_client.starts_with(prefix)) => {
            Schemaless::Refused("this version is not known; describe the tool with `input_schema`")
        }
        of_server if SERVERS.iter().any(|prefix| of_server.starts_with(prefix)) => Schemaless::Server,
        _ => Schemaless::Unknown,
    }
}

/// Types of tools that clients run begin so.
const CLIENTS: &[&str] = &["bash_", "text_editor_", "memory_", "computer_"];

const BASH: &str = "Runs a command in a bash session, which keeps its state between calls. Returns what the command \
                    wrote to stdout and stderr.";

fn bash() -> Value {
    json!({"type": "object", "properties": {
        "command": {"type": "string", "description": "The command to run. Required unless the session is restarted."},
        "restart": {"type": "boolean", "description": "True restarts the session."},
    }})
}

const EDITOR: &str = "Views, creates and edits text files. `view` shows a file with line numbers, or lists a \
                      directory. `create` writes a file. `str_replace` replaces a text that occurs once. `insert` adds \
                      a text behind a line.";

/// Whether an editor has the command `undo_edit`, as older versions do; they insert `new_str`, too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Undo {
    Offered,
    Absent,
}

fn editor(undo: Undo) -> Value {
    let (commands, inserted) = match undo {
        Undo::Offered => (json!(["view", "create", "str_replace", "insert", "undo_edit"]), "new_str"),
        Undo::Absent => (json!(["view", "create", "str_replace", "insert"]), "insert_text"),
    };
    let mut schema = json!({"type": "object", "properties": {
        "command": {"type": "string", "enum": commands, "description": "What to do."},
        "path": {"type": "string", "description": "The absolute path of the file or directory."},
        "file_text": {"type": "string", "description": "Of `create`: the content of the file."},
        "old_str": {"type": "string", "description": "Of `str_replace`: the text to replace, with its whitespace."},
        "new_str": {"type": "string", "description": "Of `str_replace`: the text in its place."},
        "insert_line": {"type": "integer", "description": "Of `insert`: the line behind which the text is added; 0 is the beginning."},
        "view_range": {"type": "array", "items": {"type": "integer"},
            "description": "Of `view`: the first and the last line; -1 is the end of the file."},
    }, "required": ["command", "path"]});
    let text = json!({"type": "string", "description": "Of `insert`: the text to add; of `str_replace`: the text in its place."});
    schema["properties"][inserted] = match undo {
        Undo::Offered => text,
        Undo::Absent => json!({"type": "string", "description": "Of `insert`: the text to add."}),
    };
    schema
}

const MEMORY: &str = "Reads and writes files below the directory /memories, which are kept between conversations. \
                      View the directory before other work, and write down what will be needed later.";

fn memory() -> Value {
    json!({"type": "object", "properties": {
        "command": {"type": "string", "enum": ["view", "create", "str_replace", "insert", "delete", "rename"],
            "description": "What to do."},
        "path": {"type": "string", "description": "The path below /memories, but for `rename`."},
        "view_range": {"type": "array", "items": {"type": "integer"}, "description": "Of `view`: the first and the last line."},
        "file_text": {"type": "string", "description": "Of `create`: the content of the file."},
        "old_str": {"type": "string", "description": "Of `str_replace`: the text to replace."},
        "new_str": {"type": "string", "description": "Of `str_replace`: the text in its place."},
        "insert_line": {"type": "integer", "description": "Of `insert`: the line behind which the text is added."},
        "insert_text": {"type": "string", "description": "Of `insert`: the text to add."},
        "old_path": {"type": "string", "description": "Of `rename`."},
        "new_path": {"type": "string", "description": "Of `rename`."},
    }, "required": ["command"]})
}

/// Oldest first: each version has all of the one before.
const COMPUTER_ACTIONS: &[&str] = &[
    "key",
    "type",
    "mouse_move",
    "left_click",
    "left_click_drag",
    "right_click",
    "middle_click",
    "double_click",
    "screenshot",
    "cursor_position",
    "left_mouse_down",
    "left_mouse_up",
    "scroll",
    "hold_key",
    "wait",
    "triple_click",
    "zoom",
];

fn computer(actions: &[&str], display: &Display) -> Schemaless {
    let display = match (display.width, display.height) {
        (Some(width), Some(height)) => format!(" The screen has {width}x{height} pixels."),
        _ => String::new(),
    };
    let description = format!(
        "Uses the mouse and the keyboard of a computer, and takes screenshots of it.{display} Look at a screenshot \
         before clicking, and at another one to see what an action did."
    );
    Schemaless::Client { description, input_schema: computer_input(actions) }
}

fn computer_input(actions: &[&str]) -> Value {
    let has = |action: &str| actions.contains(&action);
    let point = |about: &str| json!({"type": "array", "items": {"type": "integer"}, "description": about});
    let mut properties = json!({
        "action": {"type": "string", "enum": actions, "description": "What to do."},
        "coordinate": point("Where, as [x, y] in pixels from the upper left corner."),
        "text": {"type": "string", "description": "The text to type, or the keys to press, as in `ctrl+s`."},
    });
    if has("scroll") {
        properties["start_coordinate"] = point("Of `left_click_drag`: where the drag begins.");
        properties["duration"] =
            json!({"type": "number", "description": "Of `wait` and `hold_key`: seconds."});
        properties["scroll_direction"] = json!({"type": "string", "enum": ["up", "down", "left", "right"]});
        properties["scroll_amount"] =
            json!({"type": "integer", "description": "Of `scroll`: clicks of the wheel."});
    }
    if has("zoom") {
        properties["region"] = point("Of `zoom`: [x0, y0, x1, y1] in pixels.");
    }
    json!({"type": "object", "properties": properties, "required": ["action"]})
}
