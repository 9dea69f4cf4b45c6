//! Models with pictures: features of their encoders, and logits of prompts that hold them.

mod encoder;
mod text;

use std::path::Path;

use crate::environment;
use crate::golden::pictures::PictureFixture;

/// Every fixture: the repository's, and those of a directory that the environment names.
pub fn fixtures() -> Vec<PictureFixture> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pictures");
    let mut paths = Vec::new();
    for directory in [Some(own), environment::picture_fixtures()].into_iter().flatten() {
        let entries = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
        paths.extend(entries.filter(|path| path.join("golden.safetensors").is_file()));
    }
    assert!(!paths.is_empty(), "the repository has fixtures");
    paths.sort();
    paths.iter().map(|path| PictureFixture::read(path)).collect()
}
