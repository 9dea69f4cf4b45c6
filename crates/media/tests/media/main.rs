//! Tests of the crate from outside: values of the references, properties, and inputs that are meant to do harm.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod decode;
mod fixtures;
mod golden;
mod properties;
mod safetensors;
mod sound;
mod support;
mod video;
