//! Log output: stderr, as text or JSON lines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::environment;
use crate::settings::{Log, LogFormat};

/// The MCP client logs messages of servers, which may have secrets.
const QUIET: &str = "rmcp=off";

/// Installs the tracing subscriber of this process.
pub fn install(log: &Log) {
    let filter = EnvFilter::try_new(&log.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let filter = match QUIET.parse() {
        Ok(quiet) => filter.add_directive(quiet),
        Err(_) => filter,
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(has_colours())
        .with_writer(std::io::stderr);
    match log.format {
        LogFormat::Text => builder.with_target(false).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
}

/// Colour codes are for terminals only. `NO_COLOR` switches them off.
fn has_colours() -> bool {
    std::io::stderr().is_terminal() && environment::variable("NO_COLOR").is_none()
}
