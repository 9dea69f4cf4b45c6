//! The process that `omnibus serve` runs its engine in.
//!
//! Invariant: not for people. It stands in no table: its flags are variables that the front sets.

use std::process::ExitCode;
use std::time::Duration;

use omnibus_engine::{EngineExit, FaultPlan, Isolation};

use super::engine_library;
use crate::error::Error;
use crate::settings::{Config, Log, LogFormat};
use crate::{embedded, log};

/// The word that makes this binary an engine.
pub const WORD: &str = "engine-process";

const FAULTS: &str = "OMNIBUS_FAULTS";
const LOG: &str = "OMNIBUS_LOG";
const LOG_FORMAT: &str = "OMNIBUS_LOG_FORMAT";

/// How `omnibus serve` starts it.
pub fn isolation(config: &Config) -> Result<Isolation, Error> {
    let format = match config.log.format {
        LogFormat::Text => "text",
        LogFormat::Json => "json",
    };
    let mut variables =
        vec![(LOG.into(), config.log.filter.clone().into()), (LOG_FORMAT.into(), format.into())];
    variables.extend(engine_library::variable(&config.isolation, config.engine.device));
    Ok(Isolation {
        program: program()?,
        arguments: vec![WORD.into()],
        variables,
        watchdog: Duration::from_secs_f64(config.isolation.watchdog_s),
    })
}

/// Failures that a test orders.
pub fn faults() -> Result<FaultPlan, Error> {
    std::env::var(FAULTS).unwrap_or_default().parse().map_err(|why| Error::usage(format!("{FAULTS}: {why}")))
}

/// This very binary, even when another has been installed in its place.
fn program() -> Result<std::path::PathBuf, Error> {
    if cfg!(target_os = "linux") {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe().map_err(Error::failed)
}

/// Is the engine until told to stop.
pub fn run() -> Result<ExitCode, Error> {
    let format = match std::env::var(LOG_FORMAT).as_deref() {
        Ok("json") => LogFormat::Json,
        _ => LogFormat::Text,
    };
    log::install(&Log { format, filter: std::env::var(LOG).unwrap_or_else(|_| "info".to_owned()) });
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::failed)?;
    let _inside = runtime.enter();
    stay()?;
    match omnibus_engine::run_engine(embedded::FILES) {
        EngineExit::Stopped => Ok(ExitCode::SUCCESS),
        EngineExit::Failed(why) => Err(Error::failed(why)),
    }
}

/// Signals to stop often go to all processes of a service at once. The front's decides when this one ends.
fn stay() -> Result<(), Error> {
    use tokio::signal::unix::{SignalKind, signal};
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        // The handler stays when what listens to it is dropped.
        drop(signal(kind).map_err(Error::failed)?);
    }
    Ok(())
}
