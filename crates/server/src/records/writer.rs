//! Writes records, on a thread of its own.
//!
//! Invariant: a file is complete or absent. What waits to be written is bounded, and so is the folder.

use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::passing::Passed;
use super::{Exchange, Record};

/// Most records that wait to be written.
const WAITING_MAX: usize = 256;
/// Most bytes of answers that wait to be written.
const WAITING_BYTES_MAX: usize = 256 << 20;

/// Writes records.
pub struct Writer {
    queue: SyncSender<Work>,
    waiting_bytes: Arc<AtomicUsize>,
}

enum Work {
    Write(Box<(Exchange, Passed, f64)>),
    Flush(SyncSender<()>),
}

impl Writer {
    /// Starts a writer for a folder.
    pub fn start(folder: &Path, most_bytes: u64) -> io::Result<Self> {
        let folder = Folder::open(folder, most_bytes)?;
        let (queue, work) = sync_channel(WAITING_MAX);
        let waiting_bytes = Arc::<AtomicUsize>::default();
        let taken = Arc::clone(&waiting_bytes);
        std::thread::Builder::new().name("records".to_owned()).spawn(move || run(&work, folder, &taken))?;
        Ok(Self { queue, waiting_bytes })
    }

    /// Hands over a request and its answer. One that has no room is left out.
    pub fn write(&self, exchange: Exchange, answered: Passed) {
        let total_s = exchange.since.elapsed().as_secs_f64();
        let size = answered.size();
        let waiting = self.waiting_bytes.fetch_add(size, Ordering::Relaxed);
        let work = Work::Write(Box::new((exchange, answered, total_s)));
        if waiting + size > WAITING_BYTES_MAX || self.queue.try_send(work).is_err() {
            self.waiting_bytes.fetch_sub(size, Ordering::Relaxed);
            tracing::warn!("a request is not recorded: too many wait to be written");
        }
    }

    /// Waits until what was handed over so far is written.
    pub fn flush(&self) {
        let (done, written) = sync_channel(1);
        if self.queue.send(Work::Flush(done)).is_ok() {
            // The writer has ended when there is no answer.
            _ = written.recv();
        }
    }
}

fn run(work: &Receiver<Work>, mut folder: Folder, waiting_bytes: &AtomicUsize) {
    for work in work {
        match work {
            Work::Write(exchange) => {
                let (exchange, answered, total_s) = *exchange;
                let record = Record::of(exchange, &answered, total_s);
                waiting_bytes.fetch_sub(answered.size(), Ordering::Relaxed);
                if let Err(error) = folder.write(&record) {
                    tracing::warn!(%error, path = %folder.path.display(), "a record was not written");
                }
            }
            Work::Flush(done) => _ = done.send(()),
        }
    }
}

/// A folder of records, the oldest of which are removed when it is full.
struct Folder {
    path: PathBuf,
    most_bytes: u64,
    /// The files and their sizes, oldest first.
    files: VecDeque<(PathBuf, u64)>,
    bytes: u64,
    written: u64,
}

impl Folder {
    fn open(path: &Path, most_bytes: u64) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let mut files = Vec::new();
        for entry in fs::read_dir(path)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let bytes = path.metadata()?.len();
                files.push((path, bytes));
            }
        }
        files.sort();
        let bytes = files.iter().map(|(_, bytes)| bytes).sum();
        Ok(Self { path: path.to_owned(), most_bytes, files: files.into(), bytes, written: 0 })
    }

    fn write(&mut self, record: &Record) -> io::Result<()> {
        let text = serde_json::to_vec(record)?;
        let name = format!("{:014}-{:06}", record.time_ms, self.written);
        self.written += 1;
        let path = self.path.join(name).with_extension("json");
        let part = path.with_extension("part");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        private(&mut options);
        let written = options.open(&part).and_then(|mut file| file.write_all(&text));
        if let Err(error) = written.and_then(|()| fs::rename(&part, &path)) {
            // On a full disk it has a part of the text.
            _ = fs::remove_file(&part);
            return Err(error);
        }
        self.bytes += text.len() as u64;
        self.files.push_back((path, text.len() as u64));
        while self.bytes > self.most_bytes
            && let Some((oldest, bytes)) = self.files.pop_front()
        {
            self.bytes -= bytes;
            match fs::remove_file(oldest) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                // The user may have removed it.
                _ => {}
            }
        }
        Ok(())
    }
}

/// Prompts are the users' own.
#[cfg(unix)]
fn private(options: &mut OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt as _;
    options.mode(0o600);
}

#[cfg(not(unix))]
fn private(_options: &mut OpenOptions) {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::records::RecordedAnswer;

    fn record(time_ms: u64) -> Record {
        let answer = RecordedAnswer {
            status: 200,
            id: None,
            finish: None,
            prompt_tokens: None,
            completion_tokens: None,
            first_s: None,
            total_s: 0.5,
            is_whole: true,
            sha256: None,
            error: None,
        };
        Record {
            version: 1,
            time_ms,
            method: "POST".into(),
            path: "/v1/completions".into(),
            request_id: String::new(),
            headers: BTreeMap::new(),
            model: None,
            seed: None,
            body: None,
            body_text: None,
            answer,
        }
    }

    #[test]
    fn the_oldest_records_are_removed_above_the_limit_also_after_a_restart() {
        let state = tempfile::tempdir().unwrap();
        let size = serde_json::to_vec(&record(1)).unwrap().len() as u64;
        for times in [1..4, 4..6] {
            let mut folder = Folder::open(state.path(), 2 * size).unwrap();
            times.for_each(|time| folder.write(&record(time)).unwrap());
        }
        let mut left: Vec<Record> = fs::read_dir(state.path())
            .unwrap()
            .map(|entry| serde_json::from_slice(&fs::read(entry.unwrap().path()).unwrap()).unwrap())
            .collect();
        left.sort_by_key(|record| record.time_ms);
        assert_eq!(left, [record(4), record(5)]);
    }
}
