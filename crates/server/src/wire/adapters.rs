//! `POST /v1/load_lora_adapter` and `POST /v1/unload_lora_adapter`, as in vLLM.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;

use super::fields::{Field, Fields, harmless, honoured, refused};
use crate::error::ApiError;

/// Fields of `/v1/load_lora_adapter`.
pub const LOAD: &[Field] = &[
    honoured("lora_name", "the name that requests give as `model`"),
    honoured("lora_path", "the adapter's directory on the server"),
    harmless("is_3d_lora_weight", "the shapes of the tensors say it"),
    honoured("base_model_name", "the served name of the adapter's model; absent the default one"),
    refused("load_inplace", "unload the adapter first"),
];

/// Fields of `/v1/unload_lora_adapter`.
pub const UNLOAD: &[Field] = &[
    honoured("lora_name", "the name of the adapter"),
    harmless("lora_int_id", "adapters are unloaded by their names"),
];

/// A `/v1/load_lora_adapter` request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadAdapter {
    /// `lora_name`
    pub name: String,
    /// `lora_path`
    pub path: PathBuf,
    /// `base_model_name`
    pub base: Option<String>,
}

impl LoadAdapter {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::open(body, "", &[LOAD])?;
        let name = required(&mut fields, "lora_name")?;
        let base = fields.text("base_model_name")?;
        Ok(Self { name, path: required(&mut fields, "lora_path")?.into(), base })
    }
}

/// Reads the body of `/v1/unload_lora_adapter`: the adapter's name.
pub fn unloaded_name(body: Value) -> Result<String, ApiError> {
    required(&mut Fields::open(body, "", &[UNLOAD])?, "lora_name")
}

fn required(fields: &mut Fields, name: &str) -> Result<String, ApiError> {
    let text = fields.text(name)?.filter(|text| !text.is_empty());
    fields.required(name, text)
}

/// The response to an unloaded adapter.
#[derive(Debug, Clone, Serialize)]
pub struct UnloadedAdapter {
    /// The adapter's name.
    pub id: String,
    /// `model`
    pub object: &'static str,
    /// True.
    pub deleted: bool,
}
