//! The prefix of paths that a reverse proxy adds.

use axum::http::Uri;
use axum::http::uri::PathAndQuery;
use thiserror::Error;

/// A prefix of all paths, without a slash at its end; empty where there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RootPath(String);

/// What is no prefix.
#[derive(Debug, Error)]
#[error("`{0}` is not a prefix of paths: write it as `/omnibus`, without query and wildcards")]
pub struct RootPathError(String);

impl RootPath {
    /// A prefix that begins with a slash. One at its end does not count.
    pub fn new(prefix: &str) -> Result<Self, RootPathError> {
        let bare = prefix.trim_end_matches('/');
        let is_path = bare.parse::<PathAndQuery>().is_ok_and(|parsed| parsed.path() == bare);
        let is_plain = bare.starts_with('/') && !bare.contains("//") && !bare.contains(['{', '}', '*']);
        match prefix {
            "/" => Ok(Self::default()),
            _ if is_path && is_plain => Ok(Self(bare.to_owned())),
            _ => Err(RootPathError(prefix.to_owned())),
        }
    }

    /// The prefix; empty where there is none.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A target without the prefix. Proxies that remove it themselves send paths without it, which stay as they are.
    pub fn strip(&self, target: Uri) -> Uri {
        let whole = target.path_and_query().map_or("", PathAndQuery::as_str);
        let rest = match whole.strip_prefix(&self.0) {
            Some(rest) if !self.0.is_empty() => rest,
            _ => return target,
        };
        let rest = match rest.chars().next() {
            None => "/".to_owned(),
            Some('/') => rest.to_owned(),
            Some('?') => format!("/{rest}"),
            Some(_) => return target,
        };
        let mut parts = target.clone().into_parts();
        parts.path_and_query = rest.parse().ok();
        Uri::from_parts(parts).unwrap_or(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(prefix: &str, target: &str, expected: &str) {
        let stripped = RootPath::new(prefix).unwrap().strip(target.parse().unwrap());
        assert_eq!(stripped.to_string(), expected, "{prefix} of {target}");
    }

    #[test]
    fn the_prefix_is_taken_off_where_it_stands() {
        check("/omnibus", "/omnibus/v1/models", "/v1/models");
        check("/omnibus/", "/omnibus/v1/models?a=b", "/v1/models?a=b");
        check("/omnibus", "/omnibus", "/");
        check("/omnibus", "/omnibus?a", "/?a");
        check("/omnibus", "http://a/omnibus/health", "http://a/health");
        check("/a/b", "/a/b/c", "/c");
        for kept in ["/v1/models", "/omnibusses/x", "/v1/omnibus/x", "*"] {
            check("/omnibus", kept, kept);
        }
        check("/", "/v1/models", "/v1/models");
    }

    #[test]
    fn what_is_no_prefix_is_refused() {
        for prefix in
            ["", "omnibus", "/a?b", "/a b", "//a", "/a//b", "/{a}", "/*", "http://a/b", "/a#b", "//"]
        {
            assert!(RootPath::new(prefix).is_err(), "{prefix}");
        }
    }
}
