//! One block per file: a header that identifies it, and the block's bytes.
//!
//! Invariant: a file is complete or absent, because it is written under a temporary name and renamed; and it is used only
//! if every byte is as written, for this model, this format and this key.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use omnibus_kv_peer::{BlockHeader, Fingerprint, HEADER_BYTES, Mismatch};

use super::BlockName;

/// Extension of a block's file.
pub(super) const EXTENSION: &str = "kv";
/// Extension of a file that is being written.
pub(super) const TEMPORARY: &str = "tmp";

/// Reads and writes block files.
pub(super) trait BlockFiles: Send + Sync {
    /// Writes a block's file.
    fn write(&self, path: &Path, of: &Fingerprint, name: BlockName, bytes: &[u8]) -> std::io::Result<()>;

    /// Reads a block of exactly `block_bytes` bytes, and checks it.
    fn read(
        &self,
        path: &Path,
        of: &Fingerprint,
        name: BlockName,
        block_bytes: usize,
    ) -> Result<Vec<u8>, ReadError>;
}

/// Block files in a folder.
pub(super) struct FolderFiles;

impl BlockFiles for FolderFiles {
    fn write(&self, path: &Path, of: &Fingerprint, name: BlockName, bytes: &[u8]) -> std::io::Result<()> {
        write(path, of, name, bytes)
    }

    fn read(
        &self,
        path: &Path,
        of: &Fingerprint,
        name: BlockName,
        block_bytes: usize,
    ) -> Result<Vec<u8>, ReadError> {
        read(path, of, name, block_bytes)
    }
}

/// Writes a block under a temporary name and renames it.
fn write(path: &Path, fingerprint: &Fingerprint, name: BlockName, bytes: &[u8]) -> std::io::Result<()> {
    let temporary = path.with_extension(format!("{}.{TEMPORARY}", std::process::id()));
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(BlockHeader::of(fingerprint, name, bytes).bytes())?;
        file.write_all(bytes)
    });
    let placed = written.and_then(|()| std::fs::rename(&temporary, path));
    if placed.is_err() {
        let _may_not_be_there = std::fs::remove_file(&temporary);
    }
    placed
}

/// File size for a block of `block_bytes` bytes.
pub(super) fn bytes_on_disk(block_bytes: usize) -> u64 {
    (HEADER_BYTES + block_bytes) as u64
}

/// Bytes of the block in a file of this size.
pub(super) fn content_bytes(file_bytes: u64) -> Option<usize> {
    usize::try_from(file_bytes).ok()?.checked_sub(HEADER_BYTES)
}

/// Why a block could not be read.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The file is missing or unreadable.
    Missing,
    /// Its content is invalid.
    Invalid(&'static str),
}

/// Reads a block of exactly `block_bytes` bytes, and checks it.
fn read(
    path: &Path,
    fingerprint: &Fingerprint,
    name: BlockName,
    block_bytes: usize,
) -> Result<Vec<u8>, ReadError> {
    let missing = |_: std::io::Error| ReadError::Missing;
    let mut file = File::open(path).map_err(missing)?;
    let length = file.metadata().map_err(missing)?.len();
    if length != bytes_on_disk(block_bytes) {
        return Err(ReadError::Invalid("it is truncated, or of another size"));
    }
    let (mut found, mut bytes) = ([0; HEADER_BYTES], Vec::with_capacity(block_bytes));
    file.read_exact(&mut found).map_err(missing)?;
    file.take(block_bytes as u64).read_to_end(&mut bytes).map_err(missing)?;
    match BlockHeader::read(found).check(fingerprint, name, &bytes) {
        Ok(()) => Ok(bytes),
        Err(Mismatch::Damaged) => Err(ReadError::Invalid("its checksum does not fit")),
        Err(Mismatch::Foreign) => Err(ReadError::Invalid("it belongs to another model or format")),
    }
}
