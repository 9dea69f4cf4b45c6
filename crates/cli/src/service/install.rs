//! Where the files of a service are, and the commands of its manager.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use super::{Logs, Manager, NAME, Owner, ServiceFile, ServiceSettings, launchd};
use crate::error::Error;
use crate::{environment, output};

/// Names of all files that a service may have, the one that is enabled first.
const UNITS: [&str; 2] = ["omnibus.socket", "omnibus.service"];
const PROPERTIES: [&str; 1] = ["omnibus.plist"];

/// A place for the files of a service.
pub struct Place {
    manager: Manager,
    owner: Owner,
    folder: PathBuf,
    home: PathBuf,
}

impl Place {
    /// The place that the settings name.
    pub fn new(settings: &ServiceSettings) -> Result<Self, Error> {
        let home = environment::variable("HOME").map(PathBuf::from);
        let home = home.ok_or_else(|| Error::failed("HOME is not set"))?;
        let folder = match (settings.manager, settings.owner) {
            (Manager::Launchd, _) => home.join("Library/LaunchAgents"),
            (Manager::Systemd, Owner::System) => "/etc/systemd/system".into(),
            (Manager::Systemd, Owner::User) => environment::user_folder("XDG_CONFIG_HOME", ".config")
                .unwrap_or_else(|| home.join(".config"))
                .join("systemd/user"),
        };
        Ok(Self { manager: settings.manager, owner: settings.owner, folder, home })
    }

    /// The user's home.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Writes the files, and starts the service now and whenever its owner is there.
    pub fn install(&self, files: &[ServiceFile]) -> Result<(), Error> {
        std::fs::create_dir_all(&self.folder).map_err(|error| self.cannot("create", &self.folder, &error))?;
        for file in files {
            let path = self.folder.join(file.name);
            std::fs::write(&path, &file.text).map_err(|error| self.cannot("write", &path, &error))?;
            output::note(format!("wrote {}", path.display()));
        }
        match self.manager {
            Manager::Launchd => {
                // One that is loaded already is replaced; there may be none.
                _ = self.launchctl("bootout", &self.target()).output();
                let mut load = Command::new("launchctl");
                load.arg("bootstrap").arg(domain()).arg(self.folder.join("omnibus.plist"));
                run(load)
            }
            Manager::Systemd => {
                run(self.systemctl(&["daemon-reload"]))?;
                let started = UNITS.into_iter().find(|unit| files.iter().any(|file| file.name == *unit));
                run(self.systemctl(&["enable", "--now", started.unwrap_or_default()]))
            }
        }
    }

    /// Stops the service and removes its files. Fails where there are none.
    pub fn uninstall(&self) -> Result<(), Error> {
        let installed = self.installed()?;
        match self.manager {
            Manager::Launchd => run(self.launchctl("bootout", &self.target()))?,
            Manager::Systemd => {
                let names: Vec<&str> = installed.iter().map(|(name, _)| *name).collect();
                run(self.systemctl(&[&["disable", "--now"], names.as_slice()].concat()))?;
            }
        }
        for (_, path) in &installed {
            std::fs::remove_file(path).map_err(|error| self.cannot("remove", path, &error))?;
            output::note(format!("removed {}", path.display()));
        }
        match self.manager {
            Manager::Launchd => Ok(()),
            Manager::Systemd => run(self.systemctl(&["daemon-reload"])),
        }
    }

    /// Shows the state that the manager knows, and returns its exit code.
    pub fn status(&self) -> Result<ExitCode, Error> {
        let installed = self.installed()?;
        shown(match self.manager {
            Manager::Launchd => self.launchctl("print", &self.target()),
            Manager::Systemd => {
                let names: Vec<&str> = installed.iter().map(|(name, _)| *name).collect();
                self.systemctl(&[&["status", "--no-pager"], names.as_slice()].concat())
            }
        })
    }

    /// Shows the log of the service.
    pub fn logs(&self, logs: Logs) -> Result<ExitCode, Error> {
        self.installed()?;
        let mut command = match self.manager {
            Manager::Launchd => {
                let mut command = Command::new("tail");
                command.args(["-n", "1000"]);
                command
            }
            Manager::Systemd => {
                let mut command = Command::new("journalctl");
                command.args(match self.owner {
                    Owner::System => ["--unit", NAME],
                    Owner::User => ["--user-unit", NAME],
                });
                command
            }
        };
        match logs {
            Logs::Written if self.manager == Manager::Systemd => _ = command.arg("--no-pager"),
            Logs::Written => {}
            Logs::Followed => _ = command.arg("-f"),
        }
        if self.manager == Manager::Launchd {
            command.arg(self.home.join(launchd::LOG));
        }
        shown(command)
    }

    /// The files of the service that are there.
    fn installed(&self) -> Result<Vec<(&'static str, PathBuf)>, Error> {
        let names: &[&str] = match self.manager {
            Manager::Launchd => &PROPERTIES,
            Manager::Systemd => &UNITS,
        };
        let files = names.iter().map(|name| (*name, self.folder.join(name)));
        let found: Vec<(&str, PathBuf)> = files.filter(|(_, path)| path.is_file()).collect();
        if found.is_empty() {
            let other = match self.owner {
                Owner::User if self.manager == Manager::Systemd => "; one of the system needs --system",
                Owner::User | Owner::System => "",
            };
            let folder = self.folder.display();
            return Err(Error::failed(format!("no service is installed in {folder}{other}")));
        }
        Ok(found)
    }

    fn systemctl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("systemctl");
        if self.owner == Owner::User {
            command.arg("--user");
        }
        command.args(arguments);
        command
    }

    fn launchctl(&self, verb: &str, target: &str) -> Command {
        let mut command = Command::new("launchctl");
        command.args([verb, target]);
        command
    }

    fn target(&self) -> String {
        format!("{}/{}", domain(), launchd::LABEL)
    }

    fn cannot(&self, verb: &str, path: &Path, error: &std::io::Error) -> Error {
        let advice = match (self.owner, error.kind()) {
            (Owner::System, std::io::ErrorKind::PermissionDenied) => ": run it as root",
            _ => "",
        };
        Error::failed(format!("cannot {verb} {}: {error}{advice}", path.display()))
    }
}

/// The services of this user's session.
fn domain() -> String {
    format!("gui/{}", rustix::process::getuid().as_raw())
}

/// Runs a command of the manager; its output goes to stderr.
fn run(mut command: Command) -> Result<(), Error> {
    let name = name_of(&command);
    let output = command.output().map_err(|error| Error::failed(format!("cannot run `{name}`: {error}")))?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    if output.status.success() {
        said.lines().for_each(output::note);
        return Ok(());
    }
    let said = said.lines().collect::<Vec<_>>().join("; ");
    Err(Error::failed(format!("`{name}` failed ({}): {said}", output.status)))
}

/// Runs a command whose output is the result.
fn shown(mut command: Command) -> Result<ExitCode, Error> {
    let name = name_of(&command);
    let status = command.status().map_err(|error| Error::failed(format!("cannot run `{name}`: {error}")))?;
    Ok(ExitCode::from(u8::from(!status.success())))
}

fn name_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
