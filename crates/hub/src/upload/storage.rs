//! Large files: git's protocol for them, with the parts that the hub adds to it.
//!
//! Invariant: the token goes to the hub alone; files are stored by their SHA-256, which the hub compares.

use std::collections::BTreeMap;

use reqwest::header::ETAG;
use serde::Deserialize;
use serde_json::{Value, json};

use super::folder::LocalFile;
use crate::download::Progress;
use crate::error::Error;
use crate::id::ModelId;
use crate::remote::Remote;

const LFS_JSON: &str = "application/vnd.git-lfs+json";
/// How often a part is sent that does not arrive.
const ATTEMPTS: usize = 5;
/// Objects of one request.
const BATCH: usize = 100;
/// Largest part that is accepted: each is in memory while it is sent.
const PART_BYTES_MAX: u64 = 1 << 30;

#[derive(Deserialize)]
struct Answer {
    objects: Vec<Object>,
}

#[derive(Deserialize)]
struct Object {
    oid: String,
    actions: Option<Actions>,
    error: Option<ObjectError>,
}

#[derive(Deserialize)]
struct ObjectError {
    message: String,
}

#[derive(Deserialize)]
struct Actions {
    upload: Option<Action>,
    verify: Option<Action>,
}

#[derive(Deserialize)]
struct Action {
    href: String,
    #[serde(default)]
    header: BTreeMap<String, Value>,
}

/// Sends the files that the storage does not have.
pub(super) async fn send(
    remote: &Remote,
    id: &ModelId,
    files: &[&LocalFile],
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<(), Error> {
    let bytes_total = files.iter().map(|file| file.bytes).sum();
    let mut before = 0;
    for batch in files.chunks(BATCH) {
        let mut objects = asked(remote, id, batch).await?;
        for file in batch {
            let object = objects.iter().position(|object| object.oid == file.sha256);
            if let Some(object) = object.map(|at| objects.swap_remove(at)) {
                let mut tell = |bytes| progress(Progress { bytes_done: before + bytes, bytes_total });
                stored(remote, file, object, &mut tell).await?;
            }
            before += file.bytes;
            progress(Progress { bytes_done: before, bytes_total });
        }
    }
    Ok(())
}

/// What is to be done for each file.
async fn asked(remote: &Remote, id: &ModelId, files: &[&LocalFile]) -> Result<Vec<Object>, Error> {
    let url = format!("{}/{}.git/info/lfs/objects/batch", remote.endpoint(), id.repository);
    // Two files of one content are one object.
    let sizes: BTreeMap<&str, u64> = files.iter().map(|file| (file.sha256.as_str(), file.bytes)).collect();
    let objects: Vec<Value> = sizes.iter().map(|(oid, size)| json!({"oid": oid, "size": size})).collect();
    let body = json!({
        "operation": "upload",
        "transfers": ["basic", "multipart"],
        "objects": objects,
        "hash_algo": "sha256",
        "ref": {"name": id.revision},
    });
    let answer = remote.post(&url, body.to_string(), LFS_JSON, &id.repository).await?;
    let Answer { objects } = remote.json(&url, answer).await?;
    Ok(objects)
}

async fn stored(
    remote: &Remote,
    file: &LocalFile,
    object: Object,
    tell: &mut (dyn FnMut(u64) + Send),
) -> Result<(), Error> {
    if let Some(ObjectError { message }) = object.error {
        return Err(Error::Refused { file: file.name.clone(), why: message });
    }
    // Without actions it is stored already.
    let Some(Actions { upload, verify }) = object.actions else { return Ok(()) };
    if let Some(action) = upload {
        match part_bytes(remote, file, &action)? {
            Some(bytes) => in_parts(remote, file, &action, bytes, tell).await?,
            None => _ = put(remote, file, &action.href, 0, usize::MAX).await?,
        }
    }
    if let Some(Action { href, .. }) = verify {
        let body = json!({"oid": file.sha256, "size": file.bytes}).to_string();
        remote.post(&href, body, LFS_JSON, &file.name).await?;
    }
    Ok(())
}

/// The bytes of each part, for a file that is sent in parts.
fn part_bytes(remote: &Remote, file: &LocalFile, action: &Action) -> Result<Option<u64>, Error> {
    let Some(size) = action.header.get("chunk_size") else { return Ok(None) };
    let text = size.as_str().map(str::to_owned).unwrap_or_else(|| size.to_string());
    let bytes = text.parse().ok().filter(|bytes| (1..=PART_BYTES_MAX).contains(bytes));
    let wrong = || remote.malformed("objects/batch", format!("parts of {text} bytes for `{}`", file.name));
    bytes.map(Some).ok_or_else(wrong)
}

async fn in_parts(
    remote: &Remote,
    file: &LocalFile,
    action: &Action,
    bytes: u64,
    tell: &mut (dyn FnMut(u64) + Send),
) -> Result<(), Error> {
    let number = |(name, url): (&String, &Value)| Some((name.parse::<u64>().ok()?, url.as_str()?.to_owned()));
    let urls: BTreeMap<u64, String> = action.header.iter().filter_map(number).collect();
    let count = file.bytes.div_ceil(bytes);
    if !urls.keys().copied().eq(1..=count) {
        let what = format!("{} parts for `{}`, which has {count}", urls.len(), file.name);
        return Err(remote.malformed("objects/batch", what));
    }
    let mut parts = Vec::new();
    for (number, url) in &urls {
        let at = (number - 1) * bytes;
        let etag = put(remote, file, url, at, usize::try_from(bytes).unwrap_or(usize::MAX)).await?;
        let etag =
            etag.ok_or_else(|| remote.malformed("the storage", "a part without an etag".to_owned()))?;
        parts.push(json!({"partNumber": number, "etag": etag}));
        tell((at + bytes).min(file.bytes));
    }
    let body = json!({"oid": file.sha256, "parts": parts}).to_string();
    remote.post(&action.href, body, LFS_JSON, &file.name).await?;
    Ok(())
}

/// Sends bytes to the storage, again where they do not arrive; its `etag` of them.
async fn put(
    remote: &Remote,
    file: &LocalFile,
    url: &str,
    at: u64,
    bytes: usize,
) -> Result<Option<String>, Error> {
    let mut attempts = 1;
    loop {
        let mut buffer = Vec::new();
        file.read(at, bytes, &mut buffer)?;
        match remote.put(url, buffer, &file.name).await {
            Ok(answer) => {
                let etag = answer.headers().get(ETAG).and_then(|etag| etag.to_str().ok());
                return Ok(etag.map(str::to_owned));
            }
            Err(Error::Status { status: 500.., .. } | Error::Unreachable { .. }) if attempts < ATTEMPTS => {
                attempts += 1;
            }
            Err(error) => return Err(error),
        }
    }
}
