//! Checksums of a repository's files: SHA-256 of large ones, git's SHA-1 of others.

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// What a file's content hashes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Checksum {
    /// Of files in large file storage.
    Sha256(String),
    /// Of git's blobs.
    Git(String),
    /// The hub did not say.
    Unknown,
}

/// Hashes a file piece by piece.
pub(crate) enum Hasher {
    Sha256(Sha256),
    Git(Sha1),
    None,
}

impl Checksum {
    /// The name of the file's blob in the cache, which is huggingface_hub's: the checksum.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Sha256(text) | Self::Git(text) => Some(text),
            Self::Unknown => None,
        }
    }

    /// A hasher of a file with so many bytes.
    pub(crate) fn hasher(&self, bytes: u64) -> Hasher {
        match self {
            Self::Sha256(_) => Hasher::Sha256(Sha256::new()),
            Self::Git(_) => Hasher::Git(Sha1::new_with_prefix(format!("blob {bytes}\0"))),
            Self::Unknown => Hasher::None,
        }
    }
}

impl Hasher {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Git(hasher) => hasher.update(bytes),
            Self::None => {}
        }
    }

    /// Whether what was added is what the checksum is of.
    pub(crate) fn is(self, checksum: &Checksum) -> bool {
        let found = match self {
            Self::Sha256(hasher) => hex(&hasher.finalize()),
            Self::Git(hasher) => hex(&hasher.finalize()),
            Self::None => return true,
        };
        checksum.text() == Some(found.as_str())
    }
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_checksum_of_a_blob_is_gits() {
    let checksum = Checksum::Git("ce013625030ba8dba906f756967f9e9ca394464a".to_owned());
    let mut hasher = checksum.hasher(6);
    hasher.add(b"hello\n");
    assert!(hasher.is(&checksum));
}
