//! `omnibus serve`: the HTTP server.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use omnibus_engine::{Input, PidFile, UncleanShutdowns, gigabytes};
use omnibus_server::{InheritedSockets, Settings, VllmMetrics};

use super::serve_announcement::announce;
use super::{mcp, serve_settings};
use crate::error::Error;
use crate::reload_signal::Reloaded;
use crate::service::notify;
use crate::serving::{self, PoolModel};
use crate::settings::{Config, EngineIsolation, MetricsCompat};
use crate::stop_signals::StopSignals;
use crate::{cluster, environment, log, prompt_file};

/// Serves until Ctrl-C or SIGTERM.
pub fn run(config: Config, models: &[String]) -> Result<ExitCode, Error> {
    log::install(&config.log);
    if let Some(place) = cluster::follower_place()? {
        return cluster::follow(place, &config);
    }
    match omnibus_server::raise_open_files() {
        Ok(limit) => tracing::debug!(limit, "limit of open files"),
        Err(error) => tracing::warn!(%error, "cannot raise the limit of open files"),
    }
    // Before there are other threads.
    let inherited = InheritedSockets::take()
        .map_err(|error| Error::usage(format!("LISTEN_FDS: cannot use a socket: {error}")))?;
    let settings = serve_settings::settings(&config.listen, &config.engine)?;
    let settings = Settings {
        vllm_metrics: match config.listen.metrics_compat {
            MetricsCompat::Ours => None,
            MetricsCompat::Vllm => Some(VllmMetrics { block_size: config.engine.block_size }),
        },
        ..settings
    };
    let models = serving::models(&config, models)?;
    let prompts = config.listen.warm_prompts.as_deref().map(|path| prompt_file::read(path, "--warm-prompts"));
    let prompts = prompts.transpose()?.unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::failed)?;
    runtime.block_on(serve(config, inherited, settings, models, prompts))?;
    // Requests that are still being tokenized were already refused.
    runtime.shutdown_timeout(Duration::from_millis(100));
    Ok(ExitCode::SUCCESS)
}

async fn serve(
    config: Config,
    inherited: Option<InheritedSockets>,
    settings: Settings,
    models: Vec<PoolModel>,
    prompts: Vec<Input>,
) -> Result<(), Error> {
    let listeners = serve_settings::listeners(&config.listen, inherited).await?;
    let addresses = listeners.addresses().map_err(Error::failed)?;
    let mut signals = StopSignals::new().map_err(Error::failed)?;
    // Also while the model is loaded.
    let keys = config.listen.key_file.as_ref().map(|_| settings.keys.clone());
    let reloaded = Reloaded { keys, tls: settings.tls.clone() };
    reloaded.on_signal().map_err(Error::failed)?;
    let _pid_file = pid_file();
    if config.isolation.mode == EngineIsolation::Process {
        // This process holds requests, and no arrays.
        omnibus_engine::return_large_blocks();
    }
    let preloaded: Vec<usize> =
        (0..models.len()).filter(|at| models.get(*at).is_some_and(|model| model.preload)).collect();
    // They are started beside the model.
    let settings = Settings { mcp: mcp::start(&config.mcp)?, ..settings };
    let pool = Arc::new(serving::pool(&config, models)?);
    tokio::select! {
        loaded = pool.preload(&preloaded) => loaded.map_err(Error::failed)?,
        () = signals.recv() => return Ok(()),
    };
    if let (Some(default), false) = (pool.default_model(), prompts.is_empty()) {
        let tenants = settings.keys.tenants();
        let computed =
            tokio::task::spawn_blocking(move || prompt_file::warm_up(&default, &prompts, &tenants));
        tokio::select! {
            computed = computed => computed.map_err(Error::failed)?,
            () = signals.recv() => return Ok(()),
        }
    }
    announce(&config, &addresses, pool.as_ref());
    notify::ready();
    let stop = async move {
        signals.recv().await;
        notify::stopping();
        tokio::spawn(async move {
            signals.recv().await;
            std::process::exit(1);
        });
    };
    omnibus_server::serve(listeners, pool, settings, stop).await;
    Ok(())
}

/// Writes this server's PID file, and says what servers left that did not shut down cleanly; `None` where there is no place for it.
fn pid_file() -> Option<PidFile> {
    let folder = environment::runtime_folder()?.join("omnibus/servers");
    let (file, unclean) = match PidFile::create(&folder) {
        Ok(created) => created,
        Err(error) => {
            tracing::debug!(%error, folder = %folder.display(), "cannot write the PID file");
            return None;
        }
    };
    match unclean {
        UncleanShutdowns { count: 0, .. } => {}
        UncleanShutdowns { missing_bytes: Some(bytes), .. } => {
            let fewer = gigabytes(bytes);
            tracing::warn!(%fewer, "a server did not shut down cleanly, and less memory is available than before it started");
        }
        UncleanShutdowns { count, .. } => tracing::info!(count, "servers that did not shut down cleanly"),
    }
    Some(file)
}
