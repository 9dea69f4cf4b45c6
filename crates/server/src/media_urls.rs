//! Media at URLs: fetched from the domains and read from the directories that the operator allows, and from nowhere else.
//!
//! Invariant: sizes are compared before memory is allocated, and a fetch ends in time. Nothing is fetched by default.
//! Where requests may go is decided in [`crate::outbound`].

use std::path::{Path, PathBuf};
use std::time::Duration;

use omnibus_engine::{Admission, ByteBudget, Input, MediaItem, MediaSource, Reserved};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Response, Url};
use tokio::time::Instant;

use crate::engine::{Engine, ModelName};
use crate::error::ApiError;
use crate::outbound::{FetchError, Outbound, body, header};

/// Most bytes that are fetched for all requests together.
const ALL_BYTES_MAX: u64 = 512 << 20;

/// Where media may come from.
#[derive(Debug, Clone)]
pub struct MediaUrls {
    outbound: Outbound,
    /// Canonical.
    directories: Vec<PathBuf>,
    /// Most bytes of all media of a request together.
    bytes_max: u64,
    /// Longest time of a fetch, redirects included.
    timeout: Duration,
    /// Of all requests together.
    budget: ByteBudget,
}

impl Default for MediaUrls {
    fn default() -> Self {
        Self {
            outbound: Outbound::default(),
            directories: Vec::new(),
            bytes_max: 64 << 20,
            timeout: Duration::from_secs(30),
            budget: ByteBudget::new(ALL_BYTES_MAX),
        }
    }
}

impl MediaUrls {
    /// From these domains, `host` or `host:port`, and directories. Fails with a line that names a wrong one.
    pub fn new(domains: &[String], directories: &[PathBuf]) -> Result<Self, String> {
        let directory = |path: &PathBuf| {
            let found = path.canonicalize().ok().filter(|path| path.is_dir());
            found.ok_or_else(|| format!("{} is not a directory", path.display()))
        };
        Ok(Self {
            outbound: Outbound::new(domains)?,
            directories: directories.iter().map(directory).collect::<Result<_, _>>()?,
            ..Self::default()
        })
    }

    /// With another limit of bytes and of time.
    pub fn within(self, bytes_max: u64, timeout: Duration) -> Self {
        Self { bytes_max, timeout, ..self }
    }

    /// Replaces the URLs of an input's media by what is there. Takes as long as a fetch: not for an async thread, but for one
    /// that a runtime started. The tenant's request has a place in the queue meanwhile, and fails where that is full. URLs
    /// from elsewhere stay; the engine refuses them.
    pub fn fetch(
        &self,
        input: &mut Input,
        engine: &dyn Engine,
        (model, tenant): (ModelName<'_>, &str),
    ) -> Result<(), ApiError> {
        let Input::Chat(chat) = input else { return Ok(()) };
        let is_url = |file: &mut MediaSource| matches!(file, MediaSource::Url(_));
        let has_urls = chat.media.iter_mut().any(|item| item.source.each_file().any(is_url));
        let _place = if has_urls { engine.admit(model, tenant)? } else { Admission::default() };
        let (mut left, mut reserved) = (self.bytes_max, self.budget.nothing());
        for MediaItem { field, source } in &mut chat.media {
            // Frames of a video have as long as one file.
            let deadline = Instant::now() + self.timeout;
            for file in source.each_file() {
                let MediaSource::Url(url) = &*file else { continue };
                let fail = |why: String| ApiError::invalid(&*field, format!("`{field}`: {why}"));
                let url = Url::parse(url).map_err(|error| fail(format!("is not a valid URL: {error}")))?;
                let bytes = match url.scheme() {
                    "file" if !self.directories.is_empty() => self.read(&url, left, &mut reserved),
                    "http" | "https" if !self.outbound.is_empty() => {
                        self.download(url, deadline, left, &mut reserved)
                    }
                    _ => continue,
                };
                let bytes = bytes.map_err(|error| match error {
                    FetchError::Refused(why) => fail(why),
                    FetchError::OverBudget => ApiError::busy("the server is fetching too many large files"),
                })?;
                left = left.saturating_sub(bytes.len() as u64);
                *file = MediaSource::Bytes(bytes.into());
            }
        }
        Ok(())
    }

    fn read(&self, url: &Url, most: u64, reserved: &mut Reserved) -> Result<Vec<u8>, FetchError> {
        let unknown = || "no file of the allowed directories".to_owned();
        let path = url.to_file_path().ok().and_then(|path| path.canonicalize().ok()).ok_or_else(unknown)?;
        if !self.directories.iter().any(|directory| path.starts_with(directory)) || !path.is_file() {
            return Err(unknown().into());
        }
        read_file(&path, most, reserved)
    }

    fn download(
        &self,
        url: Url,
        deadline: Instant,
        most: u64,
        reserved: &mut Reserved,
    ) -> Result<Vec<u8>, FetchError> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| "cannot be fetched here")?;
        let late = || format!("was not fetched within {} s", self.timeout.as_secs_f64());
        let download = tokio::time::timeout_at(deadline, self.get(url, most, reserved));
        runtime.block_on(async { download.await.unwrap_or_else(|_| Err(late().into())) })
    }

    async fn get(&self, url: Url, most: u64, reserved: &mut Reserved) -> Result<Vec<u8>, FetchError> {
        let response = self.outbound.get(url).await?;
        check_kind(&response)?;
        body(response, most, reserved).await
    }
}

/// Fails unless a response is an image, a video or a sound, or does not say.
fn check_kind(response: &Response) -> Result<(), FetchError> {
    let kind = header(response, CONTENT_TYPE).to_ascii_lowercase();
    let is_media = ["image/", "video/", "audio/", "application/octet-stream", "binary/octet-stream"];
    if !kind.is_empty() && !is_media.iter().any(|known| kind.starts_with(known)) {
        let kind: String = kind.chars().filter(char::is_ascii_graphic).take(60).collect();
        return Err(format!("is of the type `{kind}`, which is not an image, a video or a sound").into());
    }
    Ok(())
}

fn read_file(path: &Path, most: u64, reserved: &mut Reserved) -> Result<Vec<u8>, FetchError> {
    use std::io::Read as _;
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    let file = std::fs::File::open(path).map_err(cannot)?;
    let length = file.metadata().map_err(cannot)?.len();
    if length > most {
        return Err(format!("has more than {most} bytes").into());
    }
    if !reserved.grow(length) {
        return Err(FetchError::OverBudget);
    }
    // What is written to it meanwhile is not read.
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes).map_err(cannot)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_within_the_budget_of_all_requests() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        std::fs::write(&path, [7; 60]).unwrap();
        let budget = ByteBudget::new(100);
        let (mut first, mut second) = (budget.nothing(), budget.nothing());
        assert_eq!(read_file(&path, 60, &mut first).unwrap(), [7; 60]);
        assert!(matches!(read_file(&path, 60, &mut second), Err(FetchError::OverBudget)));
        drop(first);
        assert_eq!(read_file(&path, 60, &mut second).unwrap().len(), 60);
        let too_large = read_file(&path, 59, &mut budget.nothing());
        assert!(matches!(too_large, Err(FetchError::Refused(why)) if why == "has more than 59 bytes"));
    }
}
