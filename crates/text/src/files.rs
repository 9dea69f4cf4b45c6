//! Reads the small files of a model directory, which are not trusted.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The largest file that is read. The tokenizers of published models stay below 40 MB.
const MAX_BYTES: u64 = 256 << 20;

fn failed(path: &Path, message: impl ToString) -> Error {
    Error::File { path: path.to_owned(), message: message.to_string() }
}

/// The bytes of a file, or none if it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(path, error)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| failed(path, error))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(failed(path, format!("it is larger than {} MB; no tokenizer file is", MAX_BYTES >> 20)));
    }
    Ok(Some(bytes))
}

/// The text of a file, or none if it does not exist.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>, Error> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    let text = String::from_utf8(bytes).map_err(|_| failed(path, "it is not UTF-8; save it as UTF-8"))?;
    Ok(Some(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)))
}

/// The JSON document in a file, or none if it does not exist.
pub(crate) fn read_json(path: &Path) -> Result<Option<serde_json::Value>, Error> {
    let Some(text) = read_text(path)? else { return Ok(None) };
    let json = serde_json::from_str(&text)
        .map_err(|error| failed(path, format!("it is not JSON ({error}); download it again")))?;
    Ok(Some(json))
}

/// The files of a folder with an extension, in order; none if the folder does not exist.
pub(crate) fn list(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(folder, error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| failed(folder, error))?.path();
        if path.extension().is_some_and(|found| found == extension) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}
