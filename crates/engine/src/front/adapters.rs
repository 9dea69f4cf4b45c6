//! The adapters that requests may name, and which requests use them.
//!
//! Invariant: the engine gets the command to unload an adapter only when no name stands for it and no request uses it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;

use crate::error::StartError;
use crate::info::{AdapterInfo, ModelInfo};
use crate::settings::NamedAdapter;

/// Longest name of an adapter, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// The served adapters, by name.
#[derive(Default)]
pub(crate) struct ServedAdapters {
    served: Mutex<BTreeMap<String, Served>>,
    /// Held by a load until its name is served, and by an unload while it decides whether its adapter is still needed.
    changes: Mutex<()>,
}

struct Served {
    path: PathBuf,
    /// When it was loaded, in seconds since 1970.
    created: u64,
    used: Arc<AdapterUse>,
    unused: oneshot::Receiver<Infallible>,
}

/// An adapter in use, by as many requests as there are clones.
#[derive(Debug)]
pub(crate) struct AdapterUse {
    /// Its id.
    pub(crate) id: u128,
    /// Dropped with the last clone, which is what its receiver waits for.
    _in_use: oneshot::Sender<Infallible>,
}

/// An adapter without a name, while requests may still use it.
pub(super) struct Retired {
    pub(super) id: u128,
    unused: oneshot::Receiver<Infallible>,
}

impl Retired {
    /// Waits until no request uses it.
    pub(super) async fn unused(self) {
        let Err(_ended) = self.unused.await;
    }
}

impl ServedAdapters {
    /// The adapters that were loaded with the engine.
    pub(super) fn new(loaded: Vec<NamedAdapter>) -> Self {
        let new = Self::default();
        for NamedAdapter { name, path, loaded } in loaded {
            new.insert(name, path, loaded.unwrap_or_default());
        }
        new
    }

    /// The adapter with a name, and its use by a request.
    pub(super) fn find(&self, name: &str) -> Option<Arc<AdapterUse>> {
        self.served().get(name).map(|served| Arc::clone(&served.used))
    }

    /// All served adapters of a model, as models.
    pub(super) fn models(&self, base: &ModelInfo) -> Vec<ModelInfo> {
        let served = self.served();
        let model = |(name, served): (&String, &Served)| ModelInfo {
            id: name.clone(),
            aliases: base.names().map(|base| format!("{base}:{name}")).collect(),
            created: served.created,
            adapter: Some(AdapterInfo { path: served.path.display().to_string(), parent: base.id.clone() }),
            ..base.clone()
        };
        served.iter().map(model).collect()
    }

    /// Serves a loaded adapter.
    pub(super) fn insert(&self, name: String, path: PathBuf, id: u128) {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (in_use, unused) = oneshot::channel();
        let used = Arc::new(AdapterUse { id, _in_use: in_use });
        self.served().insert(name, Served { path, created, used, unused });
    }

    /// Removes an adapter's name. Requests that use it go on.
    pub(super) fn remove(&self, name: &str) -> Option<Retired> {
        let Served { used, unused, .. } = self.served().remove(name)?;
        Some(Retired { id: used.id, unused })
    }

    /// Whether a name stands for an adapter.
    pub(super) fn has(&self, id: u128) -> bool {
        self.served().values().any(|served| served.used.id == id)
    }

    fn served(&self) -> MutexGuard<'_, BTreeMap<String, Served>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the load or the unload in progress.
    pub(super) fn changes(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks the names of adapters that are loaded with the engine.
pub(crate) fn check_names(adapters: &[NamedAdapter], names: &[String]) -> Result<(), StartError> {
    for (index, NamedAdapter { name, .. }) in adapters.iter().enumerate() {
        check_adapter_name(name, names.iter().map(String::as_str)).map_err(StartError::new)?;
        if adapters.iter().take(index).any(|other| other.name == *name) {
            return Err(StartError::new(format!("two adapters are named `{name}`")));
        }
    }
    Ok(())
}

/// Checks the name of an adapter of a model.
pub(super) fn check_name(name: &str, base: &ModelInfo) -> Result<(), String> {
    check_adapter_name(name, base.names())
}

fn check_adapter_name<'a>(name: &str, mut served: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let is_sound = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name.chars().all(|character| !character.is_whitespace() && !character.is_control());
    if !is_sound {
        return Err(format!("the name of an adapter has 1 to {NAME_BYTES_MAX} bytes and no white space"));
    }
    match served.any(|served| served == name) {
        true => Err(format!("`{name}` is the name of the model itself")),
        false => Ok(()),
    }
}
