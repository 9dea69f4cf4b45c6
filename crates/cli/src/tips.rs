//! Tips of errors in the command line: the flag that is meant where another project's was given.
//!
//! Invariant: a tip names only flags that the command has.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::command_table::COMMANDS;
use crate::settings::of;

/// Flags of other projects, and our names for them, the first that a command has.
const MEANT: &[(&str, &[&str])] = &[
    ("--temperature", &["temp", "temperature"]),
    ("--temp", &["temperature"]),
    ("--max-new-tokens", &["max-tokens", "output-len"]),
    ("--n-predict", &["max-tokens"]),
    ("--num-predict", &["max-tokens"]),
    ("--ctx-size", &["max-model-len"]),
    ("--num-ctx", &["max-model-len"]),
    ("--context-length", &["max-model-len"]),
    ("--max-context", &["max-model-len"]),
    ("--model-path", &["model"]),
    ("--alias", &["served-model-name"]),
    ("--system", &["system-prompt"]),
    ("--draft", &["draft-model"]),
    ("--max-concurrent-requests", &["max-num-seqs"]),
    ("--parallel", &["max-num-seqs"]),
    ("--base-url", &["url"]),
    ("--listen", &["host"]),
    ("--format", &["json-schema"]),
];

/// An error with the tip that helps, and without those that do not.
pub fn improved(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return error };
    let flag = flag.split('=').next().unwrap_or(flag).to_owned();
    // That a flag can be given as a value behind `--` is true, and never what was meant.
    if flag.starts_with('-') {
        error.remove(ContextKind::Suggested);
    }
    if let Some(name) = meant(&flag, arguments) {
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{name}")));
    }
    error
}

/// The flag of the command that is meant by another project's.
fn meant(flag: &str, arguments: &[OsString]) -> Option<&'static str> {
    let words: Vec<&str> = arguments.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let spec =
        COMMANDS.iter().filter(|spec| words.starts_with(spec.path)).max_by_key(|spec| spec.path.len())?;
    let (_, names) = MEANT.iter().find(|(other, _)| *other == flag)?;
    names.iter().copied().find(|name| of(spec.name).any(|setting| setting.name == *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(arguments: &[&str]) -> String {
        let arguments = std::iter::once("omnibus").chain(arguments.iter().copied()).map(OsString::from);
        match crate::args::parse(arguments) {
            Ok(_) => panic!("the command line has no error"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_flag_of_another_project_gets_ours_as_its_tip() {
        for (arguments, tip) in [
            (&["generate", "--temperature", "0.5"][..], "'--temp'"),
            (&["generate", "--max-new-tokens=5"], "'--max-tokens'"),
            (&["bench", "serve", "--temp", "1"], "'--temperature'"),
            (&["serve", "--ctx-size", "9"], "'--max-model-len'"),
            (&["run", "--system", "x"], "'--system-prompt'"),
            // One that is nearly right has a tip anyway.
            (&["serve", "--max-num-seq", "3"], "'--max-num-seqs'"),
        ] {
            let message = message(arguments);
            assert!(message.contains(tip), "{arguments:?}: {message}");
            assert!(!message.contains("as a value"), "{message}");
        }
        assert!(!message(&["ps", "--ctx-size", "9"]).contains("max-model-len"), "`ps` has no such flag");
    }

    #[test]
    fn every_tip_is_a_flag_of_some_command() {
        for name in MEANT.iter().flat_map(|(_, names)| *names) {
            assert!(COMMANDS.iter().any(|spec| of(spec.name).any(|setting| setting.name == *name)), "{name}");
        }
    }
}
