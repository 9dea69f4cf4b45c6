//! The server's own HTTP requests: to the domains that the operator allows, and to nowhere else.
//!
//! Invariant: every hop of a redirect is checked like the first URL. A connection goes to an address that was checked: the
//! name is resolved once. Sizes are compared before memory is allocated. What a response holds is not known here.

mod addresses;

use std::net::{IpAddr, SocketAddr};

use omnibus_engine::Reserved;
use reqwest::header::{CONTENT_ENCODING, HeaderName, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};

/// Most redirects of one fetch.
const REDIRECTS_MAX: usize = 3;
/// A client of the allowed domains.
#[derive(Debug, Clone, Default)]
pub struct Outbound {
    domains: Vec<Domain>,
}

/// Why there are no bytes of a URL.
#[derive(Debug)]
pub enum FetchError {
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

impl Outbound {
    /// To these domains, `host` or `host:port`. Fails with a line that names a wrong one.
    pub fn new(domains: &[String]) -> Result<Self, String> {
        Ok(Self { domains: domains.iter().map(|text| Domain::read(text)).collect::<Result<_, _>>()? })
    }

    /// Whether no domain is allowed.
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }

    /// The successful response to a request, redirects followed.
    pub async fn get(&self, mut url: Url) -> Result<Response, FetchError> {
        for _ in 0..=REDIRECTS_MAX {
            let response = self.request(&url).await?;
            if !response.status().is_redirection() {
                return successful(response);
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
    async fn request(&self, url: &Url) -> Result<Response, String> {
        self.client(url).await?.get(url.clone()).send().await.map_err(|error| reason(&error))
    }

    /// A client for a URL, which reaches its host at an address that was checked and follows no redirect.
    pub async fn client(&self, url: &Url) -> Result<Client, String> {
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
        client.map_err(|error| reason(&error))
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

fn successful(response: Response) -> Result<Response, FetchError> {
    let status = response.status();
    match status.is_success() {
        true => Ok(response),
        false => Err(format!("is answered with the status {}", status.as_u16()).into()),
    }
}

/// A header as text; empty if it is absent.
pub fn header(response: &Response, name: HeaderName) -> &str {
    response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The body of at most so many bytes, which are reserved as they come.
pub async fn body(mut response: Response, most: u64, reserved: &mut Reserved) -> Result<Vec<u8>, FetchError> {
    let coding = header(&response, CONTENT_ENCODING);
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
