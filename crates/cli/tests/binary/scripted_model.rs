//! A server with a model that says given texts: see `tests/clients/scripted_model.py`.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::process::Server;

/// The file that the scripted model reads by a tool.
pub const FILE: &str = "/tmp/client-check/hello.txt";

/// The model's directory, made with these options. Each test has its own.
pub fn directory(test: &str, options: &[&str]) -> PathBuf {
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("scripted-{test}"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/scripted_model.py");
    let written = Command::new("python3").arg(script).arg(&to).args(options).status().unwrap();
    assert!(written.success());
    to
}

/// A server with the scripted model.
pub fn server(test: &str, arguments: &[&str]) -> Server {
    let directory = directory(test, &[]);
    let mut all = vec![directory.to_str().unwrap(), "--log", "error", "--kv-cache-memory", "64MiB"];
    all.extend(arguments);
    Server::start(&all)
}
