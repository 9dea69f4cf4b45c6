//! Files of keys: one key on each line, or TOML with a table for each key.
//!
//! Invariant: an error names the file and the key's name, never the key.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::limits::KeyLimits;
use super::{KeyError, Role};

/// A key as a file or a flag has it.
#[derive(Debug)]
pub struct KeyRow {
    /// The key itself.
    pub secret: String,
    /// Its name; `None` gets a number.
    pub name: Option<String>,
    /// What it may do.
    pub role: Role,
    /// The models that it may use; `None` is all.
    pub models: Option<Vec<String>>,
    /// The MCP servers, or their tools as `server/tool`, that it may use; `None` is all.
    pub tools: Option<Vec<String>>,
    /// Its limits.
    pub limits: KeyLimits,
}

impl KeyRow {
    /// A key without a name, as a line or a flag has it.
    pub fn bare(secret: String) -> Self {
        Self {
            secret,
            name: None,
            role: Role::Equal,
            models: None,
            tools: None,
            limits: KeyLimits::default(),
        }
    }
}

/// Reads a file. Fails where it has no keys.
pub fn read(path: &Path) -> Result<Vec<KeyRow>, KeyError> {
    let of_file = |why: String| KeyError::File { path: path.to_owned(), why };
    let text = std::fs::read_to_string(path).map_err(|error| of_file(error.to_string()))?;
    let rows = if is_toml(path, &text) {
        parse_toml(&text).map_err(of_file)?
    } else {
        lines(&text).map(KeyRow::bare).collect()
    };
    if rows.is_empty() { Err(of_file("it has no keys".to_owned())) } else { Ok(rows) }
}

/// One key per line; blank lines and lines starting with `#` are skipped.
pub fn lines(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned)
}

fn is_toml(path: &Path, text: &str) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"))
        || lines(text).next().is_some_and(|line| line.starts_with("[["))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    #[serde(default)]
    key: Vec<KeyTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct KeyTable {
    name: String,
    key: String,
    #[serde(default)]
    role: RoleName,
    models: Option<Vec<String>>,
    tools: Option<Vec<String>>,
    requests_per_minute: Option<u64>,
    tokens_per_minute: Option<u64>,
    streams: Option<usize>,
    queue_share: Option<f64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RoleName {
    #[default]
    Infer,
    Admin,
}

fn parse_toml(text: &str) -> Result<Vec<KeyRow>, String> {
    let tables: Tables = toml::from_str(text).map_err(|error| one_line(text, &error))?;
    tables.key.into_iter().map(row).collect()
}

/// Without the lines of the file that `toml` shows: one may be a key.
fn one_line(text: &str, error: &toml::de::Error) -> String {
    let line =
        error.span().and_then(|span| text.get(..span.start)).map(|before| before.lines().count().max(1));
    let message = error.message().lines().collect::<Vec<_>>().join(" ");
    match line {
        Some(line) => format!("line {line}: {message}"),
        None => message,
    }
}

fn row(table: KeyTable) -> Result<KeyRow, String> {
    let KeyTable {
        name,
        key,
        role,
        models,
        tools,
        requests_per_minute,
        tokens_per_minute,
        streams,
        queue_share,
    } = table;
    let limits = KeyLimits { requests_per_minute, tokens_per_minute, streams, queue_share };
    check_name(&name)?;
    check_limits(&limits).map_err(|why| format!("the key `{name}`: {why}"))?;
    let role = match role {
        RoleName::Infer => Role::Infer,
        RoleName::Admin => Role::Admin,
    };
    Ok(KeyRow { secret: key, name: Some(name), role, models, tools, limits })
}

/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Names stand in metrics and in paths. Those of keys without one are not free.
fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
        return Err(format!(
            "`{}` is not a name: write 1 to {NAME_BYTES_MAX} letters, digits and -_.@",
            name.escape_debug()
        ));
    }
    let number = name.strip_prefix("key-").unwrap_or_default();
    if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("the name `{name}` is one of those that keys without a name get"));
    }
    Ok(())
}

