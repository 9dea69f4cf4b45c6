//! Data of others, which lies beside the repository in the folder `shared`, and samples of it that are ours.
//!
//! Invariant: a test that wants such data runs with the sample at least. Where `OMNIBUS_REQUIRE_REFERENCES` is set, it fails
//! without the data itself.

use std::path::{Path, PathBuf};

use crate::environment;

const REQUIRED: &str = "OMNIBUS_REQUIRE_REFERENCES";

/// A folder of the repository, and the one beside it whose data it is a sample of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    /// From the folder beside the repository.
    path: &'static str,
    /// From the repository.
    sample: &'static str,
}

/// Requests that clients sent.
pub const RECORDED_REQUESTS: Reference =
    Reference { path: "clients/recorded", sample: "crates/testing/samples/recorded" };
/// Chat templates of published models.
pub const TEMPLATES: Reference =
    Reference { path: "templates/jinja", sample: "crates/testing/samples/templates" };
/// Configs and tokenizers of published models.
pub const CONFIGS: Reference = Reference { path: "real-configs", sample: "crates/testing/samples/configs" };
/// What processors of the reference make of pictures and sounds.
pub const PREPROCESSED: Reference =
    Reference { path: "oracle-mm/preprocess", sample: "crates/testing/samples/preprocess" };
/// Tiny models with pictures, and what the reference computes with them.
pub const PICTURE_MODELS: Reference =
    Reference { path: "oracle-mm/fixtures", sample: "crates/testing/samples/picture-models" };

/// Answers of models to tasks, as tokens.
pub const ANSWERS: Reference = Reference { path: "oracle-spec", sample: "crates/testing/samples/answers" };

/// The folder with tiny embedders, rerankers and classifiers: that of a variable, which has other weights, or the
/// repository's.
pub fn embedders() -> PathBuf {
    match environment::variable("OMNIBUS_EMBEDDER_FIXTURES") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/embedders"),
    }
}

/// A folder that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Ours: little of each kind.
    Sample(PathBuf),
    /// The data of others, all of it.
    Whole(PathBuf),
}

impl Found {
    /// Where it is.
    pub fn folder(&self) -> &Path {
        match self {
            Self::Sample(folder) | Self::Whole(folder) => folder,
        }
    }

    /// Whether it is the data of others.
    pub fn is_whole(&self) -> bool {
        matches!(self, Self::Whole(_))
    }

    /// The files of the folder with this ending, in the order of their names.
    pub fn files(&self, ending: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.folder()).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> =
            entries.filter(|path| path.to_str().is_some_and(|path| path.ends_with(ending))).collect();
        files.sort();
        files
    }

    /// Asserts that a test saw much: of the sample something, of the whole data at least as many.
    #[track_caller]
    pub fn assert_count(&self, count: usize, of_whole: usize) {
        let least = match self {
            Self::Sample(_) => 1,
            Self::Whole(_) => of_whole,
        };
        assert!(count >= least, "{count} of {}, where {least} were expected", self.folder().display());
    }
}

/// The sample, and the data itself if it is there.
pub fn found(reference: Reference) -> impl Iterator<Item = Found> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let sample = root.join(reference.sample);
    assert!(sample.is_dir(), "the repository has no {}", sample.display());
    [Found::Sample(sample)].into_iter().chain(whole(&root.join("../shared").join(reference.path)))
}

/// The data in this folder; says so, or fails, if it is not there.
fn whole(folder: &Path) -> Option<Found> {
    if folder.is_dir() {
        return Some(Found::Whole(folder.to_owned()));
    }
    missing(&format!("{} does not exist", folder.display()), environment::variable(REQUIRED));
    None
}

fn missing(what: &str, required: Option<String>) {
    assert!(required.is_none(), "{what}, and {REQUIRED} is set");
    println!("skipped: {what}");
}

#[test]
fn every_sample_is_found_first() {
    for reference in [RECORDED_REQUESTS, TEMPLATES, CONFIGS, PREPROCESSED, PICTURE_MODELS, ANSWERS] {
        let first = found(reference).next();
        assert!(
            matches!(&first, Some(Found::Sample(folder)) if !Found::files(&Found::Sample(folder.clone()), "").is_empty())
        );
    }
}

#[test]
fn missing_data_is_an_error_only_where_it_is_required() {
    missing("a folder does not exist", None);
    let required = std::panic::catch_unwind(|| missing("a folder does not exist", Some("1".to_owned())));
    let said = required.unwrap_err().downcast::<String>().unwrap();
    assert_eq!(*said, "a folder does not exist, and OMNIBUS_REQUIRE_REFERENCES is set");
}
