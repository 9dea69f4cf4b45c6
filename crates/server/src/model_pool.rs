//! Several models in one server: each has an engine of its own, which runs while the model is used and its memory suffices.

mod engine;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use omnibus_engine::{Failure, Handle, StartError, StartFailure};
use omnibus_pool::{Loadable, ModelId, Policy, Pool, PoolSettings, Refusal, State};
use serde_json::Value;
use tokio::sync::watch;

use crate::engine::{Lease, ModelName, Residence};

/// A model before it is in a pool.
#[derive(Debug)]
pub struct NewModel {
    /// The model, which need not be loaded.
    pub handle: Handle,
    /// Names of adapters that are loaded with it.
    pub adapters: Vec<String>,
    /// Bytes that it will take at most.
    pub bytes: u64,
    /// Whether it stays when another needs its memory.
    pub pinned: bool,
    /// How long it stays loaded after its last use; `None` for ever.
    pub ttl: Option<Duration>,
}

/// Finds models that are not listed.
pub trait FindModel: Send + Sync + 'static {
    /// The model of this name, if there is one. May take as long as a download.
    fn find(&self, name: &str) -> Result<Option<NewModel>, Failure>;
    /// What the model of this name would need here, before it is downloaded: as `omnibus plan --json` prints it. `None`
    /// where models are not downloaded. May take as long as a request to the hub.
    fn plan(&self, _name: &str) -> Result<Option<Value>, Failure> {
        Ok(None)
    }
}

/// The limits of a pool of models.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelPoolSettings {
    /// Bytes that loaded models may take together; `None` for no limit.
    pub budget: Option<u64>,
    /// How long a request waits for the memory of busy models before they get no new requests.
    pub patience: Duration,
    /// Most requests that wait for models.
    pub waiting_max: usize,
    /// How long a request waits; `None` for as long as it takes.
    pub wait_max: Option<Duration>,
}

/// Models with an engine each, within one memory budget.
pub struct ModelPool {
    pool: Pool<PooledModel>,
    /// Where each name leads.
    names: Mutex<HashMap<String, ModelId>>,
    wait_max: Option<Duration>,
    find: Option<Arc<dyn FindModel>>,
    /// One search at a time: two requests for a name find one model.
    finding: tokio::sync::Mutex<()>,
    /// Whether the server shuts down.
    closing: watch::Sender<bool>,
}

struct PooledModel {
    handle: Handle,
    /// As the server was started.
    ttl: Option<Duration>,
}

impl Loadable for PooledModel {
    fn load(&self) -> Result<u64, String> {
        let again = |error: StartError| match error.cause() {
            StartFailure::Crashed => self.handle.load(),
            StartFailure::Permanent => Err(error),
        };
        self.handle.load().or_else(again).map_err(|error| error.to_string())?;
        let replicas = self.handle.replica_stats().len().max(1) as u64;
        Ok(self.handle.details().map_or(0, |details| details.memory.expected_peak_bytes() * replicas))
    }

    fn unload(&self) {
        self.handle.unload();
        // Its tokenizer was in this process.
        omnibus_engine::return_freed();
    }
}

impl ModelPool {
    /// A pool of models, the default one first. Must be called in a Tokio runtime. Fails where two have one name.
    pub fn new(
        models: Vec<NewModel>,
        settings: &ModelPoolSettings,
        find: Option<Arc<dyn FindModel>>,
    ) -> Result<Self, String> {
        let ModelPoolSettings { budget, patience, waiting_max, wait_max } = *settings;
        let pool = Pool::new(Vec::new(), &PoolSettings { budget, patience, waiting_max });
        let (names, finding) = (Mutex::default(), tokio::sync::Mutex::default());
        let pool = Self { pool, names, wait_max, find, finding, closing: watch::Sender::new(false) };
        for model in models {
            pool.add(model)?;
        }
        Ok(pool)
    }

    /// Loads some of the models, in this order. Fails with one line for the first that cannot be loaded.
    pub async fn preload(&self, models: &[usize]) -> Result<(), String> {
        for model in models {
            match self.pool.lease(ModelId(*model)).await {
                Ok(lease) => drop(lease),
                Err(Refusal::Failed { why, .. }) => return Err(why),
                Err(refusal) => return Err(refusal.to_string()),
            }
        }
        Ok(())
    }

    /// The default model, if there is any.
    pub fn default_model(&self) -> Option<Handle> {
        self.pool.model(ModelId(0)).map(|model| model.handle.clone())
    }

    /// Adds a model under its names, and under those of its adapters.
    fn add(&self, model: NewModel) -> Result<ModelId, String> {
        let NewModel { handle, adapters, bytes, pinned, ttl } = model;
        let mut known = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<String> = handle.names().iter().cloned().chain(adapters).collect();
        if let Some(name) = names.iter().find(|name| known.contains_key(*name)) {
            return Err(format!("two models or adapters are named `{name}`"));
        }
        let id = self.pool.add(PooledModel { handle, ttl }, bytes, Policy { pinned, ttl });
        known.extend(names.into_iter().map(|name| (name, id)));
        Ok(id)
    }

