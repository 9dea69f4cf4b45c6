//! `omnibus completions SHELL`.

use std::process::ExitCode;

use clap_complete::Shell;

use crate::error::Error;
use crate::{args, output};

/// Prints the completion script.
pub fn run(arguments: &[String]) -> Result<ExitCode, Error> {
    let shell = arguments.first().map(String::as_str).unwrap_or_default();
    let shell: Shell = shell.parse().map_err(Error::Usage)?;
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::command(), "omnibus", &mut script);
    output::piece(&String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}
