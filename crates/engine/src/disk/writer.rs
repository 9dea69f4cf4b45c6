//! The writing thread.

use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime};

use super::{BlockData, Shared, file};
use crate::fault::Kind;

/// Pause after a failed write.
const PAUSE: Duration = Duration::from_secs(10);

/// Writes blocks until the channel closes.
pub(super) fn run(shared: &Shared, blocks: &Receiver<BlockData>) {
    let mut paused_until: Option<Instant> = None;
    for (number, block) in blocks.iter().enumerate() {
        let written = match paused_until {
            Some(until) if Instant::now() < until => Written::Dropped,
            _ => write(shared, number as u64, &block),
        };
        match written {
            Written::Yes => shared.count(|stats| stats.written_blocks_total += 1),
            Written::Dropped => shared.count(|stats| stats.dropped_blocks_total += 1),
            Written::Failed => {
                paused_until = Some(Instant::now() + PAUSE);
                shared.count(|stats| stats.dropped_blocks_total += 1);
            }
        }
        shared.queued.fetch_sub(1, Ordering::Relaxed);
    }
}

enum Written {
    Yes,
    Dropped,
    Failed,
}

/// `number`: how many blocks came before.
fn write(shared: &Shared, number: u64, BlockData { name, bytes }: &BlockData) -> Written {
    let (path, size) = (shared.path_of(*name), file::bytes_on_disk(bytes.len()));
    if !shared.index().could_hold(size) {
        return Written::Dropped;
    }
    shared.make_room(size);
    let placed = match shared.faults.of_disk(Kind::DiskFull, number) {
        true => Err(std::io::ErrorKind::StorageFull.into()),
        false => file::write(&shared.root.join(&path), &shared.fingerprint, *name, bytes),
    };
    match placed {
        Ok(()) => {
            shared.index().add(path, size, SystemTime::now());
            Written::Yes
        }
        Err(error) => {
            let file = shared.root.join(path);
            tracing::warn!(file = %file.display(), %error, "a block could not be written; pausing");
            Written::Failed
        }
    }
}
