//! A file of results that grows by whole lines.
//!
//! Invariant: what is there is whole lines, but for one torn at its end when the process died, which is cut off.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::Path;

use thiserror::Error;

use crate::format::{Format, ReadResult};

/// A file of results.
#[derive(Debug)]
pub struct ResultFile {
    file: File,
    format: Format,
    bytes: u64,
    lines: usize,
}

/// Why results cannot be kept.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The disk failed, or is full.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is of something else.
    #[error("has a line that is no result; give another -o")]
    NoResults,
    /// Another process writes it.
    #[error("another process writes its results there")]
    InUse,
}

impl ResultFile {
    /// Opens a file of results, or begins it, and shows those that are there. A line that was torn is cut off; a file of
    /// something else stays as it is.
    pub(crate) fn open(
        path: &Path,
        format: Format,
        mut show: impl FnMut(ReadResult),
    ) -> Result<Self, JournalError> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        if let Err(error) = file.try_lock() {
            return Err(match error {
                std::fs::TryLockError::WouldBlock => JournalError::InUse,
                std::fs::TryLockError::Error(error) => JournalError::Io(error),
            });
        }
        let mut reader = BufReader::with_capacity(1 << 20, file.try_clone()?);
        let (mut bytes, mut lines, mut line) = (0u64, 0, Vec::new());
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line)?;
            let is_whole = line.last() == Some(&b'\n');
            if read == 0 || (!is_whole && is_torn(&line, format)) {
                break;
            }
            let result = format.read(&line).filter(|_| is_whole).ok_or(JournalError::NoResults)?;
            show(result);
            bytes += read as u64;
            lines += 1;
        }
        file.set_len(bytes)?;
        file.seek(SeekFrom::Start(bytes))?;
        Ok(Self { file, format, bytes, lines })
    }

    /// Adds a line. When that fails, nothing of it stays, so that it can be tried again.
    pub(crate) fn push(&mut self, line: &str) -> io::Result<()> {
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            self.file.set_len(self.bytes)?;
            self.file.seek(SeekFrom::Start(self.bytes))?;
            return Err(error);
        }
        self.bytes += line.len() as u64;
        self.lines += 1;
        Ok(())
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// How many lines there are.
    pub(crate) fn lines(&self) -> usize {
        self.lines
    }

    /// How many bytes there are.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waits until all of it is on the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Whether a line without an end is the begin of a result, or a result. Any other stays.
fn is_torn(line: &[u8], format: Format) -> bool {
    let begin = format.begin();
    match serde_json::from_slice::<serde_json::Value>(line) {
        Ok(_) => format.read(line).is_some(),
        Err(_) => line.starts_with(begin) || begin.starts_with(line),
    }
}
