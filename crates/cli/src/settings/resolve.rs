//! Which of the four places decides each setting.

use std::fmt;
use std::path::{Path, PathBuf};

use super::{Config, Kind, Reach, Setting, Value, file, of};
use crate::commands::Name;
use crate::error::Error;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// `omnibus.toml`
    File(PathBuf),
    /// `OMNIBUS_*`
    Variable(String),
    /// The command line.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => formatter.write_str("default"),
            Self::File(path) => write!(formatter, "{}", path.display()),
            Self::Variable(name) => formatter.write_str(name),
            Self::Flag => formatter.write_str("flag"),
        }
    }
}

/// What the command line and the environment say.
pub struct Given<'a> {
    /// The texts of a flag, none when it is absent; a switch is `true`.
    pub flag: &'a dyn Fn(&str) -> Vec<String>,
    /// The value of a variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

/// Every setting of a command.
pub struct Resolved {
    /// What comes of them.
    pub config: Config,
    /// Each with its value and where that came from; `None` is unset.
    pub rows: Vec<(&'static Setting, Option<Value>, Origin)>,
}

/// Settles the settings of a command.
pub fn resolve(command: Name, given: &Given<'_>) -> Result<Resolved, Error> {
    let named = (given.flag)("config").pop().or_else(|| (given.variable)("OMNIBUS_CONFIG"));
    let file = file::read(named.as_deref().map(Path::new))?;
    let mut resolved = Resolved { config: Config::default(), rows: Vec::new() };
    for setting in of(command) {
        let (value, origin) = decide(setting, given, file.as_ref())?;
        if let Some(value) = &value {
            (setting.set)(&mut resolved.config, value)
                .map_err(|why| Error::usage(format!("{}: {why}", place(setting, &origin))))?;
        }
        resolved.rows.push((setting, value, origin));
    }
    Ok(resolved)
}

fn decide(
    setting: &'static Setting,
    given: &Given<'_>,
    file: Option<&file::File>,
) -> Result<(Option<Value>, Origin), Error> {
    let flags = (given.flag)(setting.name);
    if !flags.is_empty() {
        return Ok((Some(from_flags(setting, &flags)?), Origin::Flag));
    }
    if setting.reach == Reach::Everywhere {
        let name = setting.variable();
        if let Some(text) = (given.variable)(&name).filter(|text| !text.is_empty()) {
            let origin = Origin::Variable(name);
            return Ok((Some(parse(setting, &text, &origin)?), origin));
        }
        if let Some((file, value)) = file.and_then(|file| Some((file, file.values.get(setting.name)?))) {
            return Ok((Some(value.clone()), Origin::File(file.path.clone())));
        }
    }
    let default = (!setting.default.is_empty()).then(|| parse(setting, setting.default, &Origin::Default));
    Ok((default.transpose()?, Origin::Default))
}

/// A list takes all, anything else the last.
fn from_flags(setting: &Setting, flags: &[String]) -> Result<Value, Error> {
    match (setting.kind, flags) {
        (Kind::List(_), all) => Ok(Value::List(all.to_vec())),
        (_, [.., last]) => parse(setting, last, &Origin::Flag),
        (_, []) => Err(Error::usage(format!("--{} has no value", setting.name))),
    }
}

fn parse(setting: &Setting, text: &str, origin: &Origin) -> Result<Value, Error> {
    setting
        .kind
        .parse(text)
        .map_err(|why| Error::usage(format!("{} {why}, not `{text}`", place(setting, origin))))
}

fn place(setting: &Setting, origin: &Origin) -> String {
    match origin {
        Origin::File(path) => format!("{}: `{}`", path.display(), setting.name),
        Origin::Variable(name) => name.clone(),
        Origin::Default | Origin::Flag => format!("--{}", setting.name),
    }
}

impl Resolved {
    /// What `--print-config` prints: TOML, with the origins as comments.
    pub fn printed(&self) -> String {
        let rows = self.rows.iter().filter(|(setting, ..)| setting.reach == Reach::Everywhere);
        let line = |(setting, value, origin): &(&Setting, Option<Value>, Origin)| match value {
            None => format!("# {} is unset", setting.name),
            Some(_) if setting.name == "api-key" => format!("# {} is hidden ({origin})", setting.name),
            Some(value) => {
                let assignment = format!("{} = {}", setting.name, value.shown());
                format!("{assignment:<40} # {origin}")
            }
        };
        rows.map(line).collect::<Vec<_>>().join("\n")
    }
}
