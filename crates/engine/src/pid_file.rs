//! A PID file of each server that runs, so that the next one knows of one that did not shut down cleanly, and of memory that was
//! not given back.
//!
//! A server holds the lock of its file until it ends, and removes the file when it shuts down. So a file that can be locked is of a
//! server that was killed or ended at once; the system has released its lock, whatever process has its number now.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::available_memory::{available_bytes, missing_bytes};

/// More bytes than a PID file has.
const TEXT_BYTES: u64 = 32;

/// The PID file of this server, removed when it is dropped. It has the bytes of memory that were available before this server.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    /// Holds the lock.
    file: File,
}

/// What is known of servers that did not shut down cleanly, and whose PID files are removed now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UncleanShutdowns {
    /// How many there were.
    pub count: usize,
    /// How many bytes of memory fewer are available than before the first of them started. `None` below a GiB, while other
    /// servers run, whose memory would be counted, and where the system does not say how much is available.
    pub missing_bytes: Option<u64>,
}

impl PidFile {
    /// Writes the file of this process, before it takes memory. The folder is made if it is missing; it is for PID files alone.
    ///
    /// # Errors
    ///
    /// What the system says where the folder or the file cannot be written.
    pub fn create(folder: &Path) -> io::Result<(Self, UncleanShutdowns)> {
        let available = available_bytes();
        std::fs::create_dir_all(folder)?;
        let unclean = unclean_shutdowns(folder, available)?;
        let path = folder.join(std::process::id().to_string());
        // From here on it is removed, also where it cannot be written.
        let mut pid_file = Self { file: File::create(&path)?, path };
        pid_file.file.lock()?;
        // Another server that starts takes an empty file for one that is being written.
        writeln!(pid_file.file, "{}", available.unwrap_or_default())?;
        Ok((pid_file, unclean))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, "cannot remove the PID file");
        }
    }
}

fn unclean_shutdowns(folder: &Path, available: Option<u64>) -> io::Result<UncleanShutdowns> {
    let (mut count, mut running, mut before) = (0, false, None);
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        // To read from a pipe would wait for its writer.
        if !entry.file_type()?.is_file() {
            continue;
        }
        let path = entry.path();
        let Ok(file) = OpenOptions::new().read(true).write(true).open(&path) else { continue };
        if file.try_lock().is_err() {
            running = true;
            continue;
        }
        let Some(bytes) = bytes_of(&file) else { continue };
        count += 1;
        before = before.max((bytes > 0).then_some(bytes));
        std::fs::remove_file(&path)?;
    }
    let known = before.zip(available).filter(|_| !running);
    Ok(UncleanShutdowns { count, missing_bytes: known.and_then(|(before, now)| missing_bytes(before, now)) })
}

/// The number in a PID file; `None` for any other file.
fn bytes_of(file: &File) -> Option<u64> {
    let mut text = String::new();
    file.take(TEXT_BYTES).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn a_server_that_shuts_down_leaves_no_file() {
        let folder = folder();
        let (file, unclean) = PidFile::create(&folder.path().join("new")).unwrap();
        assert_eq!(unclean, UncleanShutdowns::default());
        drop(file);
        assert_eq!(std::fs::read_dir(folder.path().join("new")).unwrap().count(), 0);
    }

    #[test]
    fn files_without_a_lock_are_counted_once() {
        let folder = folder();
        std::fs::write(folder.path().join("7"), format!("{}\n", 40 * GIB)).unwrap();
        std::fs::write(folder.path().join("8"), format!("{}\n", 33 * GIB)).unwrap();
        let read = || unclean_shutdowns(folder.path(), Some(30 * GIB)).unwrap();
        assert_eq!(read(), UncleanShutdowns { count: 2, missing_bytes: Some(10 * GIB) });
        assert_eq!(read(), UncleanShutdowns::default());
    }

    #[test]
    fn nothing_is_said_to_be_missing_while_another_server_runs_or_nothing_is_known() {
        let folder = folder();
        let running = folder.path().join("1");
        std::fs::write(&running, "5\n").unwrap();
        let held = File::open(&running).unwrap();
        held.lock().unwrap();
        std::fs::write(folder.path().join("7"), format!("{}\n", 40 * GIB)).unwrap();
        let read = || unclean_shutdowns(folder.path(), Some(30 * GIB)).unwrap();
        assert_eq!(read(), UncleanShutdowns { count: 1, missing_bytes: None });
        assert!(running.exists());
        drop(held);
        // More is available than before.
        assert_eq!(read(), UncleanShutdowns { count: 1, missing_bytes: None });
        std::fs::write(folder.path().join("7"), "0\n").unwrap();
        assert_eq!(read(), UncleanShutdowns { count: 1, missing_bytes: None });
    }

    #[test]
    fn files_that_are_being_written_and_other_files_stay() {
        let folder = folder();
        let long = "7".repeat(TEXT_BYTES as usize + 1);
        let texts: [&[u8]; 4] = [b"", b"many", b"\xff\xfe", long.as_bytes()];
        for text in texts {
            std::fs::write(folder.path().join("7"), text).unwrap();
            assert_eq!(unclean_shutdowns(folder.path(), Some(GIB)).unwrap(), UncleanShutdowns::default());
            assert!(folder.path().join("7").exists());
        }
    }

    #[test]
    fn a_pipe_is_not_read() {
        let folder = folder();
        let made = std::process::Command::new("mkfifo").arg(folder.path().join("7")).status().unwrap();
        assert!(made.success());
        assert_eq!(unclean_shutdowns(folder.path(), Some(GIB)).unwrap(), UncleanShutdowns::default());
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error_and_leaves_nothing() {
        let folder = folder();
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(PidFile::create(&folder.path().join("file/servers")).is_err());
    }
}
