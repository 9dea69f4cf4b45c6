//! Where the hub and the cache are, by huggingface_hub's variables.
//!
//! Invariant: an empty variable counts as unset. Nothing else in this crate reads the environment.

use std::path::PathBuf;

use crate::error::Error;

/// Where the hub and the cache are.
#[derive(Debug, Clone)]
pub struct HubSettings {
    /// The hub's base URL.
    pub endpoint: String,
    /// Sent to the hub alone.
    pub token: Option<String>,
    /// Whether the hub may be asked.
    pub network: Network,
    /// The folder with all models.
    pub cache: PathBuf,
}

/// Whether the hub may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// It is asked.
    Online,
    /// Only the cache is used.
    Offline,
}

impl HubSettings {
    /// `HF_ENDPOINT`, `HF_TOKEN` or the file of `huggingface-cli login`, `HF_HUB_OFFLINE`, `HF_HUB_CACHE` and `HF_HOME`.
    pub fn from_environment() -> Self {
        let home = home();
        let token_file = variable("HF_TOKEN_PATH").map_or_else(|| home.join("token"), PathBuf::from);
        let stored = || std::fs::read_to_string(token_file).ok().map(|token| token.trim().to_owned());
        let offline = variable("HF_HUB_OFFLINE").or_else(|| variable("TRANSFORMERS_OFFLINE"));
        let is_offline =
            offline.is_some_and(|value| ["1", "ON", "YES", "TRUE"].contains(&value.to_uppercase().as_str()));
        Self {
            endpoint: variable("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned()),
            token: variable("HF_TOKEN").or_else(stored).filter(|token| !token.is_empty()),
            network: if is_offline { Network::Offline } else { Network::Online },
            cache: variable("HF_HUB_CACHE").map_or_else(|| home.join("hub"), PathBuf::from),
        }
    }
}

impl HubSettings {
    /// Fails where nothing can be uploaded: before long work whose result is to be.
    pub fn check_upload(&self) -> Result<(), Error> {
        match (self.network, &self.token) {
            (Network::Offline, _) => Err(Error::OfflineUpload),
            (Network::Online, None) => Err(Error::NoToken),
            (Network::Online, Some(_)) => Ok(()),
        }
    }
}

/// `HF_HOME`, else a folder of the user's caches.
fn home() -> PathBuf {
    let caches = || {
        let below_home = || variable("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let caches = variable("XDG_CACHE_HOME").map(PathBuf::from).or_else(below_home);
        caches.unwrap_or_else(std::env::temp_dir).join("huggingface")
    };
    variable("HF_HOME").map_or_else(caches, PathBuf::from)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
