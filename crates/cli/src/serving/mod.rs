//! Which models `serve` serves, and how much memory each may take.

mod finder;
mod folder;
mod reservation;

use std::sync::Arc;
use std::time::Duration;

use omnibus_engine::{EngineHost, LogitsProcessors, ModelSource, gigabytes};
use omnibus_server::{AdapterUpdates, ModelPool, ModelPoolSettings, NewModel};

use crate::error::Error;
use crate::settings::{Config, EngineIsolation, ModelTable, PullPolicy, Residency, config_of};
use crate::{cluster, engine_process, model};
use finder::Finder;

/// How long a request waits for the memory of busy models before they get no new requests.
const PATIENCE: Duration = Duration::from_secs(10);

/// A model to serve.
pub struct PoolModel {
    source: ModelSource,
    /// With the settings of this model.
    config: Config,
    pinned: bool,
    ttl: Option<Duration>,
    /// Whether it is loaded before the server accepts requests.
    pub preload: bool,
}

/// The models of the command line, then those of `omnibus.toml`, then those of `--models-dir`; the embedded one where there
/// are none. The first of the command line is loaded at the start.
pub fn models(config: &Config, arguments: &[String]) -> Result<Vec<PoolModel>, Error> {
    let pool = &config.pool;
    let mut models = Vec::new();
    for (index, argument) in arguments.iter().enumerate() {
        let names = match (arguments, config.served_names.as_slice()) {
            ([_], names) => names,
            (_, []) => &[],
            (several, _) => {
                let count = several.len();
                return Err(Error::usage(format!(
                    "--served-model-name needs exactly one model, not {count}"
                )));
            }
        };
        let residency = Residency { preload: index == 0, ..Residency::default() };
        // A name of `omnibus.toml` is that model.
        if !pool.tables.iter().any(|table| table.name == *argument) {
            models.push(PoolModel::new(config, residency, model::source(Some(argument), names)?)?);
        }
    }
    for table in &pool.tables {
        models.push(of_table(config, table)?);
    }
    for (name, path) in pool.folder.as_deref().map(folder::models).transpose()?.unwrap_or_default() {
        let source = ModelSource::Directory { path, served_names: vec![name] };
        models.push(PoolModel::new(config, Residency::default(), source)?);
    }
    if models.is_empty() && (pool.folder.is_none() || pool.pull == PullPolicy::Refused) {
        if let Some(folder) = &pool.folder {
            let path = folder.display();
            return Err(Error::failed(format!("--models-dir: no directory in {path} has a config.json")));
        }
        let residency = Residency { preload: true, ..Residency::default() };
        models.push(PoolModel::new(config, residency, model::source(None, &config.served_names)?)?);
    }
    // What the command line names first is the default model.
    if let Some(first) = arguments.first()
        && let Some(at) = models.iter().position(|model| model.source.names().first() == Some(first))
        && let Some(chosen) = models.get_mut(at)
    {
        chosen.preload = true;
        models.rotate_left(at);
    }
    Ok(models)
}

fn of_table(config: &Config, table: &ModelTable) -> Result<PoolModel, Error> {
    let names: Vec<String> = std::iter::once(&table.name).chain(&table.aliases).cloned().collect();
    let source = model::source(Some(table.model.as_deref().unwrap_or(&table.name)), &names)?;
    PoolModel::new(&config_of(table, config)?, table.residency, source)
}

impl PoolModel {
    fn new(config: &Config, residency: Residency, source: ModelSource) -> Result<Self, Error> {
        let mut config = config.clone();
        config.engine = model::with_local_draft(config.engine)?;
        config.engine = cluster::divided(config.engine, config.isolation.hostfile.as_deref())?;
        config.engine.faults = engine_process::faults()?;
        config.engine.adapter_memory = match config.listen.adapter_updates {
            AdapterUpdates::Allowed => Some(config.listen.adapter_memory),
            AdapterUpdates::Refused => None,
        };
        let ttl_s = residency.ttl_s.or(config.pool.ttl_s).filter(|seconds| *seconds >= 0.0);
        let ttl = ttl_s.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Ok(Self { source, config, pinned: residency.pin, ttl, preload: residency.preload })
    }

    /// The model with an engine that is not started, within what all models have together.
    fn unloaded(self, budget: Option<u64>) -> Result<NewModel, Error> {
        let Self { source, config, pinned, ttl, .. } = self;
        let mut settings = config.engine.clone();
        let mut bytes = 0;
        if let Some(budget) = budget {
            // One that is broken says so when it is loaded; the others are served.
            let weights = source.weight_bytes(&settings).unwrap_or_else(|error| {
                tracing::warn!("{}: {error}", source.names().join(", "));
                0
            });
            bytes = reservation::bytes(weights, &settings, budget);
            settings.memory_limit = Some(bytes);
        }
        // A budget is for several models.
        let label = budget.and_then(|_| source.names().into_iter().next());
        let host = match config.isolation.mode {
            EngineIsolation::Process => EngineHost::Isolated(engine_process::isolation(&config, label)?),
            EngineIsolation::InProcess => EngineHost::InProcess(LogitsProcessors::default()),
        };
        let adapters = settings.adapters.iter().map(|adapter| adapter.name.clone()).collect();
        let handle = omnibus_engine::unloaded(vec![source], settings, host).map_err(Error::failed)?;
        Ok(NewModel { handle, adapters, bytes, pinned, ttl })
    }
}

/// The pool of these models. Must be called in a Tokio runtime.
pub fn pool(config: &Config, models: Vec<PoolModel>) -> Result<ModelPool, Error> {
    let more = config.pool.folder.is_some() || config.pool.pull == PullPolicy::Allowed;
    let budget = match models.len() {
        1 if !more => None,
        _ => omnibus_engine::memory_for_models(&config.engine).map_err(Error::failed)?,
    };
    let budget_bytes = budget.as_ref().map(|limit| limit.bytes);
    if let Some(limit) = &budget {
        let size = gigabytes(limit.bytes);
        tracing::info!("models may take {size} together: {}, without what is left free", limit.source);
    }
    let finder = more.then(|| Arc::new(Finder::new(config.clone(), budget_bytes)) as Arc<_>);
    let settings = ModelPoolSettings {
        budget: budget_bytes,
        patience: PATIENCE,
        waiting_max: config.engine.max_queue.max(1),
        wait_max: config.engine.request_timeout_s.map(Duration::from_secs_f64),
    };
    let models = models.into_iter().map(|model| model.unloaded(budget_bytes)).collect::<Result<_, _>>()?;
    ModelPool::new(models, &settings, finder).map_err(Error::usage)
}
