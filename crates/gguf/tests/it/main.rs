//! Files that the tests write themselves, read as model folders.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod architectures;
mod blocks;
mod configs;
mod file;
mod folder;
mod hostile;
mod tokenizers;
mod writer;
