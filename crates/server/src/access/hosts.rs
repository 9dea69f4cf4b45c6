//! The hosts that a request may name. A foreign name that resolves to this machine (DNS rebinding) would make a foreign
//! page the server's own in a browser's eyes.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::uri::Authority;
use thiserror::Error;

use super::pattern::HostPattern;

/// How a request's connection reached the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// By a TCP socket that is bound to this address.
    Tcp(IpAddr),
    /// By a UNIX socket: no browser does, and its clients name any host.
    Unix,
}

/// The strictest.
impl Default for Arrival {
    fn default() -> Self {
        Self::Tcp(IpAddr::from([127, 0, 0, 1]))
    }
}

/// Hosts beside those that every server has: loopback names, and the address that its socket is bound to.
#[derive(Debug, Clone, Default)]
pub struct AllowedHosts(Arc<[HostPattern]>);

/// A host that cannot be allowed.
#[derive(Debug, Error)]
#[error("`{0}` is not a host: write a name or an address without scheme and port, `*.NAME` or `*`")]
pub struct HostError(String);

impl AllowedHosts {
    /// With these names and patterns.
    pub fn new(hosts: impl IntoIterator<Item = String>) -> Result<Self, HostError> {
        let read = |host: String| {
            let bare = host.trim_start_matches('*').trim_start_matches('.');
            let plain = bare.parse::<IpAddr>().is_ok()
                || bare.parse::<Authority>().is_ok_and(|parsed| parsed.host() == bare);
            match HostPattern::read(unbracketed(&host)) {
                Some(pattern) if plain || host == "*" => Ok(pattern),
                _ => Err(HostError(host)),
            }
        };
        hosts.into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// With one more name, if it is one: an address is the server's own only where it is bound.
    pub fn with_name(self, name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        if name.parse::<IpAddr>().is_ok() {
            return self;
        }
        Self(self.0.iter().cloned().chain([HostPattern::Exactly(name)]).collect())
    }

    /// Whether a request that arrived there may name this host, given as in the header `Host`. Clients that are no browsers
    /// may leave it out or empty.
    pub fn allow(&self, host: &[u8], arrival: Arrival) -> bool {
        let Arrival::Tcp(bound) = arrival else { return true };
        if host.is_empty() || self.0.contains(&HostPattern::Any) {
            return true;
        }
        let Ok(authority) = Authority::try_from(host) else { return false };
        if authority.as_str().contains('@') {
            return false;
        }
        let name = authority.host().to_ascii_lowercase();
        let name = unbracketed(name.strip_suffix('.').unwrap_or(&name));
        is_own(name, bound.to_canonical()) || self.0.iter().any(|pattern| pattern.covers(name))
    }
}

fn unbracketed(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

/// Whether a server at a bound address has this name without being given it.
fn is_own(name: &str, bound: IpAddr) -> bool {
    if let Ok(address) = name.parse::<IpAddr>() {
        let address = address.to_canonical();
        // No page can be at an address that it does not have, so an address needs no proof.
        return address.is_loopback()
            || address.is_unspecified()
            || address == bound
            || bound.is_unspecified();
    }
    name == "localhost" || name.ends_with(".localhost") || (!bound.is_loopback() && is_local(name))
}

/// Names that public DNS does not give away: those of a container network, of mDNS, and of private networks.
fn is_local(name: &str) -> bool {
    !name.contains('.') || name.ends_with(".local") || name.ends_with(".internal")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(hosts: &[&str], bound: &str, allowed: &[&str], refused: &[&str]) {
        let hosts = AllowedHosts::new(hosts.iter().map(|host| (*host).to_owned())).unwrap();
        let arrival = Arrival::Tcp(bound.parse().unwrap());
        for host in allowed {
            assert!(hosts.allow(host.as_bytes(), arrival), "{host} at {bound}");
        }
        for host in refused {
            assert!(!hosts.allow(host.as_bytes(), arrival), "{host} at {bound}");
        }
        assert!(hosts.allow(b"evil.example", Arrival::Unix));
    }

    #[test]
    fn a_loopback_server_has_loopback_names() {
        check(
            &[],
            "127.0.0.1",
            &[
                "",
                "localhost",
                "LOCALHOST:8000",
                "localhost.",
                "a.localhost",
                "127.0.0.1:1",
                "127.1.2.3",
                "[::1]:80",
                "0.0.0.0",
            ],
            &[
                "evil.example",
                "192.168.0.2",
                "localhost.evil.example",
                "notlocalhost",
                "box",
                "box.local",
                "a@localhost",
                "local host",
                "\u{e4}",
            ],
        );
    }

    #[test]
    fn a_server_of_one_address_has_that_address() {
        check(
            &[],
            "192.168.0.2",
            &["192.168.0.2:8000", "localhost", "box", "box.local"],
            &["192.168.0.3", "evil.example"],
        );
    }

    #[test]
    fn a_server_of_all_addresses_has_any_address_and_no_public_name() {
        check(
            &[],
            "0.0.0.0",
            &["192.168.0.2", "[fe80::1]", "omnibus:8000", "box.local", "host.docker.internal"],
            &["evil.example", "evil.example.", "box.local.evil.example"],
        );
        check(&[], "::", &["10.0.0.1"], &["evil.example"]);
    }

    #[test]
    fn names_and_patterns_are_added() {
        check(
            &["chat.example", "*.lan.example", "fe80::1"],
            "127.0.0.1",
            &["chat.example", "Chat.Example:443", "a.lan.example", "a.b.lan.example", "[fe80::1]"],
            &["a.chat.example", "lan.example", "xlan.example"],
        );
        check(&["*"], "127.0.0.1", &["evil.example"], &[]);
    }

    #[test]
    fn the_name_that_a_server_listens_on_is_its_own() {
        let arrival = Arrival::Tcp([192, 168, 0, 2].into());
        let named = |name: &str| AllowedHosts::default().with_name(name);
        assert!(named("Box.Example").allow(b"box.example:8000", arrival));
        assert!(!named("10.0.0.1").allow(b"10.0.0.1", arrival), "an address is one only where it is bound");
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for host in ["", "http://a", "a:1", "a/b", "a*", "*a", "a.*", "*.", "a b"] {
            assert!(AllowedHosts::new([host.to_owned()]).is_err(), "{host}");
        }
    }
}
