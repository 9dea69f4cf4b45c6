//! The name of a block, and the header that identifies its bytes, in a file of the disk cache and on a connection.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// Changes with the header and with the order of bytes in a block.
const MAGIC: &[u8; 8] = b"OMNIKV02";
/// Magic, fingerprint, key and group.
const NAME_BYTES: usize = 8 + 32 + 16 + 4;
/// Bytes of a header.
pub const HEADER_BYTES: usize = NAME_BYTES + 8 + 16;

/// Identifies a block: its layer group, and the key of its content: the hash of its tokens, of all tokens before them and of
/// the tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BlockName {
    /// The layer group.
    pub group: u32,
    /// The hash.
    pub key: u128,
}

impl BlockName {
    /// Reads what [`Self`] is written as: `<key in hexadecimal>-<group>`.
    pub fn parse(text: &str) -> Option<Self> {
        let (key, group) = text.split_once('-')?;
        let is_hexadecimal = key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        let key = is_hexadecimal.then(|| u128::from_str_radix(key, 16).ok()).flatten()?;
        Some(Self { group: group.parse().ok()?, key })
    }
}

impl std::fmt::Display for BlockName {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{:032x}-{}", self.key, self.group)
    }
}

/// Identifies everything that a block's content depends on besides its key: weights, the format of keys and values and the
/// block size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Its first half, in hexadecimal: the name of the model's folder in a disk cache.
    pub fn short(&self) -> String {
        self.0[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// All of it, in hexadecimal.
    pub fn long(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// What stands before a block's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader([u8; HEADER_BYTES]);

/// Why bytes are not the block that was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Bytes were changed.
    #[error("its checksum does not fit")]
    Damaged,
    /// Another name, another model or another format.
    #[error("it belongs to another model or format")]
    Foreign,
}

impl BlockHeader {
    /// Magic, fingerprint, key, group, length, and the checksum of all of it and the bytes.
    ///
    /// The checksum guards against damage, not against forgery: who can write these bytes can read the weights, too.
    pub fn of(fingerprint: &Fingerprint, name: BlockName, bytes: &[u8]) -> Self {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend(MAGIC);
        header.extend(fingerprint.0);
        header.extend(name.key.to_le_bytes());
        header.extend(name.group.to_le_bytes());
        header.extend((bytes.len() as u64).to_le_bytes());
        let mut checksum = Xxh3::new();
        checksum.update(&header);
        checksum.update(bytes);
        header.extend(checksum.digest128().to_le_bytes());
        let mut fixed = [0; HEADER_BYTES];
        fixed.copy_from_slice(&header);
        Self(fixed)
    }

    /// A header as it was read, of whatever.
    pub fn read(bytes: [u8; HEADER_BYTES]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; HEADER_BYTES] {
        &self.0
    }

    /// The name of its block.
    pub fn name(&self) -> BlockName {
        let (mut key, mut group) = ([0; 16], [0; 4]);
        key.copy_from_slice(&self.0[40..56]);
        group.copy_from_slice(&self.0[56..60]);
        BlockName { group: u32::from_le_bytes(group), key: u128::from_le_bytes(key) }
    }

    /// Whether it stands before these bytes of this block.
    pub fn check(&self, fingerprint: &Fingerprint, name: BlockName, bytes: &[u8]) -> Result<(), Mismatch> {
        let expected = Self::of(fingerprint, name, bytes);
        match *self == expected {
            true => Ok(()),
            false if self.0[..NAME_BYTES] == expected.0[..NAME_BYTES] => Err(Mismatch::Damaged),
            false => Err(Mismatch::Foreign),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        let name = BlockName { group: 3, key: 0xa0 };
        assert_eq!(name.to_string(), "000000000000000000000000000000a0-3");
        assert_eq!(BlockName::parse(&name.to_string()), Some(name));
        for wrong in ["", "a0-3", "000000000000000000000000000000a0", "000000000000000000000000000000a0-x"] {
            assert_eq!(BlockName::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_header_fits_its_own_block_alone() {
        let (model, name) = (Fingerprint([7; 32]), BlockName { group: 1, key: 5 });
        let header = BlockHeader::of(&model, name, b"keys");
        assert_eq!(header.name(), name);
        assert_eq!(header.check(&model, name, b"keys"), Ok(()));
        assert_eq!(header.check(&model, name, b"kezs"), Err(Mismatch::Damaged));
        assert_eq!(header.check(&Fingerprint([8; 32]), name, b"keys"), Err(Mismatch::Foreign));
        assert_eq!(header.check(&model, BlockName { group: 2, key: 5 }, b"keys"), Err(Mismatch::Foreign));
    }
}
