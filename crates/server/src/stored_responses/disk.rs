//! Responses in a folder, one file each, so that they outlive the process.
//!
//! Invariant: a file is complete or absent. Only ids of ours become file names. A folder that fails costs the responses
//! and not the server.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use serde_json::{Value, json};

use super::StoredResponse;
use crate::wire::responses::item_ids::{CONVERSATION_PREFIX, RESPONSE_PREFIX};

/// Most files, but for those that were written since the oldest were last removed.
const FILES_MAX: usize = 16_384;
/// The oldest files are removed after so many were written.
const REMOVE_AFTER: usize = 256;

/// A folder of responses.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    files_max: usize,
    written: AtomicUsize,
}

impl Folder {
    /// Opens or makes the folder below a state directory.
    pub fn open(state: &Path) -> io::Result<Self> {
        Self::with_files_max(state, FILES_MAX)
    }

    fn with_files_max(state: &Path, files_max: usize) -> io::Result<Self> {
        let path = state.join("responses");
        fs::create_dir_all(&path)?;
        let folder = Self { path, files_max, written: AtomicUsize::new(0) };
        folder.remove_oldest()?;
        Ok(folder)
    }

    /// Writes a response.
    pub fn write(&self, response: &StoredResponse) {
        let Some(path) = self.path(&response.id) else { return };
        let StoredResponse { id, tenant, input, response } = response;
        let text = json!({"id": id, "tenant": tenant, "input": input, "response": response}).to_string();
        let part = path.with_extension("part");
        if let Err(error) = fs::write(&part, text).and_then(|()| fs::rename(&part, &path)) {
            tracing::warn!(%error, path = %path.display(), "a response was not written");
            // On a full disk it has a part of the text.
            _ = fs::remove_file(&part);
        }
        if (self.written.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(REMOVE_AFTER)
            && let Err(error) = self.remove_oldest()
        {
            tracing::warn!(%error, path = %self.path.display(), "old responses were not removed");
        }
    }

    fn remove_oldest(&self) -> io::Result<()> {
        let mut files: Vec<(SystemTime, PathBuf)> = fs::read_dir(&self.path)?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .map(|path| {
                let modified = path.metadata().and_then(|data| data.modified());
                (modified.unwrap_or(SystemTime::UNIX_EPOCH), path)
            })
            .collect();
        files.sort();
        let excess = files.len().saturating_sub(self.files_max);
        for (_, path) in files.into_iter().take(excess) {
            match fs::remove_file(path) {
                // Another process, or a client, removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        Ok(())
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
        let rest =
            [RESPONSE_PREFIX, CONVERSATION_PREFIX].iter().find_map(|prefix| id.strip_prefix(prefix))?;
        let is_ours = rest.len() == 32 && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_ours.then(|| self.path.join(format!("{id}.json")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_runs_on_removes_the_oldest_files() {
        let state = std::env::temp_dir().join(format!("omnibus-old-responses-{}", std::process::id()));
        let folder = Folder::with_files_max(&state, 10).unwrap();
        for number in 0..3 * REMOVE_AFTER {
            folder.write(&StoredResponse {
                id: format!("{RESPONSE_PREFIX}{number:032x}"),
                tenant: "a".to_owned(),
                input: Vec::new(),
                response: Value::Null,
            });
        }
        let files = fs::read_dir(state.join("responses")).unwrap().count();
        let newest = folder.read(&format!("{RESPONSE_PREFIX}{:032x}", 3 * REMOVE_AFTER - 1));
        fs::remove_dir_all(state).unwrap();
        assert_eq!(files, 10);
        assert!(newest.is_some());
    }
}
