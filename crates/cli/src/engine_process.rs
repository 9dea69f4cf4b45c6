//! The engine process that `omnibus serve` starts as its child.
//!
//! Invariant: internal. It is in no table of commands; the server passes its settings as variables.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use omnibus_engine::{EngineExit, EngineRole, FaultPlan, Isolation};

use crate::error::Error;
use crate::settings::{Config, Log, LogFormat};
use crate::{embedded, environment, libmlx, log};

/// The first argument that makes this binary an engine process.
pub const SUBCOMMAND: &str = "engine-process";

/// The second argument of one that only follows.
pub const FOLLOWER: &str = "follower";

const FAULTS: &str = "OMNIBUS_FAULTS";
const THREADS: &str = "OMNIBUS_CPU_THREADS";
/// The filter of log lines.
pub const LOG: &str = "OMNIBUS_LOG";
const LOG_FORMAT: &str = "OMNIBUS_LOG_FORMAT";

/// How `omnibus serve` starts the engine process. `label`: the model's name for log lines.
pub fn isolation(config: &Config, label: Option<String>) -> Result<Isolation, Error> {
    let format = match config.log.format {
        LogFormat::Text => "text",
        LogFormat::Json => "json",
    };
    let mut variables =
        vec![(LOG.into(), config.log.filter.clone().into()), (LOG_FORMAT.into(), format.into())];
    variables.extend(libmlx::engine_variables(&config.isolation, config.engine.device));
    let engine = &config.engine;
    // Stages compute one after the other, each with all cores of its machine.
    let ranks = match (engine.tensor_parallel_size, &engine.cluster) {
        (2.., Some(cluster)) => cluster.processes_on_a_host(),
        (ranks, _) => ranks,
    };
    let processes = ranks * engine.data_parallel_size;
    variables.extend(threads_of_a_process(processes));
    Ok(Isolation {
        program: program()?,
        arguments: vec![SUBCOMMAND.into()],
        variables,
        label,
        watchdog: Duration::from_secs_f64(config.isolation.watchdog_s),
    })
}

/// By which the processes of a model share this machine's cores, unless the user says how many threads each has.
fn threads_of_a_process(processes: usize) -> Option<(OsString, OsString)> {
    if processes == 1 || environment::variable(THREADS).is_some() {
        return None;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Some((THREADS.into(), (cores / processes).max(1).to_string().into()))
}

/// Failures injected by tests.
pub fn faults() -> Result<FaultPlan, Error> {
    environment::text(FAULTS)
        .unwrap_or_default()
        .parse()
        .map_err(|why| Error::usage(format!("{FAULTS}: {why}")))
}

/// The running binary, even after another was installed at its path.
pub fn program() -> Result<std::path::PathBuf, Error> {
    if cfg!(target_os = "linux") {
        return Ok("/proc/self/exe".into());
    }
    std::env::current_exe().map_err(Error::failed)
}

/// Runs the engine until the server closes the socket or sends a stop.
pub fn run() -> Result<ExitCode, Error> {
    let format = match environment::text(LOG_FORMAT).as_deref() {
        Some("json") => LogFormat::Json,
        _ => LogFormat::Text,
    };
    log::install(&Log { format, filter: environment::text(LOG).unwrap_or_else(|| "info".to_owned()) });
    libmlx::loaded()?;
    libmlx::set_variables();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::failed)?;
    let _inside = runtime.enter();
    ignore_stop_signals()?;
    let role = match std::env::args_os().nth(2).is_some_and(|word| word == FOLLOWER) {
        true => EngineRole::Follower,
        false => EngineRole::Any,
    };
    match omnibus_engine::run_engine(embedded::FILES, role) {
        EngineExit::Stopped => Ok(ExitCode::SUCCESS),
        EngineExit::Failed(why) => Err(Error::failed(why)),
    }
}

/// Ignores stop signals, which service managers send to all processes: the server decides when the engine ends.
fn ignore_stop_signals() -> Result<(), Error> {
    use tokio::signal::unix::{SignalKind, signal};
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        // The handler stays installed after its listener is dropped.
        drop(signal(kind).map_err(Error::failed)?);
    }
    Ok(())
}
