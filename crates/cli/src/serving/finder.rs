//! Models that are not listed: new ones in `--models-dir`, and with `--allow-pull` those of the hub.

use std::process::{Command, Stdio};

use omnibus_engine::{Failure, ModelSource};
use omnibus_hub::ModelId;
use omnibus_server::{FindModel, NewModel};
use serde_json::Value;

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

    fn plan(&self, name: &str) -> Result<Option<Value>, Failure> {
        if self.config.pool.pull != PullPolicy::Allowed {
            return Ok(None);
        }
        // A name of another form could be a file, or a flag.
        let Some(id) = ModelId::parse(name) else {
            return Err(Failure::bad_request("model", "a model of the hub is named org/name"));
        };
        planned(&id.to_string()).map(Some).map_err(|message| Failure::ModelUnavailable {
            model: name.to_owned(),
            message,
            retry_after_s: None,
        })
    }
}

/// What `omnibus plan --json` prints, in a process of its own: what the hub sends is read there.
fn planned(name: &str) -> Result<Value, String> {
    let program = std::env::current_exe().map_err(|error| format!("it cannot be planned: {error}"))?;
    let out = Command::new(program).args(["plan", "--json", name]).stdin(Stdio::null()).output();
    let out = out.map_err(|error| format!("it cannot be planned: {error}"))?;
    match out.status.success() {
        true => serde_json::from_slice(&out.stdout).map_err(|error| format!("its plan is no JSON: {error}")),
        false => Err(String::from_utf8_lossy(&out.stderr).trim().to_owned()),
    }
}
