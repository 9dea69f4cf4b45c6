//! Downloads of a revision's files into the cache.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use crate::cache::Cache;
use crate::checksum::Hasher;
use crate::error::Error;
use crate::files::RemoteFile;
use crate::id::ModelId;
use crate::remote::{Remote, reason};

/// A file that ends early, or a connection that breaks, is resumed so many times in a row without a byte.
const ATTEMPTS: usize = 5;
const READ_BYTES: usize = 1 << 20;

/// How much of all files is in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes in the cache.
    pub bytes_done: u64,
    /// Bytes of all files.
    pub bytes_total: u64,
}

/// The download of one revision.
pub(crate) struct Download<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) remote: &'a Remote,
    pub(crate) id: &'a ModelId,
    pub(crate) commit: &'a str,
}

impl Download<'_> {
    /// Downloads what is missing; returns the directory of all files.
    pub(crate) async fn run(
        &self,
        files: &[RemoteFile],
        progress: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<PathBuf, Error> {
        let _lock = self.cache.lock(self.id)?;
        let bytes_total = files.iter().map(|file| file.bytes).sum();
        let mut before = 0;
        for file in files {
            let mut tell = |bytes| progress(Progress { bytes_done: before + bytes, bytes_total });
            let blob = self.cache.blob(self.id, file);
            if !is_whole(&blob, file) {
                self.file(file, &blob, &mut tell).await?;
            }
            tell(file.bytes);
            self.cache.link(self.id, self.commit, file)?;
            before += file.bytes;
        }
        self.cache.set_ref(self.id, self.commit)?;
        Ok(self.cache.snapshot_folder(self.id, self.commit))
    }

    /// Downloads one file, from where an earlier attempt ended.
    async fn file(
        &self,
        file: &RemoteFile,
        blob: &Path,
        tell: &mut (dyn FnMut(u64) + Send),
    ) -> Result<(), Error> {
        let part = blob.with_extension("incomplete");
        let broken = |problem: String| Error::Broken { file: file.name.clone(), problem };
        let (mut failures, mut started_over) = (0, false);
        loop {
            let had = fs::metadata(&part).map_or(0, |about| about.len());
            if had > file.bytes {
                fs::remove_file(&part).map_err(Error::io(&part))?;
                continue;
            }
            let mut problem = String::new();
            if had < file.bytes || file.bytes == 0 {
                match self.append(file, &part, had, tell).await {
                    Ok(()) => {}
                    Err(Error::Broken { problem: why, .. } | Error::Unreachable { why, .. }) => problem = why,
                    Err(error) => return Err(error),
                }
            }
            let has = fs::metadata(&part).map_or(0, |about| about.len());
            if has < file.bytes {
                failures = if has > had { 0 } else { failures + 1 };
                if failures >= ATTEMPTS {
                    return Err(broken(format!("{has} of {} bytes came: {problem}", file.bytes)));
                }
                continue;
            }
            if has == file.bytes && hash_of(&part, file)?.is(&file.checksum) {
                fs::rename(&part, blob).map_err(Error::io(&part))?;
                return Ok(());
            }
            fs::remove_file(&part).map_err(Error::io(&part))?;
            if started_over {
                return Err(broken("its checksum is not the hub's, twice".to_owned()));
            }
            started_over = true;
        }
    }

    /// One request. An answer from the start, because the server knows no ranges, begins the file anew.
    async fn append(
        &self,
        file: &RemoteFile,
        part: &Path,
        from: u64,
        tell: &mut (dyn FnMut(u64) + Send),
    ) -> Result<(), Error> {
        let mut response = self.remote.file(self.id, self.commit, &file.name, from).await?;
        let is_rest = response.status() == reqwest::StatusCode::PARTIAL_CONTENT;
        let folder = part.parent().unwrap_or(part);
        fs::create_dir_all(folder).map_err(Error::io(folder))?;
        let opened =
            OpenOptions::new().create(true).write(true).append(is_rest).truncate(!is_rest).open(part);
        let mut output = opened.map_err(Error::io(part))?;
        let mut done = if is_rest { from } else { 0 };
        loop {
            let chunk = response
                .chunk()
                .await
                .map_err(|error| Error::Broken { file: file.name.clone(), problem: reason(&error) })?;
            let Some(chunk) = chunk else { break };
            output.write_all(&chunk).map_err(Error::io(part))?;
            done += chunk.len() as u64;
            if done > file.bytes {
                break;
            }
            tell(done);
        }
        output.sync_all().map_err(Error::io(part))
    }
}

/// A blob has its name only after its checksum was right.
fn is_whole(blob: &Path, file: &RemoteFile) -> bool {
    file.checksum.text().is_some() && fs::metadata(blob).is_ok_and(|about| about.len() == file.bytes)
}

fn hash_of(path: &Path, file: &RemoteFile) -> Result<Hasher, Error> {
    let mut hasher = file.checksum.hasher(file.bytes);
    let mut input = File::open(path).map_err(Error::io(path))?;
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match input.read(&mut buffer).map_err(Error::io(path))? {
            0 => return Ok(hasher),
            count => hasher.add(buffer.get(..count).unwrap_or_default()),
        }
    }
}
