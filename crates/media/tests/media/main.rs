//! Tests of the crate from outside: values of the references, properties, and inputs that are meant to do harm.

mod golden;
mod safetensors;
mod support;
