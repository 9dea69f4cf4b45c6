//! The reading thread.

use std::fs::File;
use std::sync::mpsc::Receiver;
use std::time::{Instant, SystemTime};

use super::file::{self, ReadError};
use super::{BlockData, BlockName, ReadResult, Shared};

/// Reads the leading valid blocks of each request.
pub(super) fn run(
    shared: &Shared,
    requests: &Receiver<Vec<BlockName>>,
    on_read: &mut impl FnMut(ReadResult),
) {
    for names in requests.iter() {
        let started = Instant::now();
        let blocks: Vec<BlockData> = names
            .into_iter()
            .map_while(|name| Some(BlockData { name, bytes: read(shared, name)?.into() }))
            .collect();
        shared.count(|stats| stats.read_blocks_total += blocks.len() as u64);
        on_read(ReadResult { blocks, took: started.elapsed() });
    }
}

fn read(shared: &Shared, name: BlockName) -> Option<Vec<u8>> {
    let block_bytes = shared.bytes_of(name)?;
    let path = shared.path_of(name);
    let full = shared.root.join(&path);
    match shared.files.read(&full, &shared.fingerprint, name, block_bytes) {
        Ok(bytes) => {
            let now = SystemTime::now();
            // The file's modification time keeps the order of use over a restart; it is not essential.
            let _not_essential =
                File::options().append(true).open(&full).and_then(|file| file.set_modified(now));
            shared.index().add(path, file::bytes_on_disk(block_bytes), now);
            Some(bytes)
        }
        Err(ReadError::Missing) => {
            shared.index().remove(&path);
            None
        }
        Err(ReadError::Invalid(why)) => {
            shared.reject(&path, why);
            None
        }
    }
}
