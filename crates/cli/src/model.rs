//! Resolves a model argument to a source that the engine can load.

use std::path::Path;

use omnibus_engine::ModelSource;

use crate::embedded;
use crate::error::Error;

/// The model directory, or the embedded model. Fails when there is no such directory.
pub fn source(model: Option<&str>, served_names: &[String]) -> Result<ModelSource, Error> {
    let served_names = served_names.to_vec();
    let Some(model) = model.filter(|model| *model != embedded::NAME) else {
        let served_names = if served_names.is_empty() { vec![embedded::NAME.into()] } else { served_names };
        return Ok(ModelSource::Embedded { files: embedded::FILES, served_names });
    };
    let path = Path::new(model);
    if !path.is_dir() {
        return Err(Error::failed(format!(
            "there is no directory `{model}`; give one with config.json, or no model for the embedded one"
        )));
    }
    Ok(ModelSource::Directory { path: path.to_owned(), served_names })
}
