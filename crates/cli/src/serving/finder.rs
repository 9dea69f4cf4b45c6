//! Models that are not listed: new ones in `--models-dir`, and with `--allow-pull` those of the hub.

use omnibus_engine::{Failure, ModelSource};
use omnibus_hub::ModelId;
use omnibus_server::{FindModel, NewModel};

use super::{PoolModel, folder};
use crate::error::Error;
use crate::model;
use crate::settings::{Config, PullPolicy, Residency};

/// Finds models by the settings of the server.
pub struct Finder {
    config: Config,
    budget: Option<u64>,
}

impl Finder {
    /// Finds models with these settings, within what all models have together.
    pub fn new(config: Config, budget: Option<u64>) -> Self {
        Self { config, budget }
    }

    fn source(&self, name: &str) -> Result<Option<ModelSource>, Error> {
        if let Some(folder) = &self.config.pool.folder
            && let Some((name, path)) = folder::models(folder)?.into_iter().find(|(found, _)| found == name)
        {
            return Ok(Some(ModelSource::Directory { path, served_names: vec![name] }));
        }
        match (self.config.pool.pull, ModelId::parse(name)) {
            (PullPolicy::Allowed, Some(id)) => {
                tracing::info!(model = name, "downloading what the cache lacks");
                let path = model::download(&id)?;
                Ok(Some(ModelSource::Directory { path, served_names: vec![name.to_owned()] }))
            }
            _ => Ok(None),
        }
    }
}

impl FindModel for Finder {
    fn find(&self, name: &str) -> Result<Option<NewModel>, Failure> {
        let unavailable = |error: Error| Failure::ModelUnavailable {
            model: name.to_owned(),
            message: error.to_string(),
            retry_after_s: None,
        };
        let Some(source) = self.source(name).map_err(unavailable)? else { return Ok(None) };
        let served = PoolModel::new(&self.config, Residency::default(), source);
        let new = served.and_then(|model| model.unloaded(self.budget)).map_err(unavailable)?;
        Ok(Some(new))
    }
}
