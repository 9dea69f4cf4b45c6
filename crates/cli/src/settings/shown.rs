//! A setting as the page of the server shows it.

use serde::Serialize;

/// A setting with its value, without secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShownSetting {
    /// Its name in `omnibus.toml`.
    pub name: &'static str,
    /// Empty where it is unset.
    pub value: String,
    /// Where the value comes from.
    pub source: String,
    /// How what it says changes while the server runs; empty where that needs a restart.
    pub live: &'static str,
}

/// What changes while the server runs, by the setting's name.
const LIVE: &[(&str, &str)] = &[
    ("api-key-file", "SIGHUP reads it again"),
    ("tls-cert", "SIGHUP reads it again"),
    ("tls-key", "SIGHUP reads it again"),
    ("models-dir", "new folders are found when a request names them"),
    ("model-ttl", "of one model by POST /v1/models/load with `ttl`"),
];

/// How a setting changes while the server runs; empty where it does not.
pub fn live_change(name: &str) -> &'static str {
    LIVE.iter().find(|(setting, _)| *setting == name).map_or("", |(_, how)| how)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings;

    #[test]
    fn each_setting_that_changes_live_is_one() {
        let is_setting = |name: &str| settings::all().any(|setting| setting.name == name);
        assert!(LIVE.iter().all(|(name, _)| is_setting(name)));
        assert_eq!((live_change("tls-key"), live_change("port")), ("SIGHUP reads it again", ""));
    }
}
