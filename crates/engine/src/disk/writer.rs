//! The writing thread.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime};

use super::{Loaded, Shared, file};

/// After a disk refused a block, it is left alone for so long.
const PAUSE: Duration = Duration::from_secs(10);

/// Writes what comes until nobody is left to send.
pub(super) fn run(shared: &Shared, blocks: &Receiver<Loaded>) {
    let mut paused_until: Option<Instant> = None;
    for Loaded { name, bytes } in blocks {
        if paused_until.is_some_and(|until| Instant::now() < until) {
            shared.count(|stats| stats.dropped_blocks_total += 1);
            continue;
        }
        let (path, size) = (shared.path_of(name), file::bytes_on_disk(bytes.len()));
        if !shared.index().could_hold(size) {
            shared.count(|stats| stats.dropped_blocks_total += 1);
            continue;
        }
        shared.make_room(size);
        match file::write(&shared.root.join(&path), &shared.fingerprint, name, &bytes) {
            Ok(()) => {
                paused_until = None;
                shared.index().add(path, size, SystemTime::now());
                shared.count(|stats| stats.written_blocks_total += 1);
            }
            Err(error) => {
                let file = shared.root.join(path);
                tracing::warn!(file = %file.display(), %error, "a block could not be written; pausing");
                paused_until = Some(Instant::now() + PAUSE);
                shared.count(|stats| stats.dropped_blocks_total += 1);
            }
        }
    }
}
