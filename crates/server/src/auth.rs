//! API keys: who may ask, and as whom.
//!
//! Invariant: how long a comparison takes tells nothing about a key but whether it is right. Keys are never logged.

use std::fmt;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::{Choice, ConstantTimeEq};
use thiserror::Error;

use crate::app::App;
use crate::error::ApiError;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 256;
/// Open to everybody.
const OPEN: &[&str] = &["/health", "/ready"];

/// The keys that are let in; none lets in everybody.
#[derive(Clone, Default)]
pub struct Keys(Vec<Padded>);

/// Whose request it is; empty when there are no keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant(pub String);

/// A key that cannot be one.
#[derive(Debug, Error)]
pub enum KeyError {
    /// Nothing is left to compare.
    #[error("an API key must not be empty")]
    Empty,
    /// It could not be sent, or not be compared.
    #[error("an API key must be at most {KEY_BYTES_MAX} visible ASCII characters")]
    Odd,
}

impl Keys {
    /// Checks that each key can be sent in a header.
    pub fn new(keys: impl IntoIterator<Item = String>) -> Result<Self, KeyError> {
        keys.into_iter().map(|key| Padded::key(&key)).collect::<Result<_, _>>().map(Self)
    }

    /// One key a line; blank lines and those that begin with `#` are none.
    pub fn lines(text: &str) -> impl Iterator<Item = String> {
        let lines = text.lines().map(str::trim);
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned)
    }

    /// Everybody who may be let in, by the names that a request gives them.
    pub fn tenants(&self) -> Vec<String> {
        match self.0.len() {
            0 => vec![String::new()],
            keys => (0..keys).map(name).collect(),
        }
    }

    /// Whose key it is. All keys are looked at, whichever fits.
    fn tenant(&self, presented: Option<&[u8]>) -> Option<Tenant> {
        if self.0.is_empty() {
            return Some(Tenant(String::new()));
        }
        let presented = Padded::presented(presented?);
        let mut found = None;
        for (index, key) in self.0.iter().enumerate() {
            if bool::from(key.same(&presented)) {
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

/// Bytes of one size, so that a comparison takes as long whatever they are.
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
            _ => Err(KeyError::Odd),
        }
    }

    /// Longer ones are cut, and differ in length from every key.
    fn presented(presented: &[u8]) -> Self {
        let mut bytes = [0; KEY_BYTES_MAX];
        let kept = presented.len().min(KEY_BYTES_MAX);
        bytes[..kept].copy_from_slice(&presented[..kept]);
        Self { bytes, len: presented.len() as u64 }
    }

    fn same(&self, other: &Self) -> Choice {
        self.bytes.ct_eq(&other.bytes) & self.len.ct_eq(&other.len)
    }
}

/// Lets a request in, as somebody.
pub async fn layer(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let tenant = app.keys.tenant(presented(request.headers()));
    let open = OPEN.contains(&request.uri().path());
    match tenant {
        Some(tenant) => request.extensions_mut().insert(tenant),
        None if open => request.extensions_mut().insert(Tenant(String::new())),
        None => return ApiError::unauthorized().into_response(),
    };
    next.run(request).await
}

/// OpenAI's clients send a bearer token, Anthropic's an `x-api-key`.
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
    fn a_key_is_whole_or_wrong() {
        assert_eq!(tenant(&["abc", "abcd"], "abcd").as_deref(), Some("key-2"));
        assert_eq!(tenant(&["abc"], "ab"), None);
        assert_eq!(tenant(&["abc"], "abc\0"), None);
        assert_eq!(tenant(&["abc"], ""), None);
        assert_eq!(tenant(&[&"a".repeat(256)], &"a".repeat(257)), None);
        assert_eq!(tenant(&[], "whatever").as_deref(), Some(""));
    }

    #[test]
    fn keys_that_cannot_be_sent_are_refused() {
        assert!(Keys::new(["".to_owned()]).is_err());
        assert!(Keys::new(["a b".to_owned()]).is_err());
        assert!(Keys::new(["a".repeat(257)]).is_err());
        assert_eq!(Keys::lines("# ours\n one \n\ntwo\n").collect::<Vec<_>>(), ["one", "two"]);
    }
}
