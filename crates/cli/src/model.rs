//! Resolves a model argument to a source that the engine can load.

use std::path::{Path, PathBuf};

use omnibus_engine::{DraftSource, ModelSource, Settings as EngineSettings};
use omnibus_hub::{Hub, HubSettings, ModelId};

use crate::error::Error;
use crate::{completion_output, embedded, gguf, progress};

/// The model directory, the model on the hub, which is downloaded unless the cache has it, or the embedded model.
pub fn source(model: Option<&str>, served_names: &[String]) -> Result<ModelSource, Error> {
    let served_names = served_names.to_vec();
    let Some(model) = model.filter(|model| *model != embedded::NAME) else {
        let served_names = if served_names.is_empty() { vec![embedded::NAME.into()] } else { served_names };
        return Ok(ModelSource::Embedded { files: embedded::FILES, served_names });
    };
    let path = Path::new(model);
    if let Some(file) = gguf::file(path)? {
        let served_names =
            if served_names.is_empty() { vec![gguf::served_name(&file)] } else { served_names };
        return Ok(ModelSource::Directory { path: gguf::folder(&file)?, served_names });
    }
    if path.is_dir() {
        return Ok(ModelSource::Directory { path: path.to_owned(), served_names });
    }
    let Some(id) = hub_id(model) else {
        return Err(Error::failed(format!(
            "there is no directory `{model}`; give one with config.json, a GGUF file, org/name of a model on the hub, or no \
             model for the embedded one"
        )));
    };
    let served_names = if served_names.is_empty() { vec![id.repository.clone()] } else { served_names };
    Ok(ModelSource::Directory { path: loadable(download(&id)?)?, served_names })
}

/// A model's folder that the engine can load: that of its GGUF file, where it has nothing else.
fn loadable(folder: PathBuf) -> Result<PathBuf, Error> {
    gguf::file(&folder)?.map_or(Ok(folder), |file| gguf::folder(&file))
}

/// Settings whose draft model is a directory: one on the hub is downloaded unless the cache has it. Fails where the draft
/// source needs a model and none is named.
pub fn with_local_draft(mut settings: EngineSettings) -> Result<EngineSettings, Error> {
    check_draft(&settings)?;
    let asks =
        !matches!(settings.speculation.source, DraftSource::Off | DraftSource::Ngram | DraftSource::Mtp);
    let Some(draft) = settings.speculation.draft_model.as_ref().filter(|_| asks) else { return Ok(settings) };
    if let Some(file) = gguf::file(draft)? {
        settings.speculation.draft_model = Some(gguf::folder(&file)?);
    } else if !draft.is_dir() {
        let name = draft.to_string_lossy();
        let id = hub_id(&name).ok_or_else(|| {
            Error::failed(format!(
                "--draft-model: there is no directory `{name}`; give one with config.json, or org/name of a model on the hub"
            ))
        })?;
        settings.speculation.draft_model = Some(loadable(download(&id)?)?);
    }
    Ok(settings)
}

/// The engine would say it, too, but as a model that cannot be loaded.
fn check_draft(settings: &EngineSettings) -> Result<(), Error> {
    let needed = match settings.speculation.source {
        DraftSource::Model => "model needs --draft-model, a smaller model with the same vocabulary",
        DraftSource::Eagle3 => "eagle3 needs --draft-model, an EAGLE-3 head for this model",
        DraftSource::Dflash => "dflash needs --draft-model, a DFlash head for this model",
        DraftSource::Auto | DraftSource::Off | DraftSource::Ngram | DraftSource::Mtp => return Ok(()),
    };
    match settings.speculation.draft_model {
        Some(_) => Ok(()),
        None => Err(Error::usage(format!("--draft {needed}"))),
    }
}

/// The model on the hub that a model argument names; `None` of directories.
pub fn hub_id(model: &str) -> Option<ModelId> {
    ModelId::parse(model).filter(|_| !Path::new(model).exists())
}

/// An error of a download, with how to go on where the hub cannot be reached.
fn without_hub(error: omnibus_hub::Error) -> Error {
    match error {
        omnibus_hub::Error::Offline { .. } | omnibus_hub::Error::Unreachable { .. } => {
            Error::failed(format!(
                "{error}; `omnibus list` shows the models that are here already, a model's directory needs no hub, HF_ENDPOINT \
             names another hub, and without a model the embedded one is used"
            ))
        }
        error => Error::failed(error),
    }
}

/// The directory of a model on the hub, after downloading what the cache lacks.
pub fn download(id: &ModelId) -> Result<PathBuf, Error> {
    let hub = Hub::new(HubSettings::from_environment()).map_err(Error::failed)?;
    let mut bar = progress::bytes(&id.to_string());
    let mut tell = |progress: omnibus_hub::Progress| bar.set(progress.bytes_done, progress.bytes_total);
    let path = completion_output::runtime()?.block_on(hub.fetch(id, &mut tell)).map_err(without_hub)?;
    bar.finish();
    Ok(path)
}
