//! The reading thread.

use std::fs::File;
use std::sync::mpsc::Receiver;
use std::time::{Instant, SystemTime};

use super::file::{self, Unread};
use super::{Answer, BlockName, Loaded, Shared};
use crate::fault::{Kind, panic_on_order};

/// Answers each question with the leading blocks that are there and sound.
pub(super) fn run(shared: &Shared, questions: &Receiver<Vec<BlockName>>, tell: &mut impl FnMut(Answer)) {
    for (number, names) in questions.iter().enumerate() {
        if shared.faults.of_disk(Kind::DiskReader, number as u64) {
            panic_on_order();
        }
        let started = Instant::now();
        let blocks: Vec<Loaded> =
            names.into_iter().map_while(|name| Some(Loaded { name, bytes: read(shared, name)? })).collect();
        shared.count(|stats| stats.read_blocks_total += blocks.len() as u64);
        tell(Answer { blocks, took: started.elapsed() });
    }
}

fn read(shared: &Shared, name: BlockName) -> Option<Vec<u8>> {
    let block_bytes = *shared.block_bytes.get(name.group as usize)?;
    let path = shared.path_of(name);
    let full = shared.root.join(&path);
    match file::read(&full, &shared.fingerprint, name, block_bytes) {
        Ok(bytes) => {
            let now = SystemTime::now();
            // The time of use survives a restart in the file's own time; a disk that refuses that loses only order.
            let _order_lost =
                File::options().append(true).open(&full).and_then(|file| file.set_modified(now));
            shared.index().add(path, file::bytes_on_disk(block_bytes), now);
            Some(bytes)
        }
        Err(Unread::Absent) => {
            shared.index().forget(&path);
            None
        }
        Err(Unread::Wrong(why)) => {
            shared.reject(&path, why);
            None
        }
    }
}
