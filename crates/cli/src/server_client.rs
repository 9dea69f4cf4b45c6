//! Reads what a running server says about itself.
//!
//! Invariant: only reads, and waits for nothing longer than some seconds.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::error::Error;
use crate::settings::ClientSettings;

/// Where a server is unless its URL is given.
pub const DEFAULT_URL: &str = "http://127.0.0.1:8000";
/// Longest time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time for an answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A running server.
#[derive(Debug)]
pub struct ServerClient {
    http: reqwest::Client,
    origin: String,
    key: Option<String>,
}

/// A served model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedModel {
    /// Its name.
    pub id: String,
    /// Longest sequence, in tokens; unknown before it is loaded.
    pub window: Option<u64>,
    /// Its `model_type`.
    pub architecture: String,
    /// How its weights are quantized; empty when they are not.
    pub quantization: String,
    /// Where it is: `loaded`, `unloaded`, `loading`, ….
    pub state: String,
    /// Bytes of its weights that are loaded, and of all, while it is loading.
    pub progress: Option<(u64, u64)>,
    /// Bytes of memory that it takes, or would take.
    pub memory: Option<u64>,
}

/// Why a server gave no answer.
#[derive(Debug)]
pub enum Unanswered {
    /// Nothing listens there.
    Unreachable(String),
    /// It answered with an error, or not as this server does.
    Refused(String),
}

impl fmt::Display for Unanswered {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) | Self::Refused(why) => formatter.write_str(why),
        }
    }
}

impl ServerClient {
    /// The server of these settings.
    pub fn new(settings: &ClientSettings) -> Result<Self, Error> {
        let url = settings.url.as_deref().unwrap_or(DEFAULT_URL);
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(Error::usage(format!("--url: `{url}` must begin with http:// or https://")));
        }
        let trimmed = url.trim_end_matches('/');
        let origin = trimmed.strip_suffix("/v1").unwrap_or(trimmed).to_owned();
        omnibus_hub::install_crypto_provider();
        let http = reqwest::Client::builder().no_proxy().connect_timeout(CONNECT_TIMEOUT).timeout(TIMEOUT);
        Ok(Self { http: http.build().map_err(Error::failed)?, origin, key: settings.key.clone() })
    }

    /// The server's URL without a path.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The served models.
    pub async fn models(&self) -> Result<Vec<ServedModel>, Unanswered> {
        let list = self.get("/v1/models").await?;
        let rows = list.get("data").and_then(Value::as_array);
        let rows = rows.ok_or_else(|| Unanswered::Refused(format!("{} lists no models", self.origin)))?;
        Ok(rows.iter().filter_map(served).collect())
    }

    /// Most bytes of the engine's arrays so far.
    pub async fn peak_memory_bytes(&self) -> Result<u64, Unanswered> {
        let status = self.get("/v1/status").await?;
        let peak = status.pointer("/engine/peak_memory_bytes").and_then(Value::as_u64);
        peak.ok_or_else(|| Unanswered::Refused(format!("{} names no peak of memory", self.origin)))
    }

    /// The JSON at a path.
    pub async fn get(&self, path: &str) -> Result<Value, Unanswered> {
        let url = format!("{}{path}", self.origin);
        let request = self.http.get(&url);
        let request = match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        };
        let response = request.send().await.map_err(|error| match error.is_connect() {
            true => Unanswered::Unreachable(format!(
                "no server answers at {}: start one with `omnibus serve`, or give another --url",
                self.origin
            )),
            false => Unanswered::Refused(format!("{url}: {error}")),
        })?;
        let status = response.status();
        if status == reqwest::StatusCode::UNAUTHORIZED {
            return Err(Unanswered::Refused(format!("{url} wants a key: give --api-key or OMNIBUS_API_KEY")));
        }
        if !status.is_success() {
            return Err(Unanswered::Refused(format!("{url} answered {status}")));
        }
        let json = response.json().await;
        json.map_err(|error| Unanswered::Refused(format!("{url} answered what is no JSON: {error}")))
    }
}

fn served(row: &Value) -> Option<ServedModel> {
    let text = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_loaded = row.get("loaded").and_then(Value::as_bool).unwrap_or(true);
    let status = row.get("status").and_then(|status| status.get("value")?.as_str());
    let bytes = |name: &str| row.pointer(&format!("/status/progress/{name}")).and_then(Value::as_u64);
    Some(ServedModel {
        progress: bytes("loaded_bytes").zip(bytes("total_bytes")),
        id: row.get("id")?.as_str()?.to_owned(),
        window: row.get("max_model_len").and_then(Value::as_u64),
        architecture: text("architecture"),
        quantization: text("quantization"),
        state: status.unwrap_or(if is_loaded { "loaded" } else { "unloaded" }).to_owned(),
        memory: row.get("memory").and_then(|memory| memory.get("bytes")?.as_u64()).filter(|bytes| *bytes > 0),
    })
}
