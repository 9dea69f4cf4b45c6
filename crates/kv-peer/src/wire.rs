//! The bodies of requests for blocks and of a prompt to compute, and their answers.

use serde::{Deserialize, Serialize};

use crate::block::{BlockName, Fingerprint};

/// The route that answers which blocks a server has.
pub const LOOKUP_PATH: &str = "/v1/kv/lookup";
/// The route that answers with blocks.
pub const READ_PATH: &str = "/v1/kv/blocks";
/// The route that computes a prompt, so that its blocks can be read.
pub const PREFILL_PATH: &str = "/v1/kv/prefill";
/// Most names in a request.
pub const NAMES_MAX: usize = 16_384;

/// A request for blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRequest {
    /// [`Fingerprint::long`] of the asking server: blocks of another one are of no use.
    pub fingerprint: String,
    /// The blocks: `<hash in hexadecimal>-<layer group>`.
    pub blocks: Vec<String>,
}

/// The answer to a lookup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundBlocks {
    /// Places in the request's list of the blocks that the server has, rising.
    pub found: Vec<usize>,
}

/// A prompt to compute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefillRequest {
    /// [`Fingerprint::long`] of the asking server.
    pub fingerprint: String,
    /// The tokens of the prompt's full blocks.
    pub tokens: Vec<u32>,
    /// What the blocks' hashes begin with besides tokens, as 32 hexadecimal digits.
    pub cache_salt: String,
}

/// What was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefillAnswer {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of it that were cached before.
    pub cached_tokens: usize,
}

/// What is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The list is too long.
    #[error("`blocks` has {0} names; at most {NAMES_MAX} are accepted")]
    TooMany(usize),
    /// A name is none.
    #[error("`blocks[{0}]` must be a hash of 32 hexadecimal digits, `-` and a layer group")]
    NotAName(usize),
}

impl BlockRequest {
    /// A request for these blocks.
    pub fn new(fingerprint: &Fingerprint, names: &[BlockName]) -> Self {
        Self { fingerprint: fingerprint.long(), blocks: names.iter().map(BlockName::to_string).collect() }
    }

    /// The names.
    pub fn names(&self) -> Result<Vec<BlockName>, WireError> {
        if self.blocks.len() > NAMES_MAX {
            return Err(WireError::TooMany(self.blocks.len()));
        }
        let names = self.blocks.iter().enumerate();
        names.map(|(at, name)| BlockName::parse(name).ok_or(WireError::NotAName(at))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_name_what_is_wrong() {
        let names = [BlockName { group: 0, key: 1 }, BlockName { group: 1, key: u128::MAX }];
        let request = BlockRequest::new(&Fingerprint([1; 32]), &names);
        assert_eq!(request.names(), Ok(names.to_vec()));
        let wrong =
            BlockRequest { blocks: vec![request.blocks[0].clone(), "x".to_owned()], ..request.clone() };
        assert_eq!(wrong.names(), Err(WireError::NotAName(1)));
        let long = BlockRequest { blocks: vec![request.blocks[0].clone(); NAMES_MAX + 1], ..request };
        assert_eq!(long.names(), Err(WireError::TooMany(NAMES_MAX + 1)));
    }
}
