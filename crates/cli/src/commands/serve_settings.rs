//! What `omnibus serve` passes to the server, made from its settings.

use std::sync::Arc;
use std::time::Duration;

use omnibus_batches::Store;
use omnibus_engine::Settings as EngineSettings;
use omnibus_server::{
    Access, BatchSettings, Clock, InheritedSockets, KeyError, Keys, Limits, Listeners, MediaUrls, Records,
    Settings, StoredResponses, Tls, Traces,
};

use crate::error::Error;
use crate::settings::{Listen, Page};

/// The server's settings, before an engine with these.
pub fn settings(listen: &Listen, engine: &EngineSettings) -> Result<Settings, Error> {
    let keys = Keys::read(listen.keys.clone(), listen.key_file.clone(), Clock::default());
    let keys = keys.map_err(|error| match error {
        KeyError::File { .. } => Error::usage(format!("--api-key-file: {error}")),
        error => Error::usage(error),
    })?;
    let (responses, batches) = match &listen.state_dir {
        Some(folder) => {
            let fail = |error| Error::usage(format!("--state-dir: cannot use {}: {error}", folder.display()));
            let store = Store::open(folder, listen.batch_bytes).map_err(fail)?;
            let batches = BatchSettings { store: Arc::new(store), width: listen.batch_width };
            (StoredResponses::in_folder(folder).map_err(fail)?, Some(batches))
        }
        None => (StoredResponses::default(), None),
    };
    let (traces, records) = (traces(listen)?, records(listen)?);
    // A name that the server listens on is a name of the server.
    let hosts = listen.allowed_hosts.clone().with_name(&listen.host);
    Ok(Settings {
        tls: tls(listen)?,
        traces,
        records,
        root_path: listen.root_path.clone(),
        access: Access { hosts, origins: listen.allowed_origins.clone() },
        keys,
        queue_places: engine.max_queue,
        max_num_seqs: engine.max_num_seqs,
        tensor_parallel_size: engine.tensor_parallel_size,
        limits: Limits { body_bytes: listen.body_bytes, ..Limits::default() },
        shutdown_timeout: Duration::from_secs_f64(listen.shutdown_timeout_s),
        model_names: listen.model_names,
        request_templates: listen.request_templates,
        responses: Arc::new(responses),
        batches,
        adapter_updates: listen.adapter_updates,
        page_settings: page_settings(listen)?,
        media_urls: MediaUrls::new(&listen.media_domains, &listen.media_directories)
            .map_err(|error| Error::usage(format!("--allow-media-domain and --allow-media-dir: {error}")))?,
        ..Settings::default()
    })
}

/// What the page shows of the settings; `None` without a page.
fn page_settings(listen: &Listen) -> Result<Option<Arc<serde_json::Value>>, Error> {
    match listen.page {
        Page::Off => Ok(None),
        Page::On => {
            serde_json::to_value(&listen.shown_settings).map(Arc::new).map(Some).map_err(Error::failed)
        }
    }
}

fn traces(listen: &Listen) -> Result<Option<Traces>, Error> {
    let traces = listen.traces_endpoint.as_deref().map(Traces::to).transpose();
    traces.map_err(|error| Error::usage(format!("--otlp-traces-endpoint: {error}")))
}

fn records(listen: &Listen) -> Result<Option<Records>, Error> {
    let Some(folder) = &listen.record else { return Ok(None) };
    let records = Records::in_folder(folder, listen.record_bytes);
    let failed = |error| Error::usage(format!("--record: cannot use {}: {error}", folder.display()));
    records.map(Some).map_err(failed)
}

fn tls(listen: &Listen) -> Result<Option<Tls>, Error> {
    match (&listen.tls_certificate, &listen.tls_key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => {
            let tls = Tls::read(certificate.clone(), key.clone());
            tls.map(Some).map_err(|error| Error::usage(format!("--tls-cert and --tls-key: {error}")))
        }
        _ => Err(Error::usage("--tls-cert and --tls-key need each other")),
    }
}

/// The sockets to accept connections on: those of the service manager, else a UNIX socket, else a TCP one.
pub async fn listeners(listen: &Listen, inherited: Option<InheritedSockets>) -> Result<Listeners, Error> {
    let Listen { host, port, .. } = listen;
    let (listeners, place) = match (inherited, &listen.uds) {
        (Some(sockets), _) => (Listeners::inherit(sockets), "the sockets of LISTEN_FDS".to_owned()),
        (None, Some(path)) => (Listeners::bind_unix(path), path.display().to_string()),
        (None, None) => (Listeners::bind(host, *port).await, format!("{host}:{port}")),
    };
    listeners.map_err(|error| Error::failed(format!("cannot listen on {place}: {error}")))
}
