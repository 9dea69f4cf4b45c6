//! API keys: authentication, and the tenant of each key.
//!
//! Invariant: keys are compared in constant time and never logged.

use std::fmt;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::{Choice, ConstantTimeEq};
use thiserror::Error;

use crate::error::ApiError;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 256;
/// Routes open without a key.
const OPEN: &[&str] = &["/health", "/ready"];

/// Accepted keys. Without any, every request is accepted.
#[derive(Clone, Default)]
pub struct Keys(Arc<[Padded]>);

/// The tenant of a request; empty when no keys are configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tenant(pub String);

/// Why a key is invalid.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The key is empty.
    #[error("an API key must not be empty")]
    Empty,
    /// The key is too long, or cannot be sent in a header.
    #[error("an API key must be at most {KEY_BYTES_MAX} visible ASCII characters")]
    Unsendable,
}

impl Keys {
    /// Checks that each key can be sent in a header. Fails on the first that cannot.
    pub fn new(keys: impl IntoIterator<Item = String>) -> Result<Self, KeyError> {
        keys.into_iter().map(|key| Padded::key(&key)).collect::<Result<_, _>>().map(Self)
    }

    /// One key per line; blank lines and lines starting with `#` are skipped.
    pub fn lines(text: &str) -> impl Iterator<Item = String> {
        let lines = text.lines().map(str::trim);
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned)
    }

    /// The names of all tenants; one empty name when no keys are configured.
    pub fn tenants(&self) -> Vec<String> {
        match self.0.len() {
            0 => vec![String::new()],
            keys => (0..keys).map(name).collect(),
        }
    }

    /// The tenant of a presented key. Compares with every key, so that the time does not depend on the match.
    fn tenant(&self, presented: Option<&[u8]>) -> Option<Tenant> {
        if self.0.is_empty() {
            return Some(Tenant(String::new()));
        }
        let presented = Padded::presented(presented?);
        let mut found = None;
        for (index, key) in self.0.iter().enumerate() {
            if bool::from(key.equals(&presented)) {
                found = Some(index);
            }
        }
        found.map(|index| Tenant(name(index)))
    }
}

fn name(index: usize) -> String {
    format!("key-{}", index + 1)
}

impl fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} keys", self.0.len())
    }
}

/// A key padded to a fixed size, so that comparisons take constant time.
#[derive(Clone)]
struct Padded {
    bytes: [u8; KEY_BYTES_MAX],
    len: u64,
}

impl Padded {
    fn key(key: &str) -> Result<Self, KeyError> {
        match key.len() {
            0 => Err(KeyError::Empty),
            1..=KEY_BYTES_MAX if key.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Ok(Self::presented(key.as_bytes()))
            }
            _ => Err(KeyError::Unsendable),
        }
    }

    /// A presented key. A longer one is cut; its length then differs from every key's.
    fn presented(presented: &[u8]) -> Self {
        let mut bytes = [0; KEY_BYTES_MAX];
        let kept = presented.len().min(KEY_BYTES_MAX);
        bytes[..kept].copy_from_slice(&presented[..kept]);
        Self { bytes, len: presented.len() as u64 }
    }

    fn equals(&self, other: &Self) -> Choice {
        self.bytes.ct_eq(&other.bytes) & self.len.ct_eq(&other.len)
    }
}

/// Authenticates a request and attaches its [`Tenant`]; answers 401 otherwise.
pub async fn layer(State(keys): State<Keys>, mut request: Request, next: Next) -> Response {
    let tenant = keys.tenant(presented(request.headers()));
    let open = OPEN.contains(&request.uri().path());
    match tenant {
        Some(tenant) => request.extensions_mut().insert(tenant),
        None if open => request.extensions_mut().insert(Tenant(String::new())),
        None => return ApiError::unauthorized().into_response(),
    };
    next.run(request).await
}

/// The presented key: a bearer token (OpenAI), or `x-api-key` (Anthropic).
fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
    });
    bearer.or_else(|| headers.get("x-api-key").map(|value| value.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(keys: &[&str], presented: &str) -> Option<String> {
        let keys = Keys::new(keys.iter().map(|key| key.to_string())).unwrap();
        keys.tenant(Some(presented.as_bytes())).map(|tenant| tenant.0)
    }

    #[test]
    fn only_the_exact_key_is_accepted() {
        assert_eq!(tenant(&["abc", "abcd"], "abcd").as_deref(), Some("key-2"));
        assert_eq!(tenant(&["abc"], "ab"), None);
        assert_eq!(tenant(&["abc"], "abc\0"), None);
        assert_eq!(tenant(&["abc"], ""), None);
        assert_eq!(tenant(&[&"a".repeat(256)], &"a".repeat(257)), None);
        assert_eq!(tenant(&[], "whatever").as_deref(), Some(""));
    }

    #[test]
    fn keys_that_cannot_be_sent_in_a_header_are_refused() {
        assert!(Keys::new(["".to_owned()]).is_err());
        assert!(Keys::new(["a b".to_owned()]).is_err());
        assert!(Keys::new(["a".repeat(257)]).is_err());
        assert_eq!(Keys::lines("# ours\n one \n\ntwo\n").collect::<Vec<_>>(), ["one", "two"]);
    }
}
