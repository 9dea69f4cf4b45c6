//! The origins whose pages may use the server.

use std::sync::Arc;

use thiserror::Error;

use super::pattern::HostPattern;

/// Allowed from the start: pages of this machine, and schemes that only programs installed on it have. A website has
/// none of these. `null`, the origin of sandboxed frames on any website, is not among them.
const LOCAL: &[&str] = &[
    "http://localhost:*",
    "https://localhost:*",
    "http://*.localhost:*",
    "https://*.localhost:*",
    "http://127.0.0.1:*",
    "https://127.0.0.1:*",
    "http://[::1]:*",
    "https://[::1]:*",
    "http://0.0.0.0:*",
    "https://0.0.0.0:*",
    "app://*",
    "file://*",
    "tauri://*",
    "vscode-file://*",
    "vscode-webview://*",
];

/// Origins whose pages may use the server.
#[derive(Debug, Clone)]
pub struct AllowedOrigins(Arc<[Pattern]>);

/// An origin that cannot be allowed.
#[derive(Debug, Error)]
#[error(
    "`{0}` is not an origin: write SCHEME://HOST or SCHEME://HOST:PORT, where HOST may be `*` or begin with `*.` and PORT may be `*`; or `null`, or `*`"
)]
pub struct OriginError(String);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    /// Every origin.
    Any,
    /// `null`
    Opaque,
    /// `scheme://host:port`
    Tuple { scheme: String, host: HostPattern, port: Port },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Port {
    Any,
    /// Absent where it is the scheme's own.
    Exactly(Option<u16>),
}

/// The origins of this machine.
impl Default for AllowedOrigins {
    fn default() -> Self {
        Self(LOCAL.iter().filter_map(|origin| Pattern::read(origin)).collect())
    }
}

impl AllowedOrigins {
    /// The origins of this machine, and these.
    pub fn new(origins: impl IntoIterator<Item = String>) -> Result<Self, OriginError> {
        let read = |origin: String| Pattern::read(&origin).ok_or(OriginError(origin));
        let added = origins.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        Ok(Self(Self::default().0.iter().cloned().chain(added).collect()))
    }

    /// Whether pages of an origin may use the server of a host, both given as in the headers `Origin` and `Host`. Pages of
    /// the server itself may.
    pub fn allow(&self, origin: &[u8], host: &[u8]) -> bool {
        let Ok(origin) = std::str::from_utf8(origin) else { return false };
        let own = origin.split_once("://").is_some_and(|(scheme, authority)| {
            matches!(scheme, "http" | "https") && authority.as_bytes().eq_ignore_ascii_case(host)
        });
        own || self.listed(origin)
    }

    /// Whether pages of an origin may use any server of these settings.
    pub fn listed(&self, origin: &str) -> bool {
        let parts = Parts::read(origin);
        self.0.iter().any(|pattern| match pattern {
            Pattern::Any => true,
            Pattern::Opaque => origin == "null",
            Pattern::Tuple { scheme, host, port } => parts.as_ref().is_some_and(|parts| {
                parts.scheme == *scheme
                    && host.covers(&parts.host)
                    && (*port == Port::Any || *port == Port::Exactly(parts.port))
            }),
        })
    }
}

impl Pattern {
    fn read(text: &str) -> Option<Self> {
        match text {
            "*" => return Some(Self::Any),
            "null" => return Some(Self::Opaque),
            _ => {}
        }
        // `app://*` has no ports to choose from.
        let (text, port) = match text.strip_suffix(":*") {
            Some(text) => (text, Some(Port::Any)),
            None if text.ends_with("://*") => (text, Some(Port::Any)),
            None => (text, None),
        };
        let Parts { scheme, host, port: read } = Parts::read(text)?;
        if host.is_empty() {
            return None;
        }
        Some(Self::Tuple {
            scheme,
            host: HostPattern::read(&host)?,
            port: port.unwrap_or(Port::Exactly(read)),
        })
    }
}

/// The parts of an origin, in lower case.
struct Parts {
    scheme: String,
    /// With its brackets where it is an IPv6 address; `file://` has none.
    host: String,
    port: Option<u16>,
}

