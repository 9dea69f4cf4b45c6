//! What a repository has, before any of it is downloaded.

use crate::error::Error;
use crate::files::{self, RemoteFile};
use crate::id::ModelId;
use crate::remote::Remote;

const CONFIG: &str = "config.json";
/// Larger configs are not read.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// What [`crate::Hub::fetch`] would download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// How many files.
    pub files: usize,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Of these, bytes of weights.
    pub weight_bytes: u64,
    /// `config.json`, if there is one.
    pub config: Option<String>,
}

/// Reads the list of files, and the config.
pub(crate) async fn of(remote: &Remote, id: &ModelId) -> Result<Description, Error> {
    let listing = remote.listing(id).await?;
    let needed = files::of_model(id, &listing.files)?;
    let is_weights = |file: &&RemoteFile| file.name.ends_with(".safetensors") || files::is_gguf(&file.name);
    let config = match needed.iter().find(|file| file.name == CONFIG) {
        Some(file) => Some(text(remote, id, &listing.commit, file).await?),
        None => None,
    };
    Ok(Description {
        files: needed.len(),
        bytes: needed.iter().map(|file| file.bytes).sum(),
        weight_bytes: needed.iter().filter(is_weights).map(|file| file.bytes).sum(),
        config,
    })
}

async fn text(remote: &Remote, id: &ModelId, commit: &str, file: &RemoteFile) -> Result<String, Error> {
    let broken = |problem: String| Error::Broken { file: file.name.clone(), problem };
    let mut response = remote.file(id, commit, &file.name, 0).await?;
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| broken(error.to_string()))? {
        bytes.extend(chunk);
        if bytes.len() as u64 > CONFIG_BYTES_MAX {
            return Err(broken("it is too large for a config".to_owned()));
        }
    }
    String::from_utf8(bytes).map_err(|_| broken("it is not UTF-8".to_owned()))
}
