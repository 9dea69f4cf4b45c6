//! The clap command line, built from the tables of commands and settings.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::command_name::CommandName;
use crate::command_table::{COMMANDS, Spec};
use crate::environment;
use crate::settings::{Inputs, Kind, Resolved, Scope, Setting, of, resolve, texts};
use crate::tips;

/// A parsed command line.
pub struct ParsedArgs {
    /// The command.
    pub name: CommandName,
    /// Its positional arguments.
    pub arguments: Vec<String>,
    matches: ArgMatches,
}

/// Parses a command line.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<ParsedArgs, clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let matches =
        command().try_get_matches_from(&arguments).map_err(|error| tips::improved(error, &arguments))?;
    let (mut words, mut matches) = (Vec::new(), matches);
    while let Some((word, inner)) = matches.remove_subcommand() {
        words.push(word);
        matches = inner;
    }
    let path: Vec<&str> = words.iter().map(String::as_str).collect();
    let spec = COMMANDS.iter().find(|spec| spec.path == path.as_slice());
    let spec = spec
        .ok_or_else(|| command().error(clap::error::ErrorKind::MissingSubcommand, "a command is needed"))?;
    let arguments = match spec.argument {
        None => Vec::new(),
        Some(argument) => matches.get_many::<String>(argument.name).unwrap_or_default().cloned().collect(),
    };
    Ok(ParsedArgs { name: spec.name, arguments, matches })
}

impl ParsedArgs {
    /// Resolves the command's settings from flags, environment and files.
    pub fn resolve(&self) -> Result<Resolved, crate::error::Error> {
        let flag = |name: &str| self.flag(name);
        let variable = |name: &str| environment::text(name);
        resolve(self.name, &Inputs { flag: &flag, variable: &variable })
    }

    fn flag(&self, name: &str) -> Vec<String> {
        let Some(setting) = of(self.name).find(|setting| setting.name == name) else { return Vec::new() };
        match setting.kind {
            Kind::Switch if self.matches.get_flag(name) => vec!["true".into()],
            Kind::Switch => Vec::new(),
            _ => self.matches.get_many::<String>(name).unwrap_or_default().cloned().collect(),
        }
    }
}

/// Groups of commands.
const GROUPS: &[(&str, &str)] = &[
    ("bench", "Benchmarks"),
    ("cache", "Prompt cache files, and the blocks in --cache-dir"),
    ("mcp", "MCP servers and their tools"),
    ("service", "The server as a service of systemd or launchd"),
];

/// The whole command line.
pub fn command() -> Command {
    let root = Command::new("omnibus")
        .about("LLM server on MLX")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true);
    let flat = COMMANDS.iter().filter(|spec| spec.path.len() == 1);
    let root = flat.fold(root, |root, spec| root.subcommand(subcommand_of(spec)));
    GROUPS.iter().fold(root, |root, (name, about)| {
        let group = Command::new(*name).about(*about).subcommand_required(true).arg_required_else_help(true);
        let nested = COMMANDS.iter().filter(|spec| matches!(spec.path, [first, _] if first == name));
        root.subcommand(nested.fold(group, |group, spec| group.subcommand(subcommand_of(spec))))
    })
}

fn subcommand_of(spec: &Spec) -> Command {
    let name = spec.path.last().copied().unwrap_or_default();
    // The last of a repeated flag counts, as with settings from several places.
    let mut command = Command::new(name).about(spec.about).args_override_self(true);
    if let Some(argument) = spec.argument {
        let arg = Arg::new(argument.name).value_name(argument.placeholder).help(argument.help);
        let arg = if argument.choices.is_empty() { arg } else { arg.value_parser(argument.choices.to_vec()) };
        // Flags may stand between the values of one argument.
        let arg = arg.action(ArgAction::Append);
        command =
            command.arg(arg.num_args(argument.count.0..=argument.count.1).required(argument.count.0 > 0));
    }
    of(spec.name).fold(command, |command, setting| command.arg(arg_of(setting)))
}

fn arg_of(setting: &Setting) -> Arg {
    let arg = Arg::new(setting.name).long(setting.name).help(help(setting)).help_heading(setting.section);
    let arg = match setting.short {
        Some(short) => arg.short(short),
        None => arg,
    };
    match setting.kind {
        Kind::Switch => arg.action(ArgAction::SetTrue),
        Kind::List(name) => arg.action(ArgAction::Append).value_name(name),
        Kind::Choice(choices) => {
            let texts = texts(choices);
            arg.value_name(texts.join("|")).value_parser(texts).hide_possible_values(true)
        }
        other => arg.value_name(other.placeholder().unwrap_or_default()).allow_hyphen_values(true),
    }
}

fn help(setting: &Setting) -> String {
    let mut help = setting.help.to_owned();
    if !setting.default.is_empty() {
        help += &format!(" [default: {}]", setting.default);
    }
    if setting.scope == Scope::Everywhere {
        help += &format!(" [env: {}]", setting.variable());
    }
    help
}

#[cfg(test)]
mod tests {
    #[test]
    fn clap_accepts_the_tables() {
        super::command().debug_assert();
    }
}
