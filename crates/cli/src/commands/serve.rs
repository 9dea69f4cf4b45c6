//! `omnibus serve`: the HTTP server.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use omnibus_engine::{AddSpecial, Handle, Input, Message, ModelSource, Role};
use omnibus_server::{AdapterUpdates, Keys, Limits, MediaUrls, Settings, StoredResponses};
use serde_json::json;

use super::engine;
use crate::error::Error;
use crate::settings::{Config, EngineIsolation, Listen, LogFormat};
use crate::stop_signals::StopSignals;
use crate::{completion_output, log, model, output, prompt_file};

/// Serves until Ctrl-C or SIGTERM.
pub fn run(mut config: Config, models: &[String]) -> Result<ExitCode, Error> {
    log::install(&config.log);
    let settings = settings(&config.listen)?;
    let sources = sources(models, &config.served_names)?;
    config.engine = model::with_local_draft(config.engine)?;
    let prompts = config.listen.warm_prompts.as_deref().map(|path| prompt_file::read(path, "--warm-prompts"));
    let prompts = prompts.transpose()?.unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::failed)?;
    runtime.block_on(serve(config, settings, sources, prompts))?;
    // Requests that are still being tokenized were already refused.
    runtime.shutdown_timeout(Duration::from_millis(100));
    Ok(ExitCode::SUCCESS)
}

async fn serve(
    config: Config,
    settings: Settings,
    sources: Vec<ModelSource>,
    prompts: Vec<Input>,
) -> Result<(), Error> {
    let Listen { host, port, .. } = &config.listen;
    let listener = omnibus_server::bind(host, *port).await;
    let listener =
        listener.map_err(|error| Error::failed(format!("cannot listen on {host}:{port}: {error}")))?;
    let address = listener.local_addr().map_err(Error::failed)?;
    let mut settings_of_engine = config.engine.clone();
    settings_of_engine.faults = engine::faults()?;
    settings_of_engine.adapter_memory = match config.listen.adapter_updates {
        AdapterUpdates::Allowed => Some(config.listen.adapter_memory),
        AdapterUpdates::Refused => None,
    };
    let mut signals = StopSignals::new().map_err(Error::failed)?;
    let isolation = match config.isolation.mode {
        EngineIsolation::Process => Some(engine::isolation(&config)?),
        EngineIsolation::InProcess => None,
    };
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
    announce(&config, address, &handle);
    let stop = async move {
        signals.recv().await;
        tokio::spawn(async move {
            signals.recv().await;
            std::process::exit(1);
        });
    };
    omnibus_server::serve(listener, Arc::new(handle), settings, stop).await;
    Ok(())
}

fn settings(listen: &Listen) -> Result<Settings, Error> {
    let mut keys = listen.keys.clone();
    if let Some(path) = &listen.key_file {
        let from_file: Vec<String> = Keys::lines(&read(path)?).collect();
        if from_file.is_empty() {
            return Err(Error::usage(format!("--api-key-file: {} has no keys", path.display())));
        }
        keys.extend(from_file);
    }
    let responses = match &listen.state_dir {
        Some(folder) => StoredResponses::in_folder(folder).map_err(|error| {
            Error::usage(format!("--state-dir: cannot use {}: {error}", folder.display()))
        })?,
        None => StoredResponses::default(),
    };
    Ok(Settings {
        keys: Keys::new(keys).map_err(Error::usage)?,
        limits: Limits { body_bytes: listen.body_bytes, ..Limits::default() },
        shutdown_timeout: Duration::from_secs_f64(listen.shutdown_timeout_s),
        model_names: listen.model_names,
        responses: Arc::new(responses),
        adapter_updates: listen.adapter_updates,
        media_urls: MediaUrls::new(&listen.media_domains, &listen.media_directories)
            .map_err(|error| Error::usage(format!("--allow-media-domain and --allow-media-dir: {error}")))?,
        ..Settings::default()
    })
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path)
        .map_err(|error| Error::usage(format!("--api-key-file: cannot read {}: {error}", path.display())))
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

/// Prints the address and a `curl` line.
fn announce(config: &Config, address: SocketAddr, handle: &Handle) {
    let model = handle.models().into_iter().next().map(|model| model.id).unwrap_or_default();
    let memory = handle.details().map(|details| details.memory).unwrap_or_default();
    let url = format!("http://{}", reachable(address));
    if !address.ip().is_loopback() && is_open(&config.listen) {
        tracing::warn!(
            "{address} accepts requests from other machines without a key: set --api-key, or --host 127.0.0.1"
        );
    }
    match config.log.format {
        LogFormat::Json => {
            output::note(
                json!({"message": "listening", "url": url, "model": model, "memory": memory}).to_string(),
            );
        }
        LogFormat::Text => {
            output::note(format!("memory: {memory}"));
            output::note(format!("serving {model} on {url}"));
            output::note(curl(config, &url, &model, handle));
        }
    }
}

/// An address that this machine can connect to.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// A `curl` line for chat, for text completion when the model has no chat template, or for speech.
fn curl(config: &Config, url: &str, model: &str, handle: &Handle) -> String {
    let key = if is_open(&config.listen) { "" } else { " -H \"authorization: Bearer $OMNIBUS_API_KEY\"" };
    if handle.only_transcribes() {
        return format!("curl {url}/v1/audio/transcriptions{key} -F model={model} -F file=@recording.mp3");
    }
    let hello = completion_output::chat(vec![Message::new(Role::User, "Hello!")], Vec::new());
    let has_template = handle.tokenize(None, &hello, AddSpecial::Yes).is_ok();
    let (path, ask) = if has_template {
        ("chat/completions", r#""messages":[{"role":"user","content":"Hello!"}]"#)
    } else {
        ("completions", r#""prompt":"Once upon a time""#)
    };
    format!(
        "curl {url}/v1/{path} -H 'content-type: application/json'{key} -d '{{\"model\":\"{model}\",{ask}}}'"
    )
}

fn is_open(listen: &Listen) -> bool {
    listen.keys.is_empty() && listen.key_file.is_none()
}
