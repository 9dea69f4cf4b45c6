//! `omnibus pull`, `ls` and `rm`: models of the hub in the cache.

use std::process::ExitCode;

use omnibus_hub::{Cache, HubSettings, ModelId};
use serde_json::json;

use crate::error::Error;
use crate::settings::Output;
use crate::{model, output};

/// Downloads models, and prints where they are.
pub fn pull(models: &[String]) -> Result<ExitCode, Error> {
    for id in ids(models)? {
        output::line(model::download(&id)?.display().to_string());
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the models in the cache.
pub fn list(format: Output) -> Result<ExitCode, Error> {
    let models = cache().list().map_err(Error::failed)?;
    match format {
        Output::Json => {
            let rows = models.iter().map(|model| {
                json!({"model": model.repository, "bytes": model.bytes, "revisions": model.revisions})
            });
            output::line(json!(rows.collect::<Vec<_>>()).to_string());
        }
        Output::Text => {
            if models.is_empty() {
                let folder = HubSettings::from_environment().cache;
                output::note(format!(
                    "no models in {}; `omnibus pull org/name` downloads one",
                    folder.display()
                ));
            }
            let width = models.iter().map(|model| model.repository.len()).max().unwrap_or(0);
            for model in &models {
                let revisions: Vec<&str> = model.revisions.keys().map(String::as_str).collect();
                let (name, gigabytes) = (&model.repository, model.bytes as f64 / 1e9);
                output::line(format!("{name:width$}  {gigabytes:>9.3} GB  {}", revisions.join(", ")));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes models from the cache.
pub fn remove(models: &[String]) -> Result<ExitCode, Error> {
    for id in ids(models)? {
        if !cache().remove(&id).map_err(Error::failed)? {
            return Err(Error::failed(format!("{} is not in the cache", id.repository)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn ids(models: &[String]) -> Result<Vec<ModelId>, Error> {
    if models.is_empty() {
        return Err(Error::usage("missing model: give org/name[@revision]"));
    }
    let id = |text: &String| {
        ModelId::parse(text)
            .ok_or_else(|| Error::usage(format!("`{text}` is not of the form org/name[@revision]")))
    };
    models.iter().map(id).collect()
}

fn cache() -> Cache {
    Cache::new(HubSettings::from_environment().cache)
}
