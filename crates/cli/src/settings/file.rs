//! `omnibus.toml`: its keys are the flags without their dashes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::model_settings;
use super::model_table::ModelTable;
use super::{Scope, Value, all};
use crate::environment;
use crate::error::Error;

/// A parsed settings file.
#[derive(Debug, Default)]
pub struct File {
    /// Its path.
    pub path: PathBuf,
    /// Values by setting.
    pub values: BTreeMap<&'static str, Value>,
    /// `[models.NAME]`, by name.
    pub models: Vec<ModelTable>,
}

/// Reads the named file, else `omnibus.toml` in the working directory, else the user's.
pub fn read(named: Option<&Path>) -> Result<Option<File>, Error> {
    let found = match named {
        Some(path) => Some(path.to_owned()),
        None => default_paths().into_iter().find(|path| path.is_file()),
    };
    let Some(path) = found else { return Ok(None) };
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Error::usage(format!("cannot read {}: {error}", path.display())))?;
    parse(&path, &text).map(Some)
}

fn default_paths() -> Vec<PathBuf> {
    let config = environment::user_folder("XDG_CONFIG_HOME", ".config");
    let user = config.map(|config| config.join("omnibus").join("omnibus.toml"));
    std::iter::once(PathBuf::from("omnibus.toml")).chain(user).collect()
}

/// Parses the text of a file.
pub fn parse(path: &Path, text: &str) -> Result<File, Error> {
    let invalid = |why: String| Error::usage(format!("{}: {why}", path.display()));
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| invalid(error.to_string()))?;
    let (mut values, mut models) = (BTreeMap::new(), Vec::new());
    for (key, value) in table {
        if let ("models", toml::Value::Table(tables)) = (key.as_str(), &value) {
            models = tables.iter().map(model_settings::read).collect::<Result<_, _>>().map_err(invalid)?;
            continue;
        }
        let setting = all().find(|setting| setting.name == key && setting.scope == Scope::Everywhere);
        let setting = setting.ok_or_else(|| invalid(format!("unknown setting `{key}`")))?;
        let value = setting.kind.read(&value).map_err(|why| invalid(format!("`{key}` {why}")))?;
        values.insert(setting.name, value);
    }
    Ok(File { path: path.to_owned(), values, models })
}
