//! Hashes of definitions that may be offered: those of a file, or those that a server listed first.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::definition::Definition;
use crate::error::ConfigError;

/// The pinned hashes.
#[derive(Debug, Default)]
pub struct Pins {
    /// Of a file, by server and tool. With a file, nothing else is offered.
    file: Option<BTreeMap<String, BTreeMap<String, String>>>,
    /// What each server listed first, in this process.
    first: Mutex<BTreeMap<String, BTreeMap<String, String>>>,
}

/// Whether a definition is that which was pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinState {
    /// It is.
    Pinned,
    /// The tool had another one.
    Changed,
    /// The tool came later.
    New,
}

impl Pins {
    /// The pins of a file; without the file, what servers list first is pinned.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(ConfigError::Unreadable { path: path.to_owned(), error }),
        };
        let file = serde_json::from_str(&text)
            .map_err(|error| ConfigError::Invalid { path: path.to_owned(), why: error.to_string() })?;
        Ok(Self { file: Some(file), first: Mutex::default() })
    }

    /// Whether there is a file.
    pub fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Notes what a server lists, where it is the first time.
    pub fn note(&self, server: &str, tools: &[Definition]) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if !first.contains_key(server) {
            first.insert(server.to_owned(), hashes(tools));
        }
    }

    /// Whether a definition is that which was pinned.
    pub fn check(&self, server: &str, tool: &Definition) -> PinState {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let pinned = self.file.as_ref().unwrap_or(&first).get(server).and_then(|tools| tools.get(&tool.name));
        match pinned {
            Some(hash) if *hash == tool.hash => PinState::Pinned,
            Some(_) => PinState::Changed,
            None => PinState::New,
        }
    }

    /// Writes a file with the definitions of servers.
    pub fn write<'a>(
        path: &Path,
        servers: impl Iterator<Item = (&'a str, &'a [Definition])>,
    ) -> Result<(), ConfigError> {
        let all: BTreeMap<_, _> = servers.map(|(server, tools)| (server, hashes(tools))).collect();
        let text = serde_json::to_string_pretty(&all).unwrap_or_default();
        std::fs::write(path, text + "\n")
            .map_err(|error| ConfigError::Unreadable { path: path.to_owned(), error })
    }
}

fn hashes(tools: &[Definition]) -> BTreeMap<String, String> {
    tools.iter().map(|tool| (tool.name.clone(), tool.hash.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, description: &str) -> Definition {
        let json = serde_json::json!({"name": name, "description": description, "inputSchema": {}});
        Definition::of(&serde_json::from_value(json).unwrap())
    }

    #[test]
    fn what_changes_after_the_first_list_is_not_pinned() {
        let pins = Pins::default();
        pins.note("s", &[tool("a", "one")]);
        pins.note("s", &[tool("a", "two")]);
        assert_eq!(pins.check("s", &tool("a", "one")), PinState::Pinned);
        assert_eq!(pins.check("s", &tool("a", "two")), PinState::Changed);
        assert_eq!(pins.check("s", &tool("b", "one")), PinState::New);
    }

    #[test]
    fn with_a_file_nothing_else_is_pinned() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pins.json");
        assert!(!Pins::load(&path).unwrap().has_file());
        Pins::write(&path, [("s", [tool("a", "one")].as_slice())].into_iter()).unwrap();
        let pins = Pins::load(&path).unwrap();
        pins.note("s", &[tool("a", "two"), tool("b", "b")]);
        assert_eq!(pins.check("s", &tool("a", "one")), PinState::Pinned);
        assert_eq!(pins.check("s", &tool("a", "two")), PinState::Changed);
        assert_eq!(pins.check("s", &tool("b", "b")), PinState::New);
        std::fs::write(&path, "{").unwrap();
        assert!(Pins::load(&path).is_err());
    }
}
