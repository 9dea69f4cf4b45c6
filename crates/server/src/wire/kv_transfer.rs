//! `kv_transfer_params`: vLLM's fields of a request that one server prefills and another one decodes.
//!
//! Blocks are named by the tokens before them, so the server that decodes finds them by itself, at the peers of its command
//! line: the fields say what a request is for, and never where blocks are fetched.

use serde::Serialize;
use serde_json::Value;

use super::fields::{Field, Fields, honoured};
use crate::error::ApiError;

/// Fields of `kv_transfer_params`.
pub const FIELDS: &[Field] = &[
    honoured("do_remote_decode", "true keeps the prompt's blocks for the server that decodes"),
    honoured("do_remote_prefill", "true: the blocks are fetched of a `--kv-peer` that has them"),
    honoured("remote_engine_id", "has no effect: blocks are found by their tokens"),
    honoured("remote_block_ids", "has no effect: blocks are found by their tokens"),
    honoured("remote_host", "has no effect: peers are those of the command line"),
    honoured("remote_port", "has no effect: peers are those of the command line"),
];

/// What a request is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KvTransfer {
    /// An answer.
    #[default]
    None,
    /// The prompt's blocks, which another server will fetch.
    RemoteDecode,
    /// An answer to a prompt that another server has computed.
    RemotePrefill,
}

/// What the server that decodes gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KvTransferParams {
    /// True.
    pub do_remote_prefill: bool,
    /// False.
    pub do_remote_decode: bool,
    /// The response's id.
    pub remote_engine_id: String,
    /// Empty: blocks are found by their tokens.
    pub remote_block_ids: Vec<String>,
    /// Null: peers are those of the command line.
    pub remote_host: Option<String>,
    /// Null, as the host.
    pub remote_port: Option<u16>,
}

/// Takes the field.
pub fn read(fields: &mut Fields) -> Result<KvTransfer, ApiError> {
    const NAME: &str = "kv_transfer_params";
    let Some(params) = fields.value(NAME) else { return Ok(KvTransfer::None) };
    // Versions of vLLM add fields, which a proxy passes on.
    let mut params = Fields::tolerant(params, NAME, &[FIELDS])?;
    let decode = params.flag("do_remote_decode")?.unwrap_or(false);
    let prefill = params.flag("do_remote_prefill")?.unwrap_or(false);
    for name in ["remote_engine_id", "remote_block_ids", "remote_host", "remote_port"] {
        let _any: Option<Value> = params.value(name);
    }
    params.finish();
    match (decode, prefill) {
        (true, true) => {
            let why = "`do_remote_decode` and `do_remote_prefill` exclude each other";
            Err(ApiError::invalid(NAME, why))
        }
        (true, false) => Ok(KvTransfer::RemoteDecode),
        (false, true) => Ok(KvTransfer::RemotePrefill),
        (false, false) => Ok(KvTransfer::None),
    }
}

impl KvTransfer {
    /// What the answer of a request with this has for the server that decodes.
    pub fn params(self, response_id: &str) -> Option<KvTransferParams> {
        (self == Self::RemoteDecode).then(|| KvTransferParams {
            do_remote_prefill: true,
            do_remote_decode: false,
            remote_engine_id: response_id.to_owned(),
            remote_block_ids: Vec::new(),
            remote_host: None,
            remote_port: None,
        })
    }
}
