//! What `launch --print` shows: lines that a POSIX shell can run.

use super::agents::{Agent, Setup};

/// Stands for a key, which is not shown.
pub const HIDDEN_KEY: &str = "YOUR_KEY";

/// The lines, with the user's arguments at the end.
pub fn lines(agent: &Agent, setup: &Setup, arguments: &[String]) -> Vec<String> {
    let set = setup.variables.iter().map(|(name, value)| format!("export {name}={}", quoted(value)));
    let removed = setup.removed.iter().map(|name| format!("unset {name}"));
    let words = setup.arguments.iter().chain(arguments).map(|argument| quoted(argument));
    let command = std::iter::once(agent.program.to_owned()).chain(words).collect::<Vec<_>>().join(" ");
    removed.chain(set).chain([command]).collect()
}

/// A word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        for text in ["", "plain-1.5/x", "two words", "it's", "$(id) `id` \\ \"x\"\n;"] {
            let echo = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {}", quoted(text))])
                .output();
            assert_eq!(String::from_utf8(echo.unwrap().stdout).unwrap(), text);
        }
    }
}
