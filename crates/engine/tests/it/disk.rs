//! Blocks cached on disk are found after a restart.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

use crate::common;
use crate::common::{complete, run};
use omnibus_engine::{DiskSettings, Handle, Input, Request, Settings};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("omnibus-engine-{}-{name}", std::process::id()));
        let _not_there = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn engine(&self) -> Handle {
        self.engine_with("")
    }

    fn engine_with(&self, faults: &str) -> Handle {
        let disk = DiskSettings { directory: self.0.clone(), ..DiskSettings::default() };
        let faults = faults.parse().unwrap();
        common::engine(Settings { disk: Some(disk), block_size: 16, faults, ..Settings::default() })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

fn long(id: &str) -> Request {
    let mut request = complete(id, "", 12);
    request.input = Input::Tokens((0..300).map(|at| 5 + at * 7 % 1000).collect());
    request
}

/// Requests with and without a shared prefix.
fn requests() -> Vec<Request> {
    let request = |i: usize| {
        let mut request = long(&format!("r{i}"));
        let tokens = (0..200 + 10 * i).map(|at| (5 + at * (7 + 2 * (i % 3)) % 1000) as u32).collect();
        request.input = Input::Tokens(tokens);
        request
    };
    (0..6).map(request).collect()
}

fn texts(engine: &Handle) -> Vec<String> {
    let streams: Vec<_> = requests().into_iter().map(|request| engine.submit(request).unwrap()).collect();
    streams.into_iter().map(|stream| common::wait_for(stream).text).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

#[test]
fn a_restarted_engine_reads_cached_blocks_and_gives_the_same_output() {
    let folder = Folder::new("restart");
    let cold = run(&folder.engine(), long("cold"));
    assert_eq!(cold.usage.cached_tokens, 0);
    assert!(files(&folder.0).len() >= 18, "300 tokens are 18 blocks of 16");
    let engine = folder.engine();
    let warm = run(&engine, long("warm"));
    assert_eq!((warm.usage.cached_tokens, warm.text), (288, cold.text));
    assert_eq!(engine.stats().disk.read_blocks_total, 18);
    let warmer = run(&engine, long("warmer"));
    assert!(warmer.usage.cached_tokens >= 288);
    assert_eq!(engine.stats().disk.read_blocks_total, 18, "the second time it is in memory");
}

#[test]
fn a_damaged_file_costs_only_its_own_block() {
    let folder = Folder::new("damage");
    let cold = run(&folder.engine(), long("cold"));
    let files = files(&folder.0);
    for file in files.iter().step_by(3) {
        let mut bytes = std::fs::read(file).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(file, bytes).unwrap();
    }
    let engine = folder.engine();
    let warm = run(&engine, long("warm"));
    assert_eq!(warm.text, cold.text);
    assert!(warm.usage.cached_tokens < 288, "{:?}", warm.usage);
    assert!(engine.stats().disk.rejected_files_total >= 1);
}

#[test]
fn a_directory_that_cannot_be_created_is_one_line_of_error() {
    let folder = Folder::new("file");
    std::fs::write(&folder.0, b"not a directory").unwrap();
    let disk = DiskSettings { directory: folder.0.clone(), ..DiskSettings::default() };
    let error = common::try_engine(Settings { disk: Some(disk), ..Settings::default() }).err().unwrap();
    assert!(error.to_string().starts_with("--cache-dir "), "{error}");
    std::fs::remove_file(&folder.0).unwrap();
}

#[test]
fn a_full_disk_changes_no_output_and_is_counted() {
    let folder = Folder::new("full");
    let expected = texts(&common::engine(Settings { block_size: 16, ..Settings::default() }));
    let engine = folder.engine_with("disk-full@step=3");
    assert_eq!(texts(&engine), expected);
    assert_eq!(texts(&engine), expected, "from memory");
    while engine.stats().disk.dropped_blocks_total == 0 {
        // Writes finished while the engine was idle are reported a little later.
        run(&engine, complete("later", "The bus", 2));
    }
    assert_eq!(engine.stats().disk.written_blocks_total, 3, "writing pauses after a failure");
    drop(engine);
    assert_eq!(files(&folder.0).len(), 3, "no temporary file is left");
    assert_eq!(texts(&folder.engine()), expected, "from the blocks that were written");
}

#[test]
fn a_dead_reading_thread_changes_no_output() {
    let folder = Folder::new("reader");
    let expected = texts(&folder.engine());
    for read in [0, 2] {
        let engine = folder.engine_with(&format!("disk-reader@step={read}"));
        assert_eq!(texts(&engine), expected, "dead at read {read}");
        assert_eq!(run(&engine, long("later")).text, run(&engine, long("again")).text);
        let stats = engine.stats();
        assert_eq!(
            (stats.scheduler.queued, stats.scheduler.running, stats.scheduler.blocks().used),
            (0, 0, 0),
            "{stats:?}"
        );
    }
}
