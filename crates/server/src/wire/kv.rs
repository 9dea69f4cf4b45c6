//! `POST /v1/kv/lookup` and `POST /v1/kv/blocks`: blocks that another replica requests.

use omnibus_engine::BlockQuery;
use omnibus_kv_peer::{BlockName, NAMES_MAX};
use serde_json::Value;

use super::fields::{Field, Fields, honoured, type_error};
use crate::error::ApiError;

/// Fields of both requests.
pub const FIELDS: &[Field] = &[
    honoured("fingerprint", "of the asking server's weights, KV format and block size"),
    honoured("blocks", "names of blocks: a hash in hexadecimal, `-` and a layer group"),
];

/// Reads a body.
pub fn read(body: Value) -> Result<BlockQuery, ApiError> {
    let mut fields = Fields::open(body, "", &[FIELDS])?;
    let fingerprint = fields.text("fingerprint")?;
    let fingerprint = fields.required("fingerprint", fingerprint)?;
    let blocks = fields.list("blocks")?;
    let blocks = fields.required("blocks", blocks)?;
    if blocks.len() > NAMES_MAX {
        return Err(ApiError::invalid("blocks", format!("`blocks` must have at most {NAMES_MAX} names")));
    }
    let names = blocks.iter().enumerate().map(|(at, name)| {
        let at = format!("blocks[{at}]");
        let text = name.as_str().ok_or_else(|| type_error(&at, "a string", name))?;
        let wrong = || format!("`{at}` must be a hash of 32 hexadecimal digits, `-` and a layer group");
        BlockName::parse(text).ok_or_else(|| ApiError::invalid(&at, wrong()))
    });
    let names = names.collect::<Result<_, _>>()?;
    fields.finish();
    Ok(BlockQuery { fingerprint, names })
}
