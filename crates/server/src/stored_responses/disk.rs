//! Responses in a folder, one file each, so that they outlive the process.
//!
//! Invariant: a file is complete or absent. Only ids of ours become file names. A folder that fails costs the responses
//! and not the server.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Value, json};

use super::StoredResponse;

/// Most files; the oldest are removed at the start.
const FILES_MAX: usize = 16_384;
/// What ids begin with.
const ID_PREFIX: &str = "resp_";

/// A folder of responses.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Opens or makes the folder below a state directory.
    pub fn open(state: &Path) -> io::Result<Self> {
        let folder = state.join("responses");
        fs::create_dir_all(&folder)?;
        let mut files: Vec<(SystemTime, PathBuf)> = fs::read_dir(&folder)?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .map(|path| {
                let modified = path.metadata().and_then(|data| data.modified());
                (modified.unwrap_or(SystemTime::UNIX_EPOCH), path)
            })
            .collect();
        files.sort();
        let excess = files.len().saturating_sub(FILES_MAX);
        for (_, path) in files.into_iter().take(excess) {
            fs::remove_file(path)?;
        }
        Ok(Self(folder))
    }

    /// Writes a response.
    pub fn write(&self, response: &StoredResponse) {
        let Some(path) = self.path(&response.id) else { return };
        let StoredResponse { id, tenant, input, response } = response;
        let text = json!({"id": id, "tenant": tenant, "input": input, "response": response}).to_string();
        let part = path.with_extension("part");
        if let Err(error) = fs::write(&part, text).and_then(|()| fs::rename(&part, &path)) {
            tracing::warn!(%error, path = %path.display(), "a response was not written");
        }
    }

    /// Reads a response.
    pub fn read(&self, id: &str) -> Option<StoredResponse> {
        let mut value: Value = serde_json::from_slice(&fs::read(self.path(id)?).ok()?).ok()?;
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let (id, tenant) = (text("id")?, text("tenant")?);
        let Value::Array(input) = value.get_mut("input")?.take() else { return None };
        Some(StoredResponse { id, tenant, input, response: value.get_mut("response")?.take() })
    }

    /// Removes a response.
    pub fn remove(&self, id: &str) {
        if let Some(path) = self.path(id) {
            // It may not have been written yet.
            _ = fs::remove_file(path);
        }
    }

    fn path(&self, id: &str) -> Option<PathBuf> {
        let rest = id.strip_prefix(ID_PREFIX)?;
        let is_ours = rest.len() == 32 && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_ours.then(|| self.0.join(format!("{id}.json")))
    }
}
