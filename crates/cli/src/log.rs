//! Log output: stderr, as text or JSON lines.

use tracing_subscriber::EnvFilter;

use crate::settings::{Log, LogFormat};

/// Installs the tracing subscriber of this process.
pub fn install(log: &Log) {
    let filter = EnvFilter::try_new(&log.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match log.format {
        LogFormat::Text => builder.with_target(false).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
}
