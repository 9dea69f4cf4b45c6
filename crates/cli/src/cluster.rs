//! Several machines that serve one model: from a host file, or as `mlx.launch` has started their processes.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitCode};

use omnibus_engine::{
    Cluster, FollowerPlace, Host, Reach, Secret, Settings, divided_among, read_hosts, read_ring,
};

use crate::engine_process;
use crate::environment;
use crate::error::Error;
use crate::settings::{Config, Log};
use crate::{libmlx, log};

/// The first argument that makes this binary a follower that was started on another machine.
pub const FOLLOWER_SUBCOMMAND: &str = "follower-process";

const SSH: &str = "OMNIBUS_SSH";
const PROGRAM: &str = "OMNIBUS_REMOTE_PROGRAM";
const SECRET: &str = "OMNIBUS_CLUSTER_SECRET";
const RANK: &str = "MLX_RANK";
const HOSTS: &str = "MLX_HOSTFILE";

/// Settings with a process for each machine of `--hostfile`, or of the processes of `mlx.launch`.
pub fn divided(settings: Settings, hostfile: Option<&Path>) -> Result<Settings, Error> {
    let (hosts, secret, what) = match (hostfile, launched()?) {
        (None, None) => return Ok(settings),
        (Some(path), _) => {
            let hosts = read(path, "--hostfile", read_hosts)?;
            (hosts, None, format!("--hostfile {}", path.display()))
        }
        (None, Some(launched)) => (launched.hosts, Some(launched.secret), HOSTS.to_owned()),
    };
    let ssh = environment::text(SSH).unwrap_or_else(|| "ssh -o BatchMode=yes".to_owned());
    let ssh = ssh.split_whitespace().map(str::to_owned).collect();
    let program = environment::text(PROGRAM).unwrap_or_else(|| "omnibus".to_owned());
    let divided = divided_among(Cluster { hosts, ssh, program, secret }, settings);
    divided.map_err(|why| Error::failed(format!("{what}: {why}")))
}

/// Where this process follows the first one, if `mlx.launch` has started it as a later one.
pub fn follower_place() -> Result<Option<FollowerPlace>, Error> {
    let Some(Launched { rank, hosts, secret }) = launched()? else { return Ok(None) };
    if rank == 0 {
        return Ok(None);
    }
    match hosts.get(rank) {
        Some(Host { address, reach: Reach::Listening(port) }) => {
            Ok(Some(FollowerPlace::At(SocketAddr::new(*address, *port), secret)))
        }
        _ => Err(Error::failed(format!("{RANK}: the file of {HOSTS} has no process {rank}"))),
    }
}

/// What `mlx.launch` says to a process.
struct Launched {
    rank: usize,
    hosts: Vec<Host>,
    secret: Secret,
}

fn launched() -> Result<Option<Launched>, Error> {
    let (Some(rank), Some(file)) = (environment::text(RANK), environment::variable(HOSTS)) else {
        return Ok(None);
    };
    let rank =
        rank.parse().map_err(|_| Error::failed(format!("{RANK}: `{rank}` is the number of a process")))?;
    let hosts = read(Path::new(&file), HOSTS, read_ring)?;
    let secret = environment::text(SECRET).as_deref().and_then(Secret::from_hex);
    let secret = secret.ok_or_else(|| {
        Error::failed(format!(
            "{SECRET}: give all processes the same 64 random hexadecimal digits (mlx.launch --env {SECRET}=$(openssl rand -hex 32))"
        ))
    })?;
    Ok(Some(Launched { rank, hosts, secret }))
}

fn read(
    path: &Path,
    what: &str,
    hosts: impl Fn(&str) -> Result<Vec<Host>, String>,
) -> Result<Vec<Host>, Error> {
    let at = |why: &dyn Display| format!("{what} {}: {why}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| Error::usage(at(&error)))?;
    hosts(&text).map_err(|why| Error::failed(at(&why)))
}

/// Follows a process that writes to this one's input.
pub fn follow_input() -> Result<ExitCode, Error> {
    let config = Config { log: Log { filter: "warn".to_owned(), ..Log::default() }, ..Config::default() };
    libmlx::load(&config.isolation, config.engine.device)?;
    log::install(&config.log);
    follow(FollowerPlace::Input, &config)
}

/// Follows the first process of a cluster.
pub fn follow(place: FollowerPlace, config: &Config) -> Result<ExitCode, Error> {
    let program = engine_process::program()?;
    let variables = libmlx::engine_variables(&config.isolation, config.engine.device);
    let filter = config.log.filter.clone();
    let engine = || {
        let mut command = Command::new(&program);
        command.args([engine_process::SUBCOMMAND, engine_process::FOLLOWER]);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.env(engine_process::LOG, &filter);
        command
    };
    omnibus_engine::run_follower(place, engine).map_err(Error::failed)?;
    Ok(ExitCode::SUCCESS)
}
