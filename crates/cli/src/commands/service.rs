//! `omnibus service`: the server as a service of this machine.

use std::process::ExitCode;

use crate::command_name::CommandName;
use crate::error::Error;
use crate::libmlx::{Gpu, has_nvidia_gpu};
use crate::service::install::Place;
use crate::service::{Devices, Installation, Service};
use crate::settings::Config;
use crate::{args, output};

/// Installs the service, with a model and flags of `serve` as arguments, or prints its files.
pub fn install(config: &Config, arguments: &[String]) -> Result<ExitCode, Error> {
    let settings = &config.service;
    check_arguments(arguments)?;
    let service = Service {
        program: std::env::current_exe().map_err(Error::failed)?,
        arguments: arguments.to_vec(),
        owner: settings.owner,
        socket: settings.socket.clone(),
        devices: match has_nvidia_gpu() {
            Gpu::Found => Devices::Nvidia,
            Gpu::Missing => Devices::None,
        },
    };
    service.check(settings.manager)?;
    let place = Place::new(settings)?;
    let files = service.files(settings.manager, place.home());
    match settings.installation {
        Installation::Install => place.install(&files)?,
        Installation::Print => {
            for file in files {
                output::line(format!("# {}\n{}", file.name, file.text));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Stops the service and removes it.
pub fn uninstall(config: &Config) -> Result<ExitCode, Error> {
    Place::new(&config.service)?.uninstall()?;
    Ok(ExitCode::SUCCESS)
}

/// Shows whether the service runs. Exit code 1 when it does not.
pub fn status(config: &Config) -> Result<ExitCode, Error> {
    Place::new(&config.service)?.status()
}

/// Shows what the service logs.
pub fn logs(config: &Config) -> Result<ExitCode, Error> {
    Place::new(&config.service)?.logs(config.service.logs)
}

/// Fails where `serve` would not take the arguments.
fn check_arguments(arguments: &[String]) -> Result<(), Error> {
    let words = ["omnibus", "serve"].into_iter().chain(arguments.iter().map(String::as_str));
    let refused = |why: String| Error::usage(format!("`serve` refuses the service's arguments: {why}"));
    let parsed = args::parse(words.map(Into::into)).map_err(|error| {
        let text = error.to_string();
        refused(text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned())
    })?;
    match parsed.name {
        CommandName::Serve => parsed.resolve().map(|_| ()).map_err(|error| refused(error.to_string())),
        other => Err(refused(format!("they name the command {other:?}"))),
    }
}
