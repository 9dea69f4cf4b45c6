//! MCP servers that play a part: [`SCRIPT`], a Python program, and entries of a configuration that start it.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::environment::variable;

/// The program, below this crate.
pub const SCRIPT: &str = "mcp_servers/scripted.py";

/// An entry of a configuration that starts a server with these modes, which are in the program.
pub fn entry(modes: &[&str]) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(SCRIPT);
    let python = variable("PYTHON").unwrap_or_else(|| "python3".into());
    let args: Vec<String> = std::iter::once(script.display().to_string())
        .chain(modes.iter().map(|mode| (*mode).to_owned()))
        .collect();
    json!({"command": python, "args": args})
}

/// An entry with more fields.
pub fn entry_with(modes: &[&str], more: Value) -> Value {
    let mut entry = entry(modes);
    if let (Some(entry), Value::Object(more)) = (entry.as_object_mut(), more) {
        entry.extend(more);
    }
    entry
}

/// The text of a configuration with these servers, and our own settings.
pub fn configuration(servers: &[(&str, Value)], own: Value) -> String {
    let servers: Map<String, Value> =
        servers.iter().map(|(name, entry)| ((*name).to_owned(), entry.clone())).collect();
    json!({"mcpServers": servers, "omnibus": own}).to_string()
}

/// A server over HTTP, which ends with this.
pub struct HttpServer {
    child: std::process::Child,
    /// Its port.
    pub port: u16,
}

impl HttpServer {
    /// Starts a server with these modes beside `http`, which wants this token where it is not empty. Files are in `folder`.
    pub fn start(modes: &[&str], token: &str, folder: &Path) -> Self {
        let entry = entry(modes);
        let args = entry["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap().to_owned());
        let port_file: PathBuf = folder.join("port");
        let mut command = std::process::Command::new(entry["command"].as_str().unwrap());
        command.args(args).arg("http").env("PORT_FILE", &port_file);
        if !token.is_empty() {
            command.env("TOKEN", token);
        }
        let child = command.spawn().unwrap();
        // The file is there once the port is.
        let port = loop {
            if let Ok(text) = std::fs::read_to_string(&port_file) {
                break text.parse().unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        Self { child, port }
    }

    /// The URL of its tools.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
