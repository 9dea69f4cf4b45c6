//! `omnibus serve`: the HTTP server.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use omnibus_engine::{Input, ModelSource};
use omnibus_server::{AdapterUpdates, InheritedSockets, Settings, VllmMetrics};

use super::serve_announcement::announce;
use super::{engine, serve_settings};
use crate::error::Error;
use crate::reload_signal::Reloaded;
use crate::settings::{Config, EngineIsolation, MetricsCompat};
use crate::stop_signals::StopSignals;
use crate::{log, model, prompt_file};

/// Serves until Ctrl-C or SIGTERM.
pub fn run(mut config: Config, models: &[String]) -> Result<ExitCode, Error> {
    log::install(&config.log);
    match omnibus_server::raise_open_files() {
        Ok(limit) => tracing::debug!(limit, "limit of open files"),
        Err(error) => tracing::warn!(%error, "cannot raise the limit of open files"),
    }
    // Before there are other threads.
    let inherited = InheritedSockets::take()
        .map_err(|error| Error::usage(format!("LISTEN_FDS: cannot use a socket: {error}")))?;
    let settings = serve_settings::settings(&config.listen, config.engine.max_queue)?;
    let settings = Settings {
        vllm_metrics: match config.listen.metrics_compat {
            MetricsCompat::Ours => None,
            MetricsCompat::Vllm => Some(VllmMetrics { block_size: config.engine.block_size }),
        },
        ..settings
    };
    let sources = sources(models, &config.served_names)?;
    config.engine = model::with_local_draft(config.engine)?;
    let prompts = config.listen.warm_prompts.as_deref().map(|path| prompt_file::read(path, "--warm-prompts"));
    let prompts = prompts.transpose()?.unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::failed)?;
    runtime.block_on(serve(config, inherited, settings, sources, prompts))?;
    // Requests that are still being tokenized were already refused.
    runtime.shutdown_timeout(Duration::from_millis(100));
    Ok(ExitCode::SUCCESS)
}

async fn serve(
    config: Config,
    inherited: Option<InheritedSockets>,
    settings: Settings,
    sources: Vec<ModelSource>,
    prompts: Vec<Input>,
) -> Result<(), Error> {
    let listeners = serve_settings::listeners(&config.listen, inherited).await?;
    let addresses = listeners.addresses().map_err(Error::failed)?;
    let mut settings_of_engine = config.engine.clone();
    settings_of_engine.faults = engine::faults()?;
    settings_of_engine.adapter_memory = match config.listen.adapter_updates {
        AdapterUpdates::Allowed => Some(config.listen.adapter_memory),
        AdapterUpdates::Refused => None,
    };
    let mut signals = StopSignals::new().map_err(Error::failed)?;
    // Also while the model is loaded.
    let keys = config.listen.key_file.as_ref().map(|_| settings.keys.clone());
    let reloaded = Reloaded { keys, tls: settings.tls.clone() };
    reloaded.on_signal().map_err(Error::failed)?;
    let isolation = match config.isolation.mode {
        EngineIsolation::Process => Some(engine::isolation(&config)?),
        EngineIsolation::InProcess => None,
    };
    if isolation.is_some() {
        // This process holds requests, and no arrays.
        omnibus_engine::return_large_blocks();
    }
    let started = tokio::task::spawn_blocking(move || match isolation {
        Some(isolation) => omnibus_engine::start_isolated(sources, settings_of_engine, isolation),
        None => omnibus_engine::start(sources, settings_of_engine),
    });
    let handle = tokio::select! {
        started = started => started.map_err(Error::failed)?.map_err(Error::failed)?,
        () = signals.recv() => return Ok(()),
    };
    if !prompts.is_empty() {
        let (engine, tenants) = (handle.clone(), settings.keys.tenants());
        let computed = tokio::task::spawn_blocking(move || prompt_file::warm_up(&engine, &prompts, &tenants));
        tokio::select! {
            computed = computed => computed.map_err(Error::failed)?,
            () = signals.recv() => return Ok(()),
        }
    }
    announce(&config, &addresses, &handle);
    let stop = async move {
        signals.recv().await;
        tokio::spawn(async move {
            signals.recv().await;
            std::process::exit(1);
        });
    };
    omnibus_server::serve(listeners, Arc::new(handle), settings, stop).await;
    Ok(())
}

fn sources(models: &[String], served_names: &[String]) -> Result<Vec<ModelSource>, Error> {
    match models {
        [] => Ok(vec![model::source(None, served_names)?]),
        [one] => Ok(vec![model::source(Some(one), served_names)?]),
        several if !served_names.is_empty() => {
            Err(Error::usage(format!("--served-model-name needs exactly one model, not {}", several.len())))
        }
        several => several.iter().map(|model| model::source(Some(model), &[])).collect(),
    }
}
