//! Which pages a search may show, by the domains of their addresses.

use reqwest::Url;

/// Domains, as in `example.com` or `example.com/docs`. One has all its subdomains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Domains {
    /// Only these; `None` is all.
    pub allowed: Option<Vec<String>>,
    /// None of these.
    pub blocked: Vec<String>,
}

impl Domains {
    /// Whether all pages may be shown.
    pub fn is_all(&self) -> bool {
        self.allowed.is_none() && self.blocked.is_empty()
    }

    /// Whether the page at an address may be shown.
    pub fn allows(&self, url: &str) -> bool {
        if self.is_all() {
            return true;
        }
        let Ok(url) = Url::parse(url) else { return false };
        let is_in = |domain: &String| has(domain, &url);
        self.allowed.as_ref().is_none_or(|allowed| allowed.iter().any(is_in))
            && !self.blocked.iter().any(is_in)
    }
}

/// Whether an address is in a domain, and below its path.
fn has(domain: &str, url: &Url) -> bool {
    let domain = domain.trim_start_matches("https://").trim_start_matches("http://").to_ascii_lowercase();
    let (name, path) = domain.split_once('/').unwrap_or((&domain, ""));
    let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
    let is_host = match host.strip_suffix(name) {
        Some(rest) => !name.is_empty() && (rest.is_empty() || rest.ends_with('.')),
        None => false,
    };
    is_host && url.path().to_ascii_lowercase().trim_start_matches('/').starts_with(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_has_its_subdomains_and_no_others() {
        let only = |name: &str| Domains { allowed: Some(vec![name.to_owned()]), blocked: Vec::new() };
        assert!(only("example.com").allows("https://docs.Example.com/a"));
        assert!(!only("example.com").allows("https://badexample.com/"));
        assert!(!only("example.com").allows("https://example.com.evil.org/"));
        assert!(only("example.com/docs").allows("https://example.com/docs/x"));
        assert!(!only("example.com/docs").allows("https://example.com/blog"));
        assert!(!only("").allows("https://example.com/"));
        assert!(!only("example.com").allows("not an address"));
        let blocked = Domains { allowed: None, blocked: vec!["example.com".to_owned()] };
        assert!(!blocked.allows("https://www.example.com/") && blocked.allows("https://example.org/"));
    }
}
