//! `[models.NAME]` in `omnibus.toml`: a model beside others, with settings of its own.

use super::{Config, Setting, Value, file, of};
use crate::command_name::CommandName;
use crate::error::Error;

/// One table.
#[derive(Debug, Clone, Default)]
pub struct ModelTable {
    /// The name that it is served under.
    pub name: String,
    /// Its directory, or its id on the hub; else its name is one of both.
    pub model: Option<String>,
    /// Other names.
    pub aliases: Vec<String>,
    /// When it is loaded.
    pub residency: Residency,
    /// Settings of the model and its engine, by their names.
    values: Vec<(&'static str, Value)>,
}

/// When a model is loaded.
#[derive(Debug, Clone, Copy, Default)]
pub struct Residency {
    /// Whether it stays when another needs its memory.
    pub pin: bool,
    /// Whether it is loaded at the start.
    pub preload: bool,
    /// Seconds that it stays loaded after its last request; negative for ever.
    pub ttl_s: Option<f64>,
}

/// Sections whose settings a model may have of its own.
const SECTIONS: &[&str] = &["Model", "Engine", "Structured output"];
/// Settings of theirs that are said otherwise, or of all models.
const OTHERWISE: &[&str] = &["model", "served-model-name", "models-dir", "model-ttl", "allow-pull"];

impl ModelTable {
    /// Reads a table. Fails with one line that names it.
    pub fn read((name, table): (&String, &toml::Value)) -> Result<Self, String> {
        let at = |why: String| format!("[models.{name}] {why}");
        let Some(table) = table.as_table() else { return Err(at("is not a table".to_owned())) };
        let mut model = Self { name: name.clone(), ..Self::default() };
        for (key, value) in table {
            model.set(key, value).map_err(|why| at(format!("`{key}` {why}")))?;
        }
        Ok(model)
    }

    fn set(&mut self, key: &str, value: &toml::Value) -> Result<(), String> {
        let wants = |what: &str| format!("must be {what}, not {value}");
        match key {
            "model" => self.model = Some(value.as_str().ok_or_else(|| wants("a text"))?.to_owned()),
            "aliases" => {
                let list = value.as_array().ok_or_else(|| wants("a list of texts"))?;
                let texts = list.iter().map(|item| item.as_str().map(str::to_owned));
                self.aliases = texts.collect::<Option<_>>().ok_or_else(|| wants("a list of texts"))?;
            }
            "pin" => self.residency.pin = value.as_bool().ok_or_else(|| wants("true or false"))?,
            "preload" => self.residency.preload = value.as_bool().ok_or_else(|| wants("true or false"))?,
            "ttl" => {
                let seconds = value.as_float().or(value.as_integer().map(|seconds| seconds as f64));
                self.residency.ttl_s = Some(seconds.ok_or_else(|| wants("a number of seconds"))?);
            }
            _ => {
                let setting = setting(key).ok_or("is no setting of a model")?;
                let value = file::read_value(setting, value)?;
                // What its values mean is checked at once.
                (setting.set)(&mut Config::default(), &value)?;
                self.values.push((setting.name, value));
            }
        }
        Ok(())
    }

    /// The configuration of this model.
    pub fn config(&self, of_all: &Config) -> Result<Config, Error> {
        let mut config = of_all.clone();
        for (name, value) in &self.values {
            let failed = |why| Error::usage(format!("[models.{}] `{name}`: {why}", self.name));
            let Some(setting) = setting(name) else { continue };
            (setting.set)(&mut config, value).map_err(failed)?;
        }
        Ok(config)
    }
}

/// The setting of a model with this name.
fn setting(name: &str) -> Option<&'static Setting> {
    let own = |setting: &&Setting| SECTIONS.contains(&setting.section) && !OTHERWISE.contains(&setting.name);
    of(CommandName::Serve).filter(own).find(|setting| setting.name == name)
}
