//! Terminal output, the only place that prints: results to stdout, everything else to stderr.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io::Write;
use std::process::ExitCode;

use crate::error::Error;

/// Prints a result line.
pub fn line(text: impl AsRef<str>) {
    piece(&format!("{}\n", text.as_ref()));
}

/// Prints a part of a result and flushes. Exits with 0 when stdout is closed.
pub fn piece(text: &str) {
    let mut stdout = std::io::stdout().lock();
    if stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_err() {
        std::process::exit(0);
    }
}

/// The columns of the terminal that results go to; `None` where they go elsewhere.
pub fn columns() -> Option<usize> {
    let terminal = console::Term::stdout();
    terminal.is_term().then(|| terminal.size_checked()).flatten().map(|(_, columns)| columns.into())
}

/// Prints a diagnostic line to stderr.
pub fn note(text: impl AsRef<str>) {
    eprintln!("{}", text.as_ref());
}

/// Prints clap's help or error. Help goes to stdout with exit code 0, errors to stderr with exit code 2.
pub fn usage(error: &clap::Error) -> ExitCode {
    if let Err(broken) = error.print() {
        eprintln!("{broken}");
    }
    ExitCode::from(if error.use_stderr() { 2 } else { 0 })
}

/// Prints an error in one line; returns its exit code.
pub fn error(error: &Error) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(match error {
        Error::Usage(_) => 2,
        Error::Failed(_) => 1,
    })
}
