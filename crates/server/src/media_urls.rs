//! Media at URLs: fetched from the domains and read from the directories that the operator allows, and from nowhere else.
//!
//! Invariant: every hop of a redirect is checked like the first URL. A connection goes to an address that was checked: the
//! name is resolved once. Sizes are compared before memory is allocated, and a fetch ends in time. Nothing is fetched by
//! default.

mod addresses;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use omnibus_engine::{Admission, ByteBudget, Input, MediaItem, MediaSource, Reserved};
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};
use tokio::time::Instant;

use crate::engine::Engine;
use crate::error::ApiError;

/// Most redirects of one fetch.
const REDIRECTS_MAX: usize = 3;
/// Most bytes that are fetched for all requests together.
const ALL_BYTES_MAX: u64 = 512 << 20;

/// Where media may come from.
#[derive(Debug, Clone)]
pub struct MediaUrls {
    domains: Vec<Domain>,
    /// Canonical.
    directories: Vec<PathBuf>,
    /// Most bytes of all media of a request together.
    bytes_max: u64,
    /// Longest time of a fetch, redirects included.
    timeout: Duration,
    /// Of all requests together.
    budget: ByteBudget,
}

/// Why there are no bytes of a URL.
#[derive(Debug)]
enum FetchError {
    /// In words that follow the field's name.
    Refused(String),
    /// Other requests fetch too much.
    OverBudget,
}

impl<T: Into<String>> From<T> for FetchError {
    fn from(why: T) -> Self {
        Self::Refused(why.into())
    }
}

/// A host, and its port where it is none of HTTP's own.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Domain {
    host: String,
    port: Option<u16>,
}

impl Default for MediaUrls {
    fn default() -> Self {
        Self {
            domains: Vec::new(),
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
            domains: domains.iter().map(|text| Domain::read(text)).collect::<Result<_, _>>()?,
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
    pub fn fetch(&self, input: &mut Input, engine: &dyn Engine, tenant: &str) -> Result<(), ApiError> {
        let Input::Chat(chat) = input else { return Ok(()) };
        let is_url = |file: &mut MediaSource| matches!(file, MediaSource::Url(_));
        let has_urls = chat.media.iter_mut().any(|item| item.source.each_file().any(is_url));
        let _place = if has_urls { engine.admit(tenant)? } else { Admission::default() };
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
                    "http" | "https" if !self.domains.is_empty() => {
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
        let download = tokio::time::timeout_at(deadline, self.follow(url, most, reserved));
        runtime.block_on(async { download.await.unwrap_or_else(|_| Err(late().into())) })
    }

    async fn follow(&self, mut url: Url, most: u64, reserved: &mut Reserved) -> Result<Vec<u8>, FetchError> {
        for _ in 0..=REDIRECTS_MAX {
            let response = self.get(&url).await?;
            if !response.status().is_redirection() {
                return body(response, most, reserved).await;
            }
            let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
            let to = to.and_then(|to| url.join(to).ok()).ok_or("redirects to no URL")?;
            if url.scheme() == "https" && to.scheme() != "https" {
                return Err("redirects from https to another scheme".into());
            }
            url = to;
        }
        Err(format!("redirects more than {REDIRECTS_MAX} times").into())
    }

    /// One request, to an address that was checked.
    async fn get(&self, url: &Url) -> Result<Response, String> {
        let host = url.host_str().filter(|_| ["http", "https"].contains(&url.scheme()));
        let host = host.ok_or("leads to a URL without a host")?.to_ascii_lowercase();
        let port = url.port_or_known_default().unwrap_or(0);
        let domain = self.domains.iter().find(|domain| domain.is(&host, port));
        let domain = domain.ok_or_else(|| format!("leads to `{host}:{port}`, which is not allowed"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("has a name or a password".to_owned());
        }
        let addresses = resolve(&host, port).await?;
        // An operator who writes an address means it.
        if !domain.is_address() && !addresses.iter().all(|address| addresses::is_public(address.ip())) {
            return Err(format!("leads to `{host}`, which has an address of a private network"));
        }
        crate::crypto::install();
        let client = Client::builder()
            .user_agent(concat!("mlx-omnibus/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .no_proxy()
            .resolve_to_addrs(&host, &addresses)
            .build();
        let client = client.map_err(|error| reason(&error))?;
        client.get(url.clone()).send().await.map_err(|error| reason(&error))
    }
}

impl Domain {
    fn read(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` must be a host or a host with a port, without a scheme");
        let url = Url::parse(&format!("http://{text}/")).map_err(|_| wrong())?;
        let host = url.host_str().ok_or_else(wrong)?.to_ascii_lowercase();
        let is_bare = url.path() == "/" && url.query().is_none() && url.username().is_empty();
        if text.contains(['/', '@', '?', '#', '*']) || !is_bare {
            return Err(wrong());
        }
        let port = text.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        Ok(Self { host, port })
    }

    fn is(&self, host: &str, port: u16) -> bool {
        self.host == host && self.port.map_or([80, 443].contains(&port), |own| own == port)
    }

    fn is_address(&self) -> bool {
        self.host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
    }
}

async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let found = tokio::net::lookup_host((host, port)).await;
    let found: Vec<SocketAddr> =
        found.map_err(|error| format!("`{host}` has no address: {error}"))?.collect();
    if found.is_empty() { Err(format!("`{host}` has no address")) } else { Ok(found) }
}

async fn body(mut response: Response, most: u64, reserved: &mut Reserved) -> Result<Vec<u8>, FetchError> {
    let status = response.status();
    if !status.is_success() {
        return Err(format!("is answered with the status {}", status.as_u16()).into());
    }
    let header =
        |name| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = header(CONTENT_TYPE).to_ascii_lowercase();
    let is_media = ["image/", "video/", "audio/", "application/octet-stream", "binary/octet-stream"];
    if !kind.is_empty() && !is_media.iter().any(|known| kind.starts_with(known)) {
        let kind: String = kind.chars().filter(char::is_ascii_graphic).take(60).collect();
        return Err(format!("is of the type `{kind}`, which is no image, video or sound").into());
    }
    let coding = header(CONTENT_ENCODING);
    if !coding.is_empty() && coding != "identity" {
        return Err("is compressed for the transfer".into());
    }
    let too_large = || format!("has more than {most} bytes");
    if response.content_length().is_some_and(|bytes| bytes > most) {
        return Err(too_large().into());
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| reason(&error))? {
        if (bytes.len() + chunk.len()) as u64 > most {
            return Err(too_large().into());
        }
        if !reserved.grow(chunk.len() as u64) {
            return Err(FetchError::OverBudget);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
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

/// The innermost reason.
fn reason(error: &reqwest::Error) -> String {
    let mut error: &dyn std::error::Error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    format!("cannot be fetched: {error}")
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

    #[test]
    fn domains_are_hosts_with_ports() {
        let read = |text: &str| Domain::read(text);
        let example = read("Example.com").unwrap();
        assert!(example.is("example.com", 443) && example.is("example.com", 80));
        assert!(!example.is("example.com", 8080) && !example.is("www.example.com", 443));
        assert!(read("10.0.0.1:8080").unwrap().is("10.0.0.1", 8080));
        assert!(read("10.0.0.1:8080").unwrap().is_address() && !example.is_address());
        for wrong in ["", "https://example.com", "example.com/a", "a@b", "*.example.com", "a b"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
