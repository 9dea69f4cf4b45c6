//! Uploads of a folder: what the repository does not have is sent, and one commit names all of it.
//!
//! Invariant: the repository changes by that commit alone, so that an upload that was interrupted left nothing behind but
//! stored content, which the next one does not send again.

mod commit;
mod folder;
mod storage;

use std::path::Path;

use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::download::Progress;
use crate::error::Error;
use crate::files::RemoteFile;
use crate::id::ModelId;
use crate::remote::Remote;
use folder::LocalFile;

/// Bytes from a file's beginning by which the hub chooses how it is stored.
const SAMPLE_BYTES: usize = 512;

/// Who sees a repository that an upload creates. An existing one stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Visibility {
    /// Its owners.
    #[default]
    Private,
    /// All who look.
    Public,
}

/// What an upload did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uploaded {
    /// The repository's page.
    pub url: String,
    /// Files of the commit; none where the repository had all of them, and there was no commit.
    pub files: usize,
    /// Files that the repository had.
    pub files_kept: usize,
}

/// How the hub stores a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    /// In the commit.
    Regular,
    /// In large file storage.
    Lfs,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileMode {
    path: String,
    upload_mode: Mode,
    #[serde(default)]
    should_ignore: bool,
}

/// Uploads a folder into a repository.
pub(crate) async fn folder(
    remote: &Remote,
    folder: &Path,
    id: &ModelId,
    visibility: Visibility,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Uploaded, Error> {
    let files = folder::read(folder)?;
    create(remote, id, visibility).await?;
    let kept = remote.listing(id).await?.files;
    let is_there = |file: &LocalFile| kept.iter().any(|remote: &RemoteFile| file.is_same_as(remote));
    let (same, new): (Vec<LocalFile>, Vec<LocalFile>) = files.into_iter().partition(is_there);
    let url = format!("{}/{}", remote.endpoint(), id.repository);
    if new.is_empty() {
        return Ok(Uploaded { url, files: 0, files_kept: same.len() });
    }
    let modes = modes(remote, id, &new).await?;
    let mode_of = |file: &LocalFile| modes.iter().find(|mode| mode.path == file.name);
    let (mut regular, mut large) = (Vec::new(), Vec::new());
    for file in &new {
        match mode_of(file) {
            Some(mode) if mode.should_ignore => {}
            Some(FileMode { upload_mode: Mode::Regular, .. }) => regular.push(file),
            Some(FileMode { upload_mode: Mode::Lfs, .. }) => large.push(file),
            None => return Err(remote.malformed("preupload", format!("nothing about `{}`", file.name))),
        }
    }
    if !(regular.is_empty() && large.is_empty()) {
        storage::send(remote, id, &large, progress).await?;
        commit::commit(remote, id, &regular, &large).await?;
    }
    Ok(Uploaded { url, files: regular.len() + large.len(), files_kept: same.len() })
}

/// Creates the repository; one that is there stays as it is.
async fn create(remote: &Remote, id: &ModelId, visibility: Visibility) -> Result<(), Error> {
    let (owner, name) = id.repository.split_once('/').unwrap_or(("", &id.repository));
    let url = format!("{}/api/repos/create", remote.endpoint());
    let body = json!({"type": "model", "organization": owner, "name": name, "private": visibility == Visibility::Private});
    match remote.post(&url, body.to_string(), "application/json", &id.repository).await {
        Ok(_) => Ok(()),
        Err(Error::Status { status, .. }) if status == StatusCode::CONFLICT.as_u16() => Ok(()),
        Err(error) => Err(error),
    }
}

async fn modes(remote: &Remote, id: &ModelId, files: &[LocalFile]) -> Result<Vec<FileMode>, Error> {
    #[derive(Deserialize)]
    struct Modes {
        files: Vec<FileMode>,
    }
    let about = files.iter().map(|file| {
        Ok(json!({"path": file.name, "size": file.bytes, "sha": file.sha256, "sample": file.sample(SAMPLE_BYTES)?}))
    });
    let body = json!({"files": about.collect::<Result<Vec<Value>, Error>>()?});
    let url = remote.api(id, "preupload");
    let answer = remote.post(&url, body.to_string(), "application/json", &id.repository).await?;
    let Modes { files } = remote.json(&url, answer).await?;
    Ok(files)
}