fn check_limits(limits: &KeyLimits) -> Result<(), String> {
    let counts = [
        ("requests-per-minute", limits.requests_per_minute),
        ("tokens-per-minute", limits.tokens_per_minute),
        ("streams", limits.streams.map(|count| count as u64)),
    ];
    if let Some((name, _)) = counts.iter().find(|(_, count)| *count == Some(0)) {
        return Err(format!("`{name}` must be at least 1; remove the key to refuse it"));
    }
    match limits.queue_share {
        Some(share) if !(share > 0.0 && share <= 1.0) => {
            Err("`queue-share` must be above 0 and at most 1".to_owned())
        }
        _ => Ok(()),
    }
}

/// Where keys come from: flags, and a file that can be read again.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// Of flags.
    pub given: Vec<String>,
    /// More of them.
    pub file: Option<PathBuf>,
}

impl Source {
    /// All keys.
    pub fn read(&self) -> Result<Vec<KeyRow>, KeyError> {
        let mut rows: Vec<KeyRow> = self.given.iter().cloned().map(KeyRow::bare).collect();
        if let Some(path) = &self.file {
            rows.extend(read(path)?);
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<KeyRow>, String> {
        parse_toml(text)
    }

    #[test]
    fn a_table_has_all_that_a_key_can_have() {
        let text = "[[key]]\nname = \"alice\"\nkey = \"sk-a\"\nrole = \"admin\"\nmodels = [\"one\"]\nrequests-per-minute = 60\ntokens-per-minute = 1000\nstreams = 4\nqueue-share = 0.5\n[[key]]\nname = \"bob@home\"\nkey = \"sk-b\"\n";
        let rows = parse(text).unwrap();
        let names: Vec<_> = rows.iter().map(|row| (row.name.as_deref(), row.role)).collect();
        assert_eq!(names, [(Some("alice"), Role::Admin), (Some("bob@home"), Role::Infer)]);
        assert_eq!(rows[0].limits.tokens_per_minute, Some(1000));
        assert_eq!(rows[0].models.as_deref(), Some(["one".to_owned()].as_slice()));
        assert_eq!((rows[1].models.as_deref(), rows[1].limits), (None, KeyLimits::default()));
    }

    #[test]
    fn errors_name_the_place_and_never_the_key() {
        let key = "[[key]]\nname = \"alice\"\nkey = \"sk-secret\"\n";
        for (more, expected) in [
            ("role = \"root\"", "unknown variant `root`"),
            ("rpm = 5", "unknown field `rpm`"),
            ("streams = 0", "the key `alice`: `streams` must be at least 1"),
            ("streams = -1", "line 4"),
            ("queue-share = 1.5", "above 0 and at most 1"),
            ("queue-share = nan", "above 0 and at most 1"),
            ("key = \"sk-secret-too\"", "duplicate key"),
            ("models = 5", "line 4"),
            ("\"sk-secret", "line 4"),
        ] {
            let why = parse(&format!("{key}{more}\n")).map(|_| ()).unwrap_err();
            assert!(why.contains(expected), "{more}: {why}");
            assert!(!why.contains("sk-secret") && !why.contains('\n'), "{more}: {why}");
        }
        let why = parse("[[key]]\nname = \"a\"\n").map(|_| ()).unwrap_err();
        assert!(why.contains("missing field `key`"), "{why}");
    }

    #[test]
    fn names_are_plain() {
        for name in ["", "a b", "a/b", "\u{e4}", "key-7", &"a".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
        for name in ["a", "Alice_2", "a@b.example", "key-x", "key-"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn the_form_of_a_file_follows_its_name_or_its_first_line() {
        assert!(is_toml(Path::new("keys.toml"), ""));
        assert!(is_toml(Path::new("keys"), "# ours\n\n[[key]]\n"));
        assert!(!is_toml(Path::new("keys"), "[a-key\n"));
        assert!(!is_toml(Path::new("keys"), "sk-a\n"));
    }
}
