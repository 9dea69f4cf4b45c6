//! The only place that prints: results to stdout, everything else to stderr.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io::Write;
use std::process::ExitCode;

use crate::error::Error;

/// A result, and a line break.
pub fn line(text: impl AsRef<str>) {
    piece(&format!("{}\n", text.as_ref()));
}

/// A part of a result, shown at once. Whoever closes stdout has seen enough.
pub fn piece(text: &str) {
    let mut stdout = std::io::stdout().lock();
    if stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_err() {
        std::process::exit(0);
    }
}

/// A diagnostic.
pub fn note(text: impl AsRef<str>) {
    eprintln!("{}", text.as_ref());
}

/// What clap has to say: help is a result, a mistake is not.
pub fn usage(error: &clap::Error) -> ExitCode {
    if let Err(broken) = error.print() {
        eprintln!("{broken}");
    }
    ExitCode::from(if error.use_stderr() { 2 } else { 0 })
}

/// Why a command failed, in one line.
pub fn error(error: &Error) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(match error {
        Error::Usage(_) => 2,
        Error::Failed(_) => 1,
    })
}
