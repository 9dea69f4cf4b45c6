//! The files of a folder that is uploaded, with their checksums.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::checksum::{Checksum, hex};
use crate::error::Error;
use crate::files::{CONFIGS, RemoteFile};

const READ_BYTES: usize = 1 << 20;
/// Deepest folders that are read.
const DEPTH_MAX: usize = 4;
const CARD: &str = "README.md";
/// The model card of a folder without one.
const CARD_TEXT: &str = "---\nlibrary_name: mlx\ntags:\n- mlx\n---\n\nUploaded with mlx-omnibus.\n\n```sh\nomnibus serve DIRECTORY\n```\n";

/// Where a file's bytes are.
enum Content {
    File(PathBuf),
    Text(&'static str),
}

/// A file to upload.
pub(super) struct LocalFile {
    /// Its name in the repository, with `/` between folders.
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) sha256: String,
    /// The checksum of git's blob.
    git: String,
    content: Content,
}

impl LocalFile {
    fn new(name: String, content: Content) -> Result<Self, Error> {
        let mut file = Self { name, bytes: 0, sha256: String::new(), git: String::new(), content };
        file.bytes = match &file.content {
            Content::File(path) => fs::metadata(path).map_err(Error::io(path))?.len(),
            Content::Text(text) => text.len() as u64,
        };
        let (mut sha256, mut git) = (Sha256::new(), Sha1::new_with_prefix(format!("blob {}\0", file.bytes)));
        let (mut at, mut buffer) = (0, Vec::new());
        while at < file.bytes {
            file.read(at, READ_BYTES, &mut buffer)?;
            sha256.update(&buffer);
            git.update(&buffer);
            at += buffer.len() as u64;
        }
        (file.sha256, file.git) = (hex(&sha256.finalize()), hex(&git.finalize()));
        Ok(file)
    }

    /// Whether a repository's file has the name and the content of this one.
    pub(super) fn is_same_as(&self, remote: &RemoteFile) -> bool {
        self.name == remote.name
            && match &remote.checksum {
                Checksum::Sha256(sum) => *sum == self.sha256,
                Checksum::Git(sum) => *sum == self.git,
                Checksum::Unknown => false,
            }
    }

    /// Replaces what `into` has by so many bytes from `at` on, or by those that are left. Fails for a file that has become shorter.
    pub(super) fn read(&self, at: u64, bytes: usize, into: &mut Vec<u8>) -> Result<(), Error> {
        into.clear();
        let want = usize::try_from(self.bytes.saturating_sub(at)).unwrap_or(usize::MAX).min(bytes);
        match &self.content {
            Content::Text(text) => {
                let rest = usize::try_from(at).ok().and_then(|at| text.as_bytes().get(at..));
                into.extend(rest.unwrap_or_default().iter().take(want));
            }
            Content::File(path) => {
                let mut file = File::open(path).map_err(Error::io(path))?;
                file.seek(SeekFrom::Start(at)).map_err(Error::io(path))?;
                file.take(want as u64).read_to_end(into).map_err(Error::io(path))?;
            }
        }
        if into.len() < want || (want == 0 && at < self.bytes) {
            return Err(Error::Changed { file: self.name.clone() });
        }
        Ok(())
    }

    /// Its first bytes, in base64.
    pub(super) fn sample(&self, bytes: usize) -> Result<String, Error> {
        let mut buffer = Vec::new();
        self.read(0, bytes, &mut buffer)?;
        Ok(STANDARD.encode(buffer))
    }

    /// All of it, in base64.
    pub(super) fn base64(&self) -> Result<String, Error> {
        self.sample(usize::MAX)
    }
}

/// The files of a model's folder, sorted by name, with a model card. Hidden files and unfinished downloads are left out.
pub(super) fn read(folder: &Path) -> Result<Vec<LocalFile>, Error> {
    let mut paths = Vec::new();
    collect(folder, "", 0, &mut paths)?;
    if !paths.iter().any(|(name, _)| CONFIGS.contains(&name.as_str())) {
        return Err(Error::NotAFolder { folder: folder.to_owned() });
    }
    let has_card = paths.iter().any(|(name, _)| name == CARD);
    let mut files = paths
        .into_iter()
        .map(|(name, path)| LocalFile::new(name, Content::File(path)))
        .collect::<Result<Vec<_>, _>>()?;
    if !has_card {
        files.push(LocalFile::new(CARD.to_owned(), Content::Text(CARD_TEXT))?);
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(files)
}

fn collect(
    folder: &Path,
    prefix: &str,
    depth: usize,
    into: &mut Vec<(String, PathBuf)>,
) -> Result<(), Error> {
    for entry in fs::read_dir(folder).map_err(Error::io(folder))? {
        let entry = entry.map_err(Error::io(folder))?;
        let path = entry.path();
        let Ok(name) = entry.file_name().into_string() else {
            return Err(Error::FileName { path });
        };
        if name.starts_with('.') || name.ends_with(".incomplete") {
            continue;
        }
        let name = format!("{prefix}{name}");
        // Files of the cache are links; a linked folder may lead anywhere.
        if entry.file_type().map_err(Error::io(&path))?.is_dir() {
            if depth < DEPTH_MAX {
                collect(&path, &format!("{name}/"), depth + 1, into)?;
            }
        } else if fs::metadata(&path).map_err(Error::io(&path))?.is_file() {
            into.push((name, path));
        }
    }
    Ok(())
}
