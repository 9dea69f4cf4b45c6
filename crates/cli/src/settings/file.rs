//! `omnibus.toml`: flags without their dashes, as keys.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Kind, Reach, Setting, Value, all};
use crate::error::Error;

/// What a file says.
#[derive(Debug, Default)]
pub struct File {
    /// Where it was found.
    pub path: PathBuf,
    /// By setting.
    pub values: BTreeMap<&'static str, Value>,
}

/// Reads the file that was named, or the one in this folder, or the user's.
pub fn read(named: Option<&Path>) -> Result<Option<File>, Error> {
    let found = match named {
        Some(path) => Some(path.to_owned()),
        None => places().into_iter().find(|path| path.is_file()),
    };
    let Some(path) = found else { return Ok(None) };
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Error::usage(format!("cannot read {}: {error}", path.display())))?;
    parse(&path, &text).map(Some)
}

fn places() -> Vec<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
    let user = config.map(|config| config.join("omnibus").join("omnibus.toml"));
    std::iter::once(PathBuf::from("omnibus.toml")).chain(user).collect()
}

/// Reads the text of a file.
pub fn parse(path: &Path, text: &str) -> Result<File, Error> {
    let wrong = |why: String| Error::usage(format!("{}: {why}", path.display()));
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| wrong(error.to_string()))?;
    let mut values = BTreeMap::new();
    for (key, value) in table {
        let setting = all().find(|setting| setting.name == key && setting.reach == Reach::Everywhere);
        let setting = setting.ok_or_else(|| wrong(format!("there is no setting `{key}`")))?;
        let value = read_value(setting, &value).map_err(|why| wrong(format!("`{key}` {why}")))?;
        values.insert(setting.name, value);
    }
    Ok(File { path: path.to_owned(), values })
}

fn read_value(setting: &Setting, value: &toml::Value) -> Result<Value, String> {
    match (setting.kind, value) {
        (Kind::List(_), toml::Value::Array(items)) => {
            let text =
                |item: &toml::Value| item.as_str().map(str::to_owned).ok_or("must be a list of strings");
            Ok(Value::List(items.iter().map(text).collect::<Result<_, _>>()?))
        }
        (Kind::Text(_) | Kind::Choice(_) | Kind::Bytes | Kind::List(_), toml::Value::String(text)) => {
            setting.kind.parse(text)
        }
        (Kind::Count(..) | Kind::Number(..) | Kind::Bytes, toml::Value::Integer(number)) => {
            setting.kind.parse(&number.to_string())
        }
        (Kind::Number(..), toml::Value::Float(number)) => setting.kind.parse(&number.to_string()),
        (Kind::Switch, toml::Value::Boolean(on)) => Ok(Value::Switch(*on)),
        (kind, other) => Err(format!(
            "cannot be {other}; it takes {}",
            kind.placeholder().unwrap_or("true or false".into())
        )),
    }
}
