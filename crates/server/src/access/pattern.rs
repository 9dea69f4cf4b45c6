//! Host names with a wildcard at their begin, as in `*.example.com`.

/// A host name, a name's subdomains, or any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    /// Every host.
    Any,
    /// The names below one, which is kept with the dot before it.
    Below(String),
    /// This host.
    Exactly(String),
}

impl HostPattern {
    /// Reads a pattern. `None` where a wildcard stands anywhere but at its begin.
    pub fn read(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        match text.strip_prefix('*') {
            Some("") => Some(Self::Any),
            Some(rest) if rest.len() > 1 && rest.starts_with('.') && !rest.contains('*') => {
                Some(Self::Below(rest.to_owned()))
            }
            Some(_) => None,
            None => (!text.contains('*')).then_some(Self::Exactly(text)),
        }
    }

    /// Whether it covers a host in lower case.
    pub fn covers(&self, host: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Below(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_str()),
            Self::Exactly(name) => host == name,
        }
    }
}
