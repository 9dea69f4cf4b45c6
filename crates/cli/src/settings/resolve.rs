//! Resolves each setting from flag, variable, file or default.

use std::fmt;
use std::path::{Path, PathBuf};

use super::shown::{ShownSetting, live_change};
use super::{Config, Kind, Scope, Setting, Value, file, of};
use crate::command_name::CommandName;
use crate::error::Error;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueSource {
    /// The default.
    Default,
    /// `omnibus.toml`
    File(PathBuf),
    /// `OMNIBUS_*`
    Variable(String),
    /// The command line.
    Flag,
}

impl fmt::Display for ValueSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => formatter.write_str("default"),
            Self::File(path) => write!(formatter, "{}", path.display()),
            Self::Variable(name) => formatter.write_str(name),
            Self::Flag => formatter.write_str("flag"),
        }
    }
}

/// The command line and the environment.
pub struct Inputs<'a> {
    /// The values of a flag, none when it is absent; a switch is `true`.
    pub flag: &'a dyn Fn(&str) -> Vec<String>,
    /// The value of a variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Inputs<'_> {
    /// The value of a variable. An empty one counts as unset.
    fn set_variable(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|text| !text.is_empty())
    }
}

/// The resolved settings of a command.
pub struct Resolved {
    /// The typed configuration.
    pub config: Config,
    /// Each setting with its value and the value's source; `None` is unset.
    pub rows: Vec<(&'static Setting, Option<Value>, ValueSource)>,
}

/// Resolves all settings of a command. Fails at the first invalid value.
pub fn resolve(command: CommandName, inputs: &Inputs<'_>) -> Result<Resolved, Error> {
    let named = (inputs.flag)("config").pop().or_else(|| inputs.set_variable("OMNIBUS_CONFIG"));
    let file = file::read(named.as_deref().map(Path::new))?;
    let mut resolved = Resolved { config: Config::default(), rows: Vec::new() };
    resolved.config.pool.tables = file.as_ref().map(|file| file.models.clone()).unwrap_or_default();
    for setting in of(command) {
        let (value, source) = decide(setting, inputs, file.as_ref())?;
        if let Some(value) = &value {
            (setting.set)(&mut resolved.config, value)
                .map_err(|why| Error::usage(format!("{}: {why}", location(setting, &source))))?;
        }
        resolved.rows.push((setting, value, source));
    }
    Ok(resolved)
}

fn decide(
    setting: &'static Setting,
    inputs: &Inputs<'_>,
    file: Option<&file::File>,
) -> Result<(Option<Value>, ValueSource), Error> {
    let flags = (inputs.flag)(setting.name);
    if !flags.is_empty() {
        return Ok((Some(from_flags(setting, &flags)?), ValueSource::Flag));
    }
    if setting.scope == Scope::Everywhere {
        let name = setting.variable();
        if let Some(text) = inputs.set_variable(&name) {
            let source = ValueSource::Variable(name);
            return Ok((Some(parse(setting, &text, &source)?), source));
        }
        if let Some((file, value)) = file.and_then(|file| Some((file, file.values.get(setting.name)?))) {
            return Ok((Some(value.clone()), ValueSource::File(file.path.clone())));
        }
    }
    let default =
        (!setting.default.is_empty()).then(|| parse(setting, setting.default, &ValueSource::Default));
    Ok((default.transpose()?, ValueSource::Default))
}

/// A list takes all values of a repeated flag, any other kind the last.
fn from_flags(setting: &Setting, flags: &[String]) -> Result<Value, Error> {
    match (setting.kind, flags) {
        (Kind::List(_), all) => Ok(Value::List(all.to_vec())),
        (_, [.., last]) => parse(setting, last, &ValueSource::Flag),
        (_, []) => Err(Error::usage(format!("--{} has no value", setting.name))),
    }
}

fn parse(setting: &Setting, text: &str, source: &ValueSource) -> Result<Value, Error> {
    setting
        .kind
        .parse(text)
        .map_err(|why| Error::usage(format!("{} {why}, not `{text}`", location(setting, source))))
}

fn location(setting: &Setting, source: &ValueSource) -> String {
    match source {
        ValueSource::File(path) => format!("{}: `{}`", path.display(), setting.name),
        ValueSource::Variable(name) => name.clone(),
        ValueSource::Default | ValueSource::Flag => format!("--{}", setting.name),
    }
}

impl Resolved {
    /// Every setting, without secrets.
    pub fn shown(&self) -> Vec<ShownSetting> {
        let rows = self.rows.iter().filter(|(setting, ..)| setting.scope == Scope::Everywhere);
        let shown =
            |(setting, value, source): &(&'static Setting, Option<Value>, ValueSource)| ShownSetting {
                name: setting.name,
                value: match value {
                    Some(_) if setting.name == "api-key" => "hidden".to_owned(),
                    Some(value) => shown_value(setting, value),
                    None => String::new(),
                },
                source: source.to_string(),
                live: live_change(setting.name),
            };
        rows.map(shown).collect()
    }

    /// The output of `--print-config`: TOML, with the sources as comments.
    pub fn printed(&self) -> String {
        let rows = self.rows.iter().filter(|(setting, ..)| setting.scope == Scope::Everywhere);
        let line = |(setting, value, source): &(&Setting, Option<Value>, ValueSource)| match value {
            None => format!("# {} is unset", setting.name),
            Some(_) if setting.name == "api-key" => format!("# {} is hidden ({source})", setting.name),
            Some(value) => {
                let assignment = format!("{} = {}", setting.name, shown_value(setting, value));
                format!("{assignment:<40} # {source}")
            }
        };
        rows.map(line).collect::<Vec<_>>().join("\n")
    }
}

fn shown_value(setting: &Setting, value: &Value) -> String {
    match setting.kind {
        Kind::Bytes | Kind::BytesOr(_) => value.shown_size(),
        _ => value.shown(),
    }
}
