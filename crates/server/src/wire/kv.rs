//! `POST /v1/kv/lookup`, `/v1/kv/blocks` and `/v1/kv/prefill`: blocks that another replica requests.

use omnibus_engine::BlockQuery;
use omnibus_kv_peer::{BlockName, NAMES_MAX};
use serde_json::Value;

use super::fields::{Field, Fields, honoured, type_error};
use crate::error::ApiError;

/// Fields of requests for blocks.
pub const FIELDS: &[Field] = &[
    honoured("fingerprint", "of the asking server's weights, KV format and block size"),
    honoured("blocks", "names of blocks: a hash in hexadecimal, `-` and a layer group"),
];

/// Fields of a request to compute a prompt.
pub const PREFILL_FIELDS: &[Field] = &[
    honoured("fingerprint", "of the asking server's weights, KV format and block size"),
    honoured("tokens", "the prompt's tokens, in full blocks"),
    honoured("cache_salt", "what the blocks' hashes begin with, as 32 hexadecimal digits"),
];

/// A prompt that another replica requests to be computed.
#[derive(Debug, PartialEq, Eq)]
pub struct Prefill {
    /// Of the other replica.
    pub fingerprint: String,
    /// The tokens.
    pub tokens: Vec<u32>,
    /// What the blocks' hashes begin with.
    pub cache_salt: u128,
}

impl Prefill {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::open(body, "", &[PREFILL_FIELDS])?;
        let fingerprint = fields.text("fingerprint")?;
        let fingerprint = fields.required("fingerprint", fingerprint)?;
        let tokens = fields.list("tokens")?;
        let tokens = fields.required("tokens", tokens)?;
        let tokens = tokens.iter().enumerate().map(|(at, token)| {
            let number = token.as_u64().and_then(|number| u32::try_from(number).ok());
            number.ok_or_else(|| type_error(&format!("tokens[{at}]"), "a token id", token))
        });
        let tokens = tokens.collect::<Result<_, _>>()?;
        let salt = fields.text("cache_salt")?;
        let salt = fields.required("cache_salt", salt)?;
        let digits = salt.len() == 32 && salt.bytes().all(|byte| byte.is_ascii_hexdigit());
        let cache_salt = u128::from_str_radix(&salt, 16).ok().filter(|_| digits).ok_or_else(|| {
            ApiError::invalid("cache_salt", "`cache_salt` must be 32 hexadecimal digits".to_owned())
        })?;
        fields.finish();
        Ok(Self { fingerprint, tokens, cache_salt })
    }
}

/// Reads a request for blocks.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_prompt_of_a_replica_is_read() {
        let body =
            json!({"fingerprint": "f", "tokens": [1, 4_294_967_295_u32], "cache_salt": "0".repeat(31) + "a"});
        let prefill = Prefill { fingerprint: "f".to_owned(), tokens: vec![1, u32::MAX], cache_salt: 10 };
        assert_eq!(Prefill::read(body).ok(), Some(prefill));
    }

    #[test]
    fn a_wrong_field_of_a_prompt_is_named() {
        let salt = "0".repeat(32);
        for (field, value) in [
            ("tokens", json!(5)),
            ("tokens[1]", json!([1, -1])),
            ("tokens[0]", json!([4_294_967_296_u64])),
            ("cache_salt", json!("0")),
            ("cache_salt", json!("+".to_owned() + &salt[1..])),
            ("fingerprint", json!(null)),
        ] {
            let mut body = json!({"fingerprint": "f", "tokens": [1], "cache_salt": salt});
            let name = field.split('[').next().unwrap();
            body[name] = value;
            let refused = Prefill::read(body).map_err(|error| error.param().map(str::to_owned));
            assert_eq!(refused, Err(Some(field.to_owned())));
        }
    }
}
