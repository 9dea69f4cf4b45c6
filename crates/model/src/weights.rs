//! Tensors by name: where they are read from, how they are checked against a blueprint, and how the
//! blocks take them.
//!
//! Invariant: every file is hostile until its header has been checked: offsets within the file,
//! sizes that fit shapes, no overlap, no path out of the model's directory.

mod adapter;
mod check;
mod deal;
mod expert_files;
mod files;
mod fingerprint;
mod foreign;
mod header;
mod json;
mod random;
mod rewrite;
mod stages;
mod static_table;
mod store;

use std::collections::BTreeMap;
use std::path::PathBuf;

use mlx::Array;
use thiserror::Error;

pub(crate) use adapter::{Adapter, LowRank};
pub use check::Difference;
pub(crate) use check::{check, infer};
pub(crate) use expert_files::ExpertFiles;
pub(crate) use files::MTP_FILE;
pub use files::Source;
pub(crate) use fingerprint::adapter_id;
pub(crate) use foreign::convert;
pub(crate) use header::check_header;
pub use json::as_json;
pub use random::RandomWeights;
pub(crate) use store::{Published, Store, published};

/// A checkpoint: lazy arrays by tensor name.
pub type Weights = BTreeMap<String, Array>;

/// How a checkpoint cannot be loaded. One line each; names are listed in full up to a limit, because
/// seeing them is what shows the remedy.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum LoadError {
    #[error("{}: {problem}", file.display())]
    File { file: PathBuf, problem: String },
    #[error("{to}: found {found} of {experts} experts")]
    Experts { to: String, found: usize, experts: usize },
    #[error("{name}: {shape:?} is not {want}")]
    Shape { name: String, shape: Vec<i32>, want: String },
    #[error("`{path}` {problem}")]
    Format { path: String, problem: String },
    #[error("the weights do not fit the config: {}", check::listed(.0))]
    Mismatch(Difference),
    #[error("cannot divide the model among {ranks} ranks: {problem}; {}", proposed(sizes))]
    Ranks { ranks: usize, problem: String, sizes: Vec<usize> },
    #[error("cannot cut the model into {stages} stages: {problem}; {}", proposed_stages(sizes))]
    Stages { stages: usize, problem: String, sizes: Vec<usize> },
    #[error("--expert-memory {0}")]
    ExpertMemory(String),
    #[error(transparent)]
    Mlx(#[from] mlx::Error),
}

/// Which numbers of ranks fit.
fn proposed(sizes: &[usize]) -> String {
    match sizes {
        [] => "it runs on one rank only".to_owned(),
        sizes => format!("--tensor-parallel-size may be {}", listed(sizes)),
    }
}

/// Which numbers of stages fit.
fn proposed_stages(sizes: &[usize]) -> String {
    match sizes {
        [] => "it runs in one stage only".to_owned(),
        sizes => format!("--pipeline-parallel-size may be {}", listed(sizes)),
    }
}

fn listed(sizes: &[usize]) -> String {
    sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}