    /// The models, in the order they were added.
    fn handles(&self) -> Vec<Handle> {
        self.pool.models().iter().map(|model| model.handle.clone()).collect()
    }

    /// The model of a name, or of an adapter that was loaded later.
    fn id(&self, name: ModelName<'_>) -> Option<ModelId> {
        let Some(name) = name else { return self.pool.model(ModelId(0)).map(|_| ModelId(0)) };
        let known = self.names.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied();
        known.or_else(|| {
            let has =
                |handle: &Handle| handle.models().iter().any(|model| model.names().any(|of| of == name));
            self.handles().iter().position(has).map(ModelId)
        })
    }

    /// The handle of a served name.
    fn handle(&self, name: ModelName<'_>) -> Result<Handle, Failure> {
        let found = self.id(name).and_then(|id| self.pool.model(id));
        let found = found.map(|model| model.handle.clone());
        found.ok_or_else(|| Failure::unknown_model(name.unwrap_or_default(), &self.listed()))
    }

    /// The models whose engines run.
    fn loaded(&self) -> Vec<Handle> {
        self.handles().into_iter().filter(|handle| handle.details().is_some()).collect()
    }

    fn listed(&self) -> Vec<omnibus_engine::ModelInfo> {
        self.handles().iter().flat_map(Handle::models).collect()
    }

    /// The model of a name, which is searched for where it is not known.
    async fn found(&self, name: ModelName<'_>) -> Result<Option<ModelId>, Failure> {
        if let Some(id) = self.id(name) {
            return Ok(Some(id));
        }
        let (Some(find), Some(name)) = (&self.find, name) else { return Ok(None) };
        let _alone = self.finding.lock().await;
        if let Some(id) = self.id(Some(name)) {
            return Ok(Some(id));
        }
        let (find, wanted) = (Arc::clone(find), name.to_owned());
        let found = tokio::task::spawn_blocking(move || find.find(&wanted)).await;
        let found = found.unwrap_or_else(|_| Err(engine_failure("the search for a model panicked")))?;
        let Some(model) = found else { return Ok(None) };
        self.add(model).map(Some).map_err(engine_failure)
    }

    /// What a model would need, before it is downloaded.
    async fn planned(&self, name: &str) -> Result<Option<Value>, Failure> {
        let Some(find) = &self.find else { return Ok(None) };
        let (find, wanted) = (Arc::clone(find), name.to_owned());
        let planned = tokio::task::spawn_blocking(move || find.plan(&wanted)).await;
        planned.unwrap_or_else(|_| Err(engine_failure("the plan of a model panicked")))
    }

    async fn leased(&self, name: ModelName<'_>) -> Result<Lease, Failure> {
        let mut closing = self.closing.subscribe();
        let closed = async {
            // Its sender is this pool.
            let _ = closing.wait_for(|closing| *closing).await;
        };
        let limit = async {
            match self.wait_max {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        let lease = async {
            let Some(id) = self.found(name).await? else { return Ok(Lease::default()) };
            self.pool.lease(id).await.map(Lease::new).map_err(|refusal| self.failure(id, &refusal))
        };
        tokio::select! {
            biased;
            lease = lease => lease,
            () = closed => {
                Err(Failure::Unavailable { message: "it is shutting down".to_owned(), retry_after_s: None })
            }
            () = limit => {
                Err(Failure::Timeout { after_s: self.wait_max.map_or(0.0, |limit| limit.as_secs_f64()) })
            }
        }
    }

    fn failure(&self, id: ModelId, refusal: &Refusal) -> Failure {
        let retry_after_s = match refusal {
            Refusal::QueueFull => return Failure::Busy { retry_after_s: 1 },
            Refusal::Failed { retry_in, .. } => Some(retry_in.as_secs().max(1)),
            Refusal::TooLarge { .. } => None,
        };
        let model = self.pool.model(id).and_then(|model| model.handle.names().first().cloned());
        let (model, message) = (model.unwrap_or_default(), refusal.to_string());
        Failure::ModelUnavailable { model, message, retry_after_s }
    }

    fn residence_of(&self, id: ModelId) -> Option<Residence> {
        let residence = self.pool.residence(id)?;
        // One that is too far away is never.
        let at = |at: Duration| match at.checked_sub(self.pool.now()) {
            Some(ahead) => SystemTime::now().checked_add(ahead),
            None => SystemTime::now().checked_sub(self.pool.now().saturating_sub(at)),
        };
        let (status, failure) = match residence.state {
            State::Unloaded => ("unloaded", None),
            State::Loading => ("loading", None),
            State::Ready => ("loaded", None),
            State::Draining => ("draining", None),
            State::Unloading => ("unloading", None),
            State::Failed { why } => ("failed", Some(why)),
        };
        Some(Residence {
            status,
            failure,
            bytes: residence.bytes,
            active: residence.users,
            waiting: residence.waiting,
            last_used: residence.last_used.and_then(at),
            expires: residence.expires.and_then(at),
            pinned: residence.policy.pinned,
            loads: residence.loads,
        })
    }
}

fn engine_failure(message: impl Into<String>) -> Failure {
    Failure::Engine { message: message.into() }
}
