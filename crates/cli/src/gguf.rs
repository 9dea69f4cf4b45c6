//! GGUF files as model arguments: each becomes a model folder in the user's cache once, and is loaded from there.
//!
//! Invariant: a folder is there whole or not at all, and belongs to the file as it is: its path, its length, its time.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use omnibus_gguf::Gguf;

use crate::error::Error;
use crate::{environment, output, progress};

/// Increased when equal files become other folders.
const FORMAT: u32 = 2;
/// What a folder was made from, and what could not be kept exactly.
const STAMP: &str = "gguf.stamp";
/// The first bytes of every file.
const MAGIC: &[u8; 4] = b"GGUF";

/// The file that a model argument is: the file itself, or the only one of a folder without a config. `None` for other models.
pub fn file(model: &Path) -> Result<Option<PathBuf>, Error> {
    if model.is_file() {
        return Ok((is_named(model) || begins_like_one(model)).then(|| model.to_owned()));
    }
    if !model.is_dir() || model.join("config.json").exists() {
        return Ok(None);
    }
    let mut files: Vec<PathBuf> =
        fs::read_dir(model).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.retain(|path| is_named(path));
    files.sort();
    match files.as_slice() {
        [] => Ok(None),
        [file] => Ok(Some(file.clone())),
        [first, ..] => Err(Error::failed(format!(
            "{} holds {} GGUF files: name one of them, such as {}",
            model.display(),
            files.len(),
            first.display()
        ))),
    }
}

/// The folder of a file, which is written where the cache has none of it.
pub fn folder(file: &Path) -> Result<PathBuf, Error> {
    let gguf = Gguf::open(file).map_err(Error::failed)?;
    let cache = cache()?;
    fs::create_dir_all(&cache).map_err(|error| failed(&cache, &error))?;
    let (name, stamp) = identity(file)?;
    let folder = cache.join(&name);
    let lock = cache.join(format!("{name}.lock"));
    // Another process may be writing the same folder.
    let _lock = File::create(&lock)
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|error| failed(&lock, &error))?;
    let changes = match stamped(&folder, &stamp) {
        Some(changes) => changes,
        None => write(&gguf, &folder, &stamp)?,
    };
    if !changes.is_empty() {
        output::note(format!("{}: {}; everything else is kept exactly", file.display(), changes.join("; ")));
    }
    Ok(folder)
}

/// The name that a served model has by default.
pub fn served_name(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn cache() -> Result<PathBuf, Error> {
    let cache = environment::user_folder("XDG_CACHE_HOME", ".cache");
    let cache = cache.ok_or_else(|| Error::failed("GGUF files need a cache: set XDG_CACHE_HOME or HOME"))?;
    Ok(cache.join("omnibus").join("gguf"))
}

/// The name of a file's folder, and what must be the same for the folder to be the file's.
fn identity(file: &Path) -> Result<(String, String), Error> {
    let path = file.canonicalize().map_err(|error| failed(file, &error))?;
    let about = path.metadata().map_err(|error| failed(file, &error))?;
    let time = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let time = time.unwrap_or_default().as_nanos();
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    let name = format!("{}-{:016x}", served_name(file), hasher.finish());
    Ok((name, format!("{FORMAT} {} {time} {}", about.len(), path.display())))
}

/// What could not be kept exactly, if the folder is that of the file as it is.
fn stamped(folder: &Path, stamp: &str) -> Option<Vec<String>> {
    let text = fs::read_to_string(folder.join(STAMP)).ok()?;
    let mut lines = text.lines();
    (lines.next() == Some(stamp)).then(|| lines.map(str::to_owned).collect())
}

fn write(gguf: &Gguf, folder: &Path, stamp: &str) -> Result<Vec<String>, Error> {
    let mut partial = folder.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let total = gguf.tensor_bytes();
    remove(&partial)?;
    fs::create_dir_all(&partial).map_err(|error| failed(&partial, &error))?;
    let mut bar = progress::bytes("reading GGUF");
    let written = gguf.write(&partial, &mut |done| bar.set(done, total)).map_err(|error| {
        // The cause is what counts.
        _ = remove(&partial);
        Error::failed(error)
    })?;
    bar.finish();
    let lines = [&[stamp.to_owned()], written.changes.as_slice()].concat().join("\n");
    let path = partial.join(STAMP);
    fs::write(&path, lines).map_err(|error| failed(&path, &error))?;
    remove(folder)?;
    fs::rename(&partial, folder).map_err(|error| failed(folder, &error))?;
    Ok(written.changes)
}

fn remove(folder: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(folder, &error)),
        _ => Ok(()),
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::failed(format!("{}: {error}; XDG_CACHE_HOME names another folder", path.display()))
}

fn is_named(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"))
}

fn begins_like_one(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && &magic == MAGIC
}
