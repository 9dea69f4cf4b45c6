//! Loading the named adapters of the settings with the model.

use omnibus_model::Model;

use crate::error::StartError;
use crate::settings::{NamedAdapter, Settings};

/// Loads them, and returns those that were loaded. At an engine's start all must load; when its process starts again, one
/// whose files are gone or changed costs only the requests that name it.
pub(super) fn load(model: &Model, settings: &Settings) -> Result<Vec<NamedAdapter>, StartError> {
    if !settings.adapters.is_empty() && settings.prompt_cache.is_some() {
        return Err(StartError::new(
            "named adapters cannot continue a prompt cache file: it was computed without them",
        ));
    }
    let mut loaded = Vec::new();
    for adapter in &settings.adapters {
        let name = &adapter.name;
        let found = model.load_adapter(&adapter.path);
        match (found, adapter.loaded) {
            (Ok(id), None) => loaded.push(NamedAdapter { loaded: Some(id.0), ..adapter.clone() }),
            (Ok(id), Some(before)) if id.0 == before => loaded.push(adapter.clone()),
            (Ok(id), Some(_)) => {
                tracing::error!(
                    name,
                    "the adapter's files have changed; it is not served until it is loaded again"
                );
                model.unload_adapter(id).map_err(StartError::new)?;
            }
            (Err(error), None) => return Err(StartError::new(format!("adapter `{name}`: {error}"))),
            (Err(error), Some(_)) => tracing::error!(name, %error, "the adapter cannot be loaded again"),
        }
    }
    Ok(loaded)
}
