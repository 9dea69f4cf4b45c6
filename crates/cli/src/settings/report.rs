//! Settings of `bench report` and `bench compare`.

use std::path::PathBuf;
use std::time::Duration;

use super::ablation::Ablation;
use super::load_kind::LoadKind;

/// Which servers get which loads, and where the report goes.
#[derive(Debug, Clone, Default)]
pub struct ReportSettings {
    /// Names and base URLs of other servers.
    pub peers: Vec<(String, String)>,
    /// Parts of ours that are switched off, each in a server of its own.
    pub ablations: Vec<&'static Ablation>,
    /// The loads.
    pub loads: Vec<LoadKind>,
    /// How often each server gets each load.
    pub rounds: usize,
    /// What a request must reach to count for goodput.
    pub targets: Targets,
    /// The folder of the report.
    pub folder: PathBuf,
    /// Percents by which a comparison may be worse.
    pub fail_over_percent: Option<f64>,
}

/// Times that a request must not exceed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Targets {
    /// To the first text.
    pub ttft: Duration,
    /// For each token after it.
    pub tpot: Duration,
}

/// Names with commas between them, or of several flags.
pub fn names(list: &[String]) -> Vec<String> {
    list.iter().flat_map(|text| text.split(',')).map(|name| name.trim().to_owned()).collect()
}

/// A peer as `NAME=URL`.
pub fn peer(text: &str) -> Result<(String, String), String> {
    let (name, url) = text.split_once('=').ok_or_else(|| format!("`{text}` is not NAME=URL"))?;
    match url.starts_with("http://") {
        true => Ok((name.to_owned(), url.trim_end_matches('/').to_owned())),
        false => Err(format!("`{url}` must begin with http://, as in {name}=http://127.0.0.1:8080/v1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_commas_between_them() {
        let list = ["a, b".to_owned(), "c".to_owned()];
        assert_eq!(names(&list), ["a", "b", "c"]);
    }

    #[test]
    fn a_peer_is_a_name_and_a_url() {
        let of = ("mlx-lm".to_owned(), "http://localhost:1/v1".to_owned());
        assert_eq!(peer("mlx-lm=http://localhost:1/v1/"), Ok(of));
        assert!(peer("http").is_err_and(|error| error.contains("NAME=URL")));
        assert!(peer("a=localhost").is_err_and(|error| error.contains("http://")));
    }
}
