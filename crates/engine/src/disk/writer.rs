//! The writing thread.

use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime};

use super::{BlockData, Shared, file};

/// Pause after a failed write.
const PAUSE: Duration = Duration::from_secs(10);

/// Writes blocks until the channel closes.
pub(super) fn run(shared: &Shared, blocks: &Receiver<BlockData>) {
    let mut paused_until: Option<Instant> = None;
    for block in blocks.iter() {
        let written = match paused_until {
            Some(until) if Instant::now() < until => Written::Dropped,
            _ => write(shared, &block),
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

fn write(shared: &Shared, BlockData { name, bytes }: &BlockData) -> Written {
    let (path, size) = (shared.path_of(*name), file::bytes_on_disk(bytes.len()));
    if !shared.index().could_hold(size) {
        return Written::Dropped;
    }
    shared.make_room(size);
    match shared.files.write(&shared.root.join(&path), &shared.fingerprint, *name, bytes) {
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
