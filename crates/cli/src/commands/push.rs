//! `omnibus push`, and the upload of what `convert` wrote.

use std::path::Path;
use std::process::ExitCode;

use omnibus_hub::{Hub, HubSettings, ModelId, Visibility};

use crate::error::Error;
use crate::{completion_output, output, progress};

/// Uploads the folder of the first argument into the repository of the second.
pub fn run(arguments: &[String], visibility: Visibility) -> Result<ExitCode, Error> {
    let [folder, repository] = arguments else {
        return Err(Error::usage("give a model's folder and the repository: push DIRECTORY org/name"));
    };
    push(Path::new(folder), &repository_of(repository)?, visibility)?;
    Ok(ExitCode::SUCCESS)
}

/// The repository of this name.
fn repository_of(name: &str) -> Result<ModelId, Error> {
    ModelId::parse(name)
        .ok_or_else(|| Error::usage(format!("`{name}` is not of the form org/name[@revision]")))
}

/// The repository of this name. Fails where nothing can be uploaded, before the work that makes what is.
pub fn destination(name: &str) -> Result<ModelId, Error> {
    let id = repository_of(name)?;
    HubSettings::from_environment().check_upload().map_err(Error::failed)?;
    Ok(id)
}

/// Uploads a folder, and prints where it is then.
pub fn push(folder: &Path, repository: &ModelId, visibility: Visibility) -> Result<(), Error> {
    let hub = Hub::new(HubSettings::from_environment()).map_err(Error::failed)?;
    let mut bar = progress::bytes(&format!("uploading to {repository}"));
    let mut tell = |progress: omnibus_hub::Progress| bar.set(progress.bytes_done, progress.bytes_total);
    let push = hub.push(folder, repository, visibility, &mut tell);
    let uploaded = completion_output::runtime()?.block_on(push).map_err(Error::failed)?;
    bar.finish();
    output::note(match (uploaded.files, uploaded.files_kept) {
        (0, kept) => format!("all {kept} files were there already"),
        (files, 0) => format!("{files} files uploaded"),
        (files, kept) => format!("{files} files uploaded; {kept} were there already"),
    });
    output::line(uploaded.url);
    Ok(())
}
