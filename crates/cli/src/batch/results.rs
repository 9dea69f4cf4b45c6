//! The file of results. It is also the journal: what is in it is not requested again.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::error::Error;

/// Lines between two calls that wait for the disk.
const SYNC_LINES: usize = 256;

/// A file of results that grows.
pub struct Results {
    path: PathBuf,
    file: File,
    done: HashSet<String>,
    unsynced: usize,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The server answered, perhaps with an error.
    Response {
        #[allow(missing_docs)]
        status: u16,
        /// The server's id of it.
        request_id: String,
        #[allow(missing_docs)]
        body: Value,
    },
    /// There was none.
    Failed(String),
}

impl Answer {
    /// Whether the server did what was requested.
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Response { status: 200..=299, .. })
    }
}

impl Results {
    /// Opens a file of results, or begins it. A line that was torn when the process ended is cut off.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let fail = |error: std::io::Error| Error::failed(format!("{}: {error}", path.display()));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = file.map_err(fail)?;
        let mut reader = BufReader::with_capacity(1 << 20, file.try_clone().map_err(fail)?);
        let (mut done, mut whole, mut line) = (HashSet::new(), 0u64, Vec::new());
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line).map_err(fail)?;
            if read == 0 || (line.last() != Some(&b'\n') && is_torn(&line)) {
                break;
            }
            let Some(custom_id) = custom_id(&line).filter(|_| line.last() == Some(&b'\n')) else {
                let message = format!("{}: has a line that is no result; give another -o", path.display());
                return Err(Error::failed(message));
            };
            done.insert(custom_id);
            whole += read as u64;
        }
        file.set_len(whole).map_err(fail)?;
        file.seek(SeekFrom::End(0)).map_err(fail)?;
        Ok(Self { path: path.to_owned(), file, done, unsynced: 0 })
    }

    /// Whether a request has its result.
    pub fn has(&self, custom_id: &str) -> bool {
        self.done.contains(custom_id)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.done.len()
    }

    /// Adds a result.
    pub fn push(&mut self, custom_id: &str, answer: Answer) -> Result<(), Error> {
        let (response, error) = match answer {
            Answer::Response { status, request_id, body } => {
                (json!({"status_code": status, "request_id": request_id, "body": body}), Value::Null)
            }
            Answer::Failed(message) => (Value::Null, json!({"code": "server_error", "message": message})),
        };
        let id = format!("batch_req_{:08x}", self.done.len());
        let row = json!({"id": id, "custom_id": custom_id, "response": response, "error": error});
        let mut line = row.to_string();
        line.push('\n');
        let fail = |error: std::io::Error| Error::failed(format!("{}: {error}", self.path.display()));
        self.file.write_all(line.as_bytes()).map_err(fail)?;
        self.done.insert(custom_id.to_owned());
        self.unsynced += 1;
        if self.unsynced == SYNC_LINES {
            self.sync()?;
        }
        Ok(())
    }

    /// Waits until all results are on the disk.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.unsynced = 0;
        self.file.sync_data().map_err(|error| Error::failed(format!("{}: {error}", self.path.display())))
    }
}

/// Whether a line without an end is the beginning of a result, or a result. Any other stays.
fn is_torn(line: &[u8]) -> bool {
    let begin = b"{\"custom_id\":\"";
    let begins = line.starts_with(begin) || begin.starts_with(line);
    match serde_json::from_slice::<Value>(line) {
        Ok(_) => custom_id(line).is_some(),
        Err(_) => begins,
    }
}

fn custom_id(line: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(line).ok()?;
    value.get("response")?;
    value.get("custom_id")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_is_cut_off_and_whole_ones_are_known() {
        let path = std::env::temp_dir().join(format!("omnibus-batch-results-{}", std::process::id()));
        let ok = || Answer::Response { status: 200, request_id: "r".to_owned(), body: json!({"x": 1}) };
        let mut results = Results::open(&path).unwrap();
        results.push("a", ok()).unwrap();
        results.push("b", Answer::Failed("gone".to_owned())).unwrap();
        drop(results);
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{whole}{{\"custom_id\":\"c\",\"err")).unwrap();
        let mut results = Results::open(&path).unwrap();
        assert!(results.has("a") && results.has("b") && !results.has("c"));
        results.push("c", ok()).unwrap();
        results.sync().unwrap();
        let lines = std::fs::read_to_string(&path).unwrap();
        let ids: Vec<String> = lines.lines().map(|line| custom_id(line.as_bytes()).unwrap()).collect();
        assert_eq!(ids, ["a", "b", "c"]);
        // A file of something else, or the requests themselves, stays as it is.
        for other in ["notes\n", "notes", "{\"custom_id\":\"a\",\"url\":\"/v1/embeddings\",\"body\":{}}"] {
            std::fs::write(&path, other).unwrap();
            assert!(
                Results::open(&path).is_err_and(|error| error.to_string().contains("no result")),
                "{other}"
            );
            assert_eq!(std::fs::read_to_string(&path).unwrap(), other);
        }
        std::fs::remove_file(&path).unwrap();
    }
}
