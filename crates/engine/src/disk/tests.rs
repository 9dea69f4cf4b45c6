//! What is read is what was written, or nothing.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};

use super::*;

const BYTES: usize = 1000;

struct World {
    directory: PathBuf,
    limit_bytes: u64,
}

impl World {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("omnibus-disk-{}-{name}", std::process::id()));
        let _not_there = fs::remove_dir_all(&directory);
        Self { directory, limit_bytes: 1 << 20 }
    }

    fn open(&self) -> (Disk, Receiver<ReadResult>) {
        self.open_as([7; 32])
    }

    fn open_as(&self, fingerprint: [u8; 32]) -> (Disk, Receiver<ReadResult>) {
        let (results_tx, results) = channel();
        (self.open_with(fingerprint, move |answer| results_tx.send(answer).unwrap()), results)
    }

    fn open_with(&self, fingerprint: [u8; 32], results_tx: impl FnMut(ReadResult) + Send + 'static) -> Disk {
        let settings = DiskSettings { directory: self.directory.clone(), limit_bytes: self.limit_bytes };
        let sizes = BlockSizes::OfGroups(vec![BYTES]);
        let fingerprint = Fingerprint(fingerprint);
        Disk::open(&settings, "kv", fingerprint, sizes, &FaultPlan::default(), results_tx).unwrap()
    }

    fn files(&self) -> Vec<PathBuf> {
        let folders = fs::read_dir(self.directory.join("kv")).unwrap();
        let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
        let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        files
    }

    /// Writes these blocks and waits until they are there.
    fn write(&self, keys: impl IntoIterator<Item = u128>) {
        let (disk, _reports) = self.open();
        keys.into_iter().for_each(|key| disk.put(name(key), content(key).into()));
    }

    fn read(&self, keys: &[u128]) -> (Vec<u128>, DiskStats) {
        let (disk, results) = self.open();
        disk.fetch(keys.iter().map(|key| name(*key)).collect()).unwrap();
        let found = results.recv().unwrap().blocks;
        assert!(found.iter().all(|block| block.bytes == content(block.name.key)));
        (found.iter().map(|block| block.name.key).collect(), disk.stats())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.directory);
    }
}

fn name(key: u128) -> BlockName {
    BlockName { group: 0, key }
}

fn content(key: u128) -> Vec<u8> {
    (0..BYTES).map(|at| (at as u128 * 31 + key * 7) as u8).collect()
}

#[test]
fn what_was_written_is_there_after_a_restart() {
    let world = World::new("restart");
    world.write([1, 2, 3]);
    assert_eq!(world.read(&[1, 2, 3]).0, [1, 2, 3]);
    assert_eq!(world.read(&[1, 9, 3]).0, [1], "what follows a gap is of no use");
}

#[test]
fn every_damaged_byte_is_noticed_and_the_file_removed() {
    let world = World::new("damage");
    world.write([1]);
    let file = world.files().remove(0);
    let whole = fs::read(&file).unwrap();
    for at in 0..whole.len() {
        let mut broken = whole.clone();
        broken[at] ^= 0x40;
        fs::write(&file, broken).unwrap();
        let (found, stats) = world.read(&[1]);
        assert_eq!((found.len(), stats.rejected_files_total), (0, 1), "byte {at}");
        assert!(!file.exists(), "byte {at}");
    }
}

#[test]
fn a_file_cut_short_grown_or_empty_is_removed() {
    let world = World::new("cut");
    world.write([1]);
    let file = world.files().remove(0);
    let whole = fs::read(&file).unwrap();
    for length in [0, 1, 50, whole.len() - 1, whole.len() + 1] {
        let mut broken = whole.clone();
        broken.resize(length, 0);
        fs::write(&file, broken).unwrap();
        assert!(world.read(&[1]).0.is_empty(), "{length} bytes");
        assert!(!file.exists(), "{length} bytes");
    }
}

#[test]
fn another_models_blocks_are_not_found_and_not_touched() {
    let world = World::new("foreign");
    world.write([1]);
    let (disk, results) = world.open_as([8; 32]);
    disk.fetch(vec![name(1)]).unwrap();
    assert!(results.recv().unwrap().blocks.is_empty());
    drop(disk);
    assert_eq!(world.read(&[1]).0, [1]);
}

#[test]
fn a_block_under_a_wrong_name_is_removed() {
    let world = World::new("renamed");
    world.write([1, 2]);
    let files = world.files();
    fs::rename(&files[0], &files[1]).unwrap();
    assert!(world.read(&[2]).0.is_empty());
    assert!(world.files().is_empty());
}

#[test]
fn the_limit_holds_and_what_was_used_last_stays() {
    let mut world = World::new("limit");
    world.write(0..8);
    assert_eq!(world.files().len(), 8);
    assert_eq!(world.read(&[0]).0, [0]);
    world.limit_bytes = 3 * file::bytes_on_disk(BYTES);
    world.write([8]);
    assert_eq!(world.files().len(), 3);
    assert_eq!((world.read(&[8]).0, world.read(&[0]).0), (vec![8], vec![0]), "used last");
}

#[test]
fn what_a_killed_writer_left_is_removed() {
    let world = World::new("killed");
    world.write([1]);
    let dead = world.files()[0].with_extension("4294967294.tmp");
    fs::write(&dead, b"half").unwrap();
    drop(world.open());
    assert!(!dead.exists());
    assert_eq!(world.files().len(), 1);
}

#[test]
fn a_full_disk_costs_the_block_and_nothing_else() {
    let world = World::new("full");
    let (disk, results) = world.open();
    // A folder that cannot be written to stands in for a disk that is full.
    let folder = world.directory.join("kv").join(Fingerprint([7; 32]).short());
    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, b"in the way").unwrap();
    disk.put(name(1), content(1).into());
    disk.fetch(vec![name(1)]).unwrap();
    assert!(results.recv().unwrap().blocks.is_empty());
    let shared = Arc::clone(&disk.shared);
    drop(disk);
    let stats = *shared.stats.lock().unwrap();
    assert_eq!((stats.written_blocks_total, stats.dropped_blocks_total), (0, 1));
}

#[cfg(unix)]
#[test]
fn what_was_said_is_for_no_other_user_to_read() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new("private");
    drop(world.open());
    let folder = world.directory.join("kv").join(Fingerprint([7; 32]).short());
    for made in [&world.directory, &world.directory.join("kv"), &folder] {
        assert_eq!(fs::metadata(made).unwrap().permissions().mode() & 0o777, 0o700, "{}", made.display());
    }
}

#[test]
fn the_end_does_not_wait_for_a_reader_that_hangs() {
    let world = World::new("hanging");
    let (begun, begins) = channel();
    let (release, held) = channel::<()>();
    let disk = world.open_with([7; 32], move |_| {
        begun.send(()).unwrap();
        let _until_the_test_is_over = held.recv();
    });
    disk.fetch(vec![name(1)]).unwrap();
    begins.recv().unwrap();
    disk.put(name(2), content(2).into());
    drop(disk);
    assert_eq!(world.files().len(), 1, "what waited to be written was");
    drop(release);
}
