//! Reads `[models.NAME]` of `omnibus.toml`, and makes the configuration of such a model.

use super::config::Config;
use super::model_table::ModelTable;
use super::{Setting, of};
use crate::command_name::CommandName;
use crate::error::Error;

/// Sections whose settings a model may have of its own.
const SECTIONS: &[&str] = &["Model", "Engine", "Structured output"];
/// Settings of theirs that are said otherwise, or of all models.
const OTHERWISE: &[&str] = &["model", "served-model-name", "models-dir", "model-ttl", "allow-pull"];

/// Reads a table. Fails with one line that names it.
pub fn read((name, table): (&String, &toml::Value)) -> Result<ModelTable, String> {
    let at = |why: String| format!("[models.{name}] {why}");
    let Some(table) = table.as_table() else { return Err(at("is not a table".to_owned())) };
    let mut model = ModelTable { name: name.clone(), ..ModelTable::default() };
    for (key, value) in table {
        set(&mut model, key, value).map_err(|why| at(format!("`{key}` {why}")))?;
    }
    Ok(model)
}

fn set(model: &mut ModelTable, key: &str, value: &toml::Value) -> Result<(), String> {
    let wants = |what: &str| format!("must be {what}, not {value}");
    match key {
        "model" => model.model = Some(value.as_str().ok_or_else(|| wants("a text"))?.to_owned()),
        "aliases" => {
            let list = value.as_array().ok_or_else(|| wants("a list of texts"))?;
            let texts = list.iter().map(|item| item.as_str().map(str::to_owned));
            model.aliases = texts.collect::<Option<_>>().ok_or_else(|| wants("a list of texts"))?;
        }
        "pin" => model.residency.pin = value.as_bool().ok_or_else(|| wants("true or false"))?,
        "preload" => model.residency.preload = value.as_bool().ok_or_else(|| wants("true or false"))?,
        "ttl" => {
            let seconds = value.as_float().or(value.as_integer().map(|seconds| seconds as f64));
            model.residency.ttl_s = Some(seconds.ok_or_else(|| wants("a number of seconds"))?);
        }
        _ => {
            apply(&mut Config::default(), key, value)?;
            model.settings.insert(key.to_owned(), value.clone());
        }
    }
    Ok(())
}

/// The configuration of a model, made from that of all.
pub fn config_of(model: &ModelTable, of_all: &Config) -> Result<Config, Error> {
    let mut config = of_all.clone();
    for (key, value) in &model.settings {
        let failed = |why| Error::usage(format!("[models.{}] `{key}` {why}", model.name));
        apply(&mut config, key, value).map_err(failed)?;
    }
    Ok(config)
}

fn apply(config: &mut Config, key: &str, value: &toml::Value) -> Result<(), String> {
    let own = |setting: &&Setting| SECTIONS.contains(&setting.section) && !OTHERWISE.contains(&setting.name);
    let setting = of(CommandName::Serve).filter(own).find(|setting| setting.name == key);
    let setting = setting.ok_or("is no setting of a model")?;
    (setting.set)(config, &setting.kind.read(value)?)
}
