//! The hub's API: the files of a revision, their bytes, and what an upload sends.

use reqwest::{Client, Response, StatusCode, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::checksum::Checksum;
use crate::error::Error;
use crate::files::RemoteFile;
use crate::id::ModelId;

/// A hub.
pub(crate) struct Remote {
    client: Client,
    endpoint: String,
    token: Option<String>,
}

/// Most characters of what the hub says about a refusal.
const SAID_MAX: usize = 300;

/// The files of a revision.
pub(crate) struct Listing {
    pub(crate) commit: String,
    pub(crate) files: Vec<RemoteFile>,
}

#[derive(Deserialize)]
struct Answer {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
}

impl Remote {
    pub(crate) fn new(endpoint: &str, token: Option<&str>) -> Result<Self, Error> {
        crate::install_crypto_provider();
        let client = Client::builder().user_agent(concat!("mlx-omnibus/", env!("CARGO_PKG_VERSION"))).build();
        let client =
            client.map_err(|error| Error::Unreachable { url: endpoint.to_owned(), why: reason(&error) })?;
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        Ok(Self { client, endpoint, token: token.map(str::to_owned) })
    }

    /// Every file of a revision, with lengths and checksums.
    pub(crate) async fn listing(&self, id: &ModelId) -> Result<Listing, Error> {
        let revision = id.revision.replace('/', "%2F");
        let url = format!("{}/api/models/{}/revision/{revision}?blobs=true", self.endpoint, id.repository);
        let response = self.get(&url, None, &id.to_string()).await?;
        let bytes = response.bytes().await;
        let bytes = bytes.map_err(|error| Error::Unreachable { url: url.clone(), why: reason(&error) })?;
        let refused = |why: String| Error::Listing { url: url.clone(), why };
        let answer: Answer = serde_json::from_slice(&bytes).map_err(|error| refused(error.to_string()))?;
        if !is_hex(&answer.sha) {
            return Err(refused(format!("`{}` is not a commit", answer.sha)));
        }
        let files = answer.siblings.into_iter().map(|file| file.read().map_err(refused));
        Ok(Listing { commit: answer.sha, files: files.collect::<Result<_, _>>()? })
    }

    /// The bytes of a file from `from` on. The hub may redirect to another host, which does not get the token.
    pub(crate) async fn file(
        &self,
        id: &ModelId,
        commit: &str,
        name: &str,
        from: u64,
    ) -> Result<Response, Error> {
        let url = format!("{}/{}/resolve/{commit}/{name}", self.endpoint, id.repository);
        self.get(&url, (from > 0).then_some(from), name).await
    }

    async fn get(&self, url: &str, from: Option<u64>, what: &str) -> Result<Response, Error> {
        let mut request = self.client.get(url);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(from) = from {
            request = request.header(header::RANGE, format!("bytes={from}-"));
        }
        let response = request.send().await;
        let response =
            response.map_err(|error| Error::Unreachable { url: url.to_owned(), why: reason(&error) })?;
        let what = what.to_owned();
        match response.status() {
            status if status.is_success() => Ok(response),
            StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND => Err(Error::Absent { what }),
            StatusCode::FORBIDDEN => Err(Error::Forbidden { what }),
            status => Err(Error::Status { url: url.to_owned(), status: status.as_u16() }),
        }
    }
}

/// What uploads send.
impl Remote {
    /// The hub's base URL.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// The address of what is done with a revision.
    pub(crate) fn api(&self, id: &ModelId, what: &str) -> String {
        let revision = id.revision.replace('/', "%2F");
        format!("{}/api/models/{}/{what}/{revision}", self.endpoint, id.repository)
    }

    /// Posts a body, to the hub with the token.
    pub(crate) async fn post(
        &self,
        url: &str,
        body: String,
        kind: &str,
        what: &str,
    ) -> Result<Response, Error> {
        let mut request = self.client.post(url).header(header::CONTENT_TYPE, kind).body(body);
        if kind.ends_with("+json") {
            request = request.header(header::ACCEPT, kind);
        }
        let is_hub = url.strip_prefix(&self.endpoint).is_some_and(|rest| rest.starts_with('/'));
        if let Some(token) = self.token.as_ref().filter(|_| is_hub) {
            request = request.bearer_auth(token);
        }
        self.written(request, url, what).await
    }

    /// Sends bytes to where the hub stores them; the address has all that they need.
    pub(crate) async fn put(&self, url: &str, bytes: Vec<u8>, what: &str) -> Result<Response, Error> {
        self.written(self.client.put(url).body(bytes), url, what).await
    }

    async fn written(
        &self,
        request: reqwest::RequestBuilder,
        url: &str,
        what: &str,
    ) -> Result<Response, Error> {
        // Signed addresses hold secrets behind the question mark.
        let url = url.split('?').next().unwrap_or_default().to_owned();
        let response = request.send().await;
        let response =
            response.map_err(|error| Error::Unreachable { url: url.clone(), why: reason(&error) })?;
        let status = response.status();
        match status {
            status if status.is_success() => Ok(response),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(Error::ReadOnly { what: what.to_owned() })
            }
            StatusCode::NOT_FOUND => Err(Error::Absent { what: what.to_owned() }),
            StatusCode::CONFLICT => Err(Error::Status { url, status: status.as_u16() }),
            status if status.is_client_error() => {
                let said = response.text().await.unwrap_or_default();
                let why = said.chars().take(SAID_MAX).collect::<String>().replace(['\n', '\r'], " ");
                Err(Error::RefusedUpload { url, status: status.as_u16(), why })
            }
            status => Err(Error::Status { url, status: status.as_u16() }),
        }
    }

    /// The value of a JSON answer.
    pub(crate) async fn json<T: DeserializeOwned>(&self, url: &str, answer: Response) -> Result<T, Error> {
        let bytes = answer.bytes().await;
        let bytes = bytes.map_err(|error| Error::Unreachable { url: url.to_owned(), why: reason(&error) })?;
        serde_json::from_slice(&bytes).map_err(|error| self.malformed(url, error.to_string()))
    }

    /// An answer that an upload cannot follow.
    pub(crate) fn malformed(&self, url: &str, why: String) -> Error {
        Error::Listing { url: url.to_owned(), why }
    }
}

impl Sibling {
    fn read(self) -> Result<RemoteFile, String> {
        let Self { rfilename: name, size, blob_id, lfs } = self;
        let is_inside = !name.is_empty()
            && !name.contains(['\\', ':', '\0'])
            && name.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if !is_inside {
            return Err(format!("`{name}` is not the name of a file"));
        }
        let checksum = match (lfs.map(|lfs| lfs.sha256), blob_id) {
            (Some(hash), _) if is_hex(&hash) => Checksum::Sha256(hash),
            (None, Some(hash)) if is_hex(&hash) => Checksum::Git(hash),
            (None, None) => Checksum::Unknown,
            _ => return Err(format!("`{name}` has a checksum that is none")),
        };
        let bytes = size.ok_or_else(|| format!("`{name}` has no size"))?;
        Ok(RemoteFile { name, bytes, checksum })
    }
}

fn is_hex(text: &str) -> bool {
    (8..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The innermost reason.
pub(crate) fn reason(error: &reqwest::Error) -> String {
    let mut error: &dyn std::error::Error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
