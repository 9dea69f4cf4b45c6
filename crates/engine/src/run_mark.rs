//! A mark on the disk of each server that runs, so that the next one knows of one that was killed, and of the memory that was not
//! given back.
//!
//! A server holds the lock of its mark until it ends, and removes the mark when it ends by itself. So a mark that can be locked is
//! of a server that was killed; the system has taken its lock, whatever process has its number now.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::available_memory::available_bytes;

/// The mark of this server, removed when it is dropped.
#[derive(Debug)]
pub struct RunMark {
    path: PathBuf,
    /// Holds the lock.
    _file: File,
}

/// What is known of servers that were killed, and whose marks are removed now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KilledRuns {
    /// How many there were.
    pub count: usize,
    /// Bytes that the machine has less to spare than before the first of them started: zero if it has more. `None` while other
    /// servers run, whose memory would be counted, and where the system does not say how much there is.
    pub missing_bytes: Option<u64>,
}

impl RunMark {
    /// Marks this process as a server, before it takes memory. The folder is made if it is missing; it holds marks alone.
    ///
    /// # Errors
    ///
    /// What the system says where the folder or the mark cannot be written.
    pub fn begin(folder: &Path) -> io::Result<(Self, KilledRuns)> {
        let available = available_bytes();
        std::fs::create_dir_all(folder)?;
        let killed = killed_runs(folder, available)?;
        let path = folder.join(std::process::id().to_string());
        let mut file = File::create(&path)?;
        file.lock()?;
        // Another server that starts takes an empty mark for one that is being written.
        writeln!(file, "{}", available.unwrap_or_default())?;
        Ok((Self { path, _file: file }, killed))
    }
}

impl Drop for RunMark {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, "cannot remove the mark of this server");
        }
    }
}

fn killed_runs(folder: &Path, available: Option<u64>) -> io::Result<KilledRuns> {
    let (mut count, mut running, mut before) = (0, false, None);
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let Ok(mut file) = OpenOptions::new().read(true).write(true).open(&path) else { continue };
        if file.try_lock().is_err() {
            running = true;
            continue;
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let Ok(bytes) = text.trim().parse::<u64>() else { continue };
        count += 1;
        before = before.max((bytes > 0).then_some(bytes));
        std::fs::remove_file(&path)?;
    }
    let missing_bytes =
        before.zip(available).filter(|_| !running).map(|(before, now)| before.saturating_sub(now));
    Ok(KilledRuns { count, missing_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn a_server_that_ends_leaves_no_mark() {
        let folder = folder();
        let (mark, killed) = RunMark::begin(&folder.path().join("new")).unwrap();
        assert_eq!(killed, KilledRuns::default());
        drop(mark);
        assert_eq!(std::fs::read_dir(folder.path().join("new")).unwrap().count(), 0);
    }

    #[test]
    fn marks_of_killed_servers_are_counted_once() {
        let folder = folder();
        std::fs::write(folder.path().join("7"), format!("{}\n", 40 * GIB)).unwrap();
        std::fs::write(folder.path().join("8"), format!("{}\n", 33 * GIB)).unwrap();
        let read = || killed_runs(folder.path(), Some(30 * GIB)).unwrap();
        assert_eq!(read(), KilledRuns { count: 2, missing_bytes: Some(10 * GIB) });
        assert_eq!(read(), KilledRuns::default());
    }

    #[test]
    fn nothing_is_said_to_be_missing_while_another_server_runs_or_nothing_is_known() {
        let folder = folder();
        let running = folder.path().join("1");
        std::fs::write(&running, "5\n").unwrap();
        let held = File::open(&running).unwrap();
        held.lock().unwrap();
        std::fs::write(folder.path().join("7"), format!("{}\n", 40 * GIB)).unwrap();
        let read = || killed_runs(folder.path(), Some(30 * GIB)).unwrap();
        assert_eq!(read(), KilledRuns { count: 1, missing_bytes: None });
        assert!(running.exists());
        drop(held);
        // More than before.
        assert_eq!(read(), KilledRuns { count: 1, missing_bytes: Some(0) });
        std::fs::write(folder.path().join("7"), "0\n").unwrap();
        assert_eq!(read(), KilledRuns { count: 1, missing_bytes: None });
    }

    #[test]
    fn marks_that_are_being_written_and_other_files_stay() {
        let folder = folder();
        for text in ["", "many"] {
            std::fs::write(folder.path().join("7"), text).unwrap();
            assert_eq!(killed_runs(folder.path(), Some(GIB)).unwrap(), KilledRuns::default());
            assert!(folder.path().join("7").exists());
        }
    }
}