impl Parts {
    fn read(origin: &str) -> Option<Self> {
        let (scheme, authority) = origin.split_once("://")?;
        let after_address = authority.rfind(']').map_or(0, |end| end + 1);
        let (host, port) = match authority.get(after_address..)?.rfind(':') {
            Some(colon) => {
                let (host, port) = authority.split_at_checked(after_address + colon)?;
                (host, Some(port.strip_prefix(':')?.parse().ok()?))
            }
            None => (authority, None),
        };
        let plain = |text: &str, more: &str| {
            text.chars().all(|symbol| symbol.is_ascii_alphanumeric() || more.contains(symbol))
        };
        let brackets = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let is_host = match brackets {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => plain(host, "-._*"),
        };
        let port = port.filter(|port| Some(*port) != own_port(scheme));
        (!scheme.is_empty() && plain(scheme, "-+.") && is_host).then(|| Self {
            scheme: scheme.to_ascii_lowercase(),
            host: host.to_ascii_lowercase(),
            port,
        })
    }
}

/// The port that an origin of this scheme does not spell out.
fn own_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(added: &[&str], allowed: &[&str], refused: &[&str]) {
        let origins = AllowedOrigins::new(added.iter().map(|origin| (*origin).to_owned())).unwrap();
        for origin in allowed {
            assert!(origins.allow(origin.as_bytes(), b"127.0.0.1:8000"), "{origin}");
        }
        for origin in refused {
            assert!(!origins.allow(origin.as_bytes(), b"127.0.0.1:8000"), "{origin}");
        }
    }

    #[test]
    fn pages_and_programs_of_this_machine_are_allowed() {
        check(
            &[],
            &[
                "http://localhost",
                "http://localhost:3000",
                "https://LOCALHOST:1",
                "http://127.0.0.1:8000",
                "http://[::1]:3000",
                "http://tauri.localhost",
                "tauri://localhost",
                "app://obsidian.md",
                "app://.",
                "file://",
                "vscode-webview://0abc",
                "vscode-file://vscode-app",
            ],
            &[
                "null",
                "",
                "http://evil.example",
                "http://localhost.evil.example",
                "http://evillocalhost",
                "https://evil.example:8000",
                "chrome-extension://abc",
                "ftp://localhost",
                "localhost",
                "http://localhost:80000",
                "http://localhost@evil.example",
                "http://[::1",
            ],
        );
    }

    #[test]
    fn the_servers_own_pages_are_allowed() {
        let origins = AllowedOrigins::default();
        assert!(origins.allow(b"http://192.168.0.2:8000", b"192.168.0.2:8000"));
        assert!(origins.allow(b"https://chat.example", b"Chat.example"));
        assert!(!origins.allow(b"http://192.168.0.3:8000", b"192.168.0.2:8000"));
        assert!(!origins.allow(b"odd://chat.example", b"chat.example"));
        assert!(!origins.allow(&[0xff], b""));
    }

    #[test]
    fn listed_origins_are_added() {
        check(
            &[
                "https://chat.example",
                "http://*.lan.example:8080",
                "chrome-extension://*",
                "https://any.example:*",
            ],
            &[
                "https://chat.example",
                "https://chat.example:443",
                "http://a.lan.example:8080",
                "chrome-extension://abc",
                "https://any.example",
                "https://any.example:5",
                "http://localhost:5",
            ],
            &[
                "http://chat.example",
                "https://chat.example:444",
                "http://lan.example:8080",
                "http://a.lan.example",
                "null",
            ],
        );
        check(&["null"], &["null"], &["http://evil.example"]);
        check(&["*"], &["null", "http://evil.example", "odd"], &[]);
    }

    #[test]
    fn what_is_no_origin_is_refused() {
        for origin in
            ["", "chat.example", "https://", "https://a/", "https://a:b", "https://a*", "://a", "https://a b"]
        {
            assert!(AllowedOrigins::new([origin.to_owned()]).is_err(), "{origin}");
        }
    }

    #[test]
    fn every_default_is_a_pattern() {
        assert_eq!(AllowedOrigins::default().0.len(), LOCAL.len());
    }
}
