//! `omnibus serve` as a service: the files of systemd and launchd, and the commands that load them.
//!
//! Invariant: a key is never in a file of a service, nor in the arguments of its process.

pub mod install;
mod launchd;
pub mod notify;
mod systemd;

use std::path::{Path, PathBuf};

use crate::error::Error;

/// The name of the service.
const NAME: &str = "omnibus";

/// Settings of `service`.
#[derive(Debug, Clone, Default)]
pub struct ServiceSettings {
    /// Whose service it is.
    pub owner: Owner,
    /// What runs it.
    pub manager: Manager,
    /// Where the manager listens for it.
    pub socket: Option<String>,
    /// Whether it is installed.
    pub installation: Installation,
    /// Whether `logs` goes on.
    pub logs: Logs,
}

/// Whose service it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Owner {
    /// The user's: it runs as the user.
    #[default]
    User,
    /// The system's: it starts with the system.
    System,
}

/// What runs services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manager {
    /// Linux.
    Systemd,
    /// macOS.
    Launchd,
}

impl Default for Manager {
    fn default() -> Self {
        if cfg!(target_os = "macos") { Self::Launchd } else { Self::Systemd }
    }
}

/// Whether the service is installed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Installation {
    /// It is.
    #[default]
    Install,
    /// Its files are printed.
    Print,
}

/// Whether `logs` goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Logs {
    /// It ends with the last line.
    #[default]
    Written,
    /// It waits for new lines.
    Followed,
}

/// Whether the service may use an NVIDIA GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Devices {
    /// None.
    None,
    /// The driver's.
    Nvidia,
}

/// A service that is to be installed.
#[derive(Debug, Clone)]
pub struct Service {
    /// The absolute path of the binary.
    pub program: PathBuf,
    /// Arguments of `serve`.
    pub arguments: Vec<String>,
    /// Whose service it is.
    pub owner: Owner,
    /// Where systemd listens for it.
    pub socket: Option<String>,
    /// The devices that it needs.
    pub devices: Devices,
}

/// A file of a service.
#[derive(Debug, PartialEq, Eq)]
pub struct ServiceFile {
    /// Its name.
    pub name: &'static str,
    /// Its text.
    pub text: String,
}

impl Service {
    /// Fails where the service could not run, or a key would be in its files.
    pub fn check(&self, manager: Manager) -> Result<(), Error> {
        let has = |flag: &str| {
            self.arguments.iter().any(|argument| argument.split('=').next().is_some_and(|name| name == flag))
        };
        if has("--api-key") {
            return Err(Error::usage(
                "--api-key would be readable in the service's file: write the key into a file, and give --api-key-file",
            ));
        }
        match manager {
            Manager::Launchd if self.owner == Owner::System => {
                Err(Error::usage("--system is for systemd: a service of launchd runs as its user"))
            }
            Manager::Launchd if self.socket.is_some() => Err(Error::usage("--socket is for systemd")),
            Manager::Systemd if self.owner == Owner::System && is_private(&self.program) => {
                Err(Error::failed(format!(
                    "{} is in a user's folder, which the service's own user may not read: install the binary elsewhere, as in \
                     /usr/local or /opt",
                    self.program.display()
                )))
            }
            Manager::Systemd
                if self.socket.is_some() && ["--host", "--port", "--uds"].into_iter().any(has) =>
            {
                Err(Error::usage(
                    "--socket says where the service listens: leave out --host, --port and --uds",
                ))
            }
            Manager::Systemd | Manager::Launchd => Ok(()),
        }
    }

    /// Its files. `home`: the user's.
    pub fn files(&self, manager: Manager, home: &Path) -> Vec<ServiceFile> {
        match manager {
            Manager::Systemd => systemd::files(self),
            Manager::Launchd => vec![launchd::file(self, home)],
        }
    }
}

/// Whether only one user can reach a program.
fn is_private(program: &Path) -> bool {
    ["/root", "/home", "/run/user"].iter().any(|folder| program.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(arguments: &[&str]) -> Service {
        Service {
            program: "/usr/bin/omnibus".into(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            owner: Owner::System,
            socket: None,
            devices: Devices::None,
        }
    }

    fn check(service: &Service, manager: Manager, expected: &str) {
        let error = service.check(manager).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_service_that_could_not_run_is_refused() {
        assert!(service(&["--port", "8001"]).check(Manager::Systemd).is_ok());
        assert!(service(&["--api-key-file", "/k"]).check(Manager::Systemd).is_ok());
        check(&service(&["--api-key", "secret"]), Manager::Systemd, "--api-key-file");
        check(&service(&["--api-key=secret"]), Manager::Launchd, "--api-key-file");
        check(&service(&[]), Manager::Launchd, "--system is for systemd");
        let private = Service { program: "/run/user/1000/omnibus".into(), ..service(&[]) };
        check(&private, Manager::Systemd, "is in a user's folder");
        let user = Service { owner: Owner::User, ..private };
        assert!(user.check(Manager::Systemd).is_ok());
        let socket = Some("127.0.0.1:8000".to_owned());
        check(
            &Service { socket: socket.clone(), ..user.clone() },
            Manager::Launchd,
            "--socket is for systemd",
        );
        let both = Service { socket, arguments: vec!["--port=1".into()], ..user };
        check(&both, Manager::Systemd, "leave out --host");
    }
}
