//! Models of a hub: what of a repository is needed, downloads that resume, and the cache that huggingface_hub shares.
//!
//! Start at [`Hub::fetch`], [`Hub::push`], [`Cache::list`] and [`ModelId::parse`].
//!
//! Invariant: knows nothing of models but the names of their files. What the hub says is not trusted: names stay inside the
//! cache, and a file has its final name only when its length and its checksum are right.

mod cache;
mod checksum;
mod description;
mod download;
mod environment;
mod error;
mod files;
mod id;
mod remote;
mod upload;

pub use cache::{Cache, CachedModel};
pub use description::Description;
pub use download::Progress;
pub use environment::{HubSettings, Network};
pub use error::Error;
pub use id::ModelId;
pub use upload::{Uploaded, Visibility};

use std::path::{Path, PathBuf};

use download::Download;
use remote::Remote;

/// A hub and the cache of what it has.
pub struct Hub {
    cache: Cache,
    /// `None` when offline.
    remote: Option<Remote>,
}

impl Hub {
    /// With these settings; [`HubSettings::from_environment`] has those of huggingface_hub.
    pub fn new(settings: HubSettings) -> Result<Self, Error> {
        let remote = match settings.network {
            Network::Online => Some(Remote::new(&settings.endpoint, settings.token.as_deref())?),
            Network::Offline => None,
        };
        Ok(Self { cache: Cache::new(settings.cache), remote })
    }

    /// The directory of a model's files, after downloading those that are missing. Offline, and when the hub cannot be
    /// reached, that of an earlier download.
    pub async fn fetch(
        &self,
        id: &ModelId,
        progress: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<PathBuf, Error> {
        let Some(remote) = &self.remote else {
            return self.cache.snapshot(id).ok_or_else(|| Error::Offline { id: id.clone() });
        };
        let listing = match remote.listing(id).await {
            Ok(listing) => listing,
            Err(Error::Unreachable { url, why }) => {
                return self.cache.snapshot(id).ok_or(Error::Unreachable { url, why });
            }
            Err(error) => return Err(error),
        };
        let files = files::of_model(id, &listing.files)?;
        Download { cache: &self.cache, remote, id, commit: &listing.commit }.run(&files, progress).await
    }

    /// What [`Self::fetch`] would download, of which nothing but the config is.
    pub async fn describe(&self, id: &ModelId) -> Result<Description, Error> {
        let remote = self.remote.as_ref().ok_or_else(|| Error::Offline { id: id.clone() })?;
        description::of(remote, id).await
    }

    /// Uploads the files of a model's folder into a repository, which is created where there is none. Files that it has already,
    /// with the same content, are not sent.
    pub async fn push(
        &self,
        folder: &Path,
        id: &ModelId,
        visibility: Visibility,
        progress: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Uploaded, Error> {
        let remote = self.remote.as_ref().ok_or(Error::OfflineUpload)?;
        if !remote.has_token() {
            return Err(Error::NoToken);
        }
        upload::folder(remote, folder, id, visibility, progress).await
    }
}

/// Lets HTTP clients of this process encrypt; `reqwest` makes none without, whatever they reach.
pub fn install_crypto_provider() {
    // A second provider is not installed, and the first one serves as well.
    _ = rustls::crypto::ring::default_provider().install_default();
}
