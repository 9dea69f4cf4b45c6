//! `bench report`, `bench compare` and `bench energy` with the embedded model. What a part does is seen in counters.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::process::{omnibus, text};

/// A folder for a report, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("omnibus-report-{}-{name}", std::process::id())))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

fn read(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("report.json")).unwrap()).unwrap()
}

fn mean(report: &Value, contender: &str, metric: &str) -> Option<f64> {
    let values = report["values"].as_array().unwrap();
    let is_it = |of: &&Value| of["contender"] == contender && of["metric"] == metric;
    values.iter().find(is_it)?["mean"].as_f64()
}

#[test]
fn a_report_shows_what_each_part_does() {
    let folder = Folder::new("parts");
    let output =
        omnibus(&["bench", "report", "--ablate", "prefix-cache,spec,isolation", "--loads", "agents"])
            .args(["--rounds", "1", "--num-prompts", "8", "--input-len", "64", "--output-len", "24"])
            .args(["--ignore-eos", "--power-model", "20", "--out", folder.path()])
            // Whether drafts are faster depends on the machine.
            .env("OMNIBUS_DRAFT_POLICY", "all")
            .output()
            .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = read(&folder.0);
    let of = |contender, metric| mean(&report, contender, metric).unwrap();
    assert!(of("omnibus", "cached_share") > 0.2 && of("omnibus", "accepted_drafts") > 0.0, "{report:#}");
    assert_eq!(of("without prefix-cache", "cached_share"), 0.0);
    assert_eq!(of("without spec", "accepted_drafts"), 0.0);
    assert!(of("without spec", "cached_share") > 0.2 && of("without isolation", "cached_share") > 0.2);
    assert!(mean(&report, "omnibus", "tokens_per_joule").is_some_and(|value| value > 0.0));
    let page = std::fs::read_to_string(folder.0.join("report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("without isolation") && !page.contains("<script"));
    compared(&folder);
}

#[test]
fn a_load_with_pictures_shows_what_the_media_cache_does() {
    let folder = Folder::new("media");
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../training/vision/omnibus-see");
    let output = omnibus(&["bench", "report", "-m", model, "--ablate", "media-cache", "--loads", "media"])
        .args(["--rounds", "1", "--num-prompts", "12", "--input-len", "8", "--output-len", "4"])
        .args(["--ignore-eos", "--concurrency", "1", "--out", folder.path()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = read(&folder.0);
    let of = |contender| mean(&report, contender, "encoded_media").unwrap();
    assert!((1.0..=4.0).contains(&of("omnibus")), "each picture once: {}", of("omnibus"));
    // One of the twelve pictures is that of the request before, whose features stay until other ones are encoded.
    assert_eq!(of("without media-cache"), 11.0);
}

/// A report is as good as itself, and better than one with twice its times.
fn compared(folder: &Folder) {
    let same = folder.0.join("report.json");
    let slower = folder.0.join("slower.json");
    let mut report = read(&folder.0);
    for value in report["values"].as_array_mut().unwrap() {
        if value["metric"] == "ttft_p50" {
            value["mean"] = (2.0 * value["mean"].as_f64().unwrap()).into();
        }
    }
    std::fs::write(&slower, report.to_string()).unwrap();
    let compare = |after: &Path| {
        let files = [same.to_str().unwrap(), after.to_str().unwrap()];
        omnibus(&["bench", "compare", "--fail-over", "50"]).args(files).output().unwrap()
    };
    assert_eq!(compare(&same).status.code(), Some(0));
    let output = compare(&slower);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("TTFT p50"), "{}", text(&output.stderr));
}

#[test]
fn the_energy_benchmark_counts_drafts_and_cached_prompts() {
    let output = omnibus(&["bench", "energy", "--power-model", "20", "--streams", "1,4", "--json"])
        // Whether drafts are faster depends on the machine.
        .args(["--rounds", "2", "--max-tokens", "24", "--draft-policy", "all"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(results["source"], "estimate");
    let cases = results["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 6);
    for case in cases {
        let count = |name: &str| case[name].as_u64().unwrap();
        assert_eq!(count("cached_tokens") > 0, case["mode"] == "prefix_hits", "{case}");
        assert_eq!(count("accepted_drafts") > 0, case["mode"] == "speculation", "{case}");
        assert_eq!(count("requests"), 2 * count("streams"), "{case}");
    }
    assert!(cases.iter().any(|case| case["tokens_per_joule"].as_f64().unwrap() > 0.0), "{results:#}");
}
