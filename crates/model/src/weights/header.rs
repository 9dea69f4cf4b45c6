//! The headers of safetensors files, checked before anything else of them is read; and what is wrong with a file.

use std::fs;
use std::io::Read;
use std::path::Path;

use safetensors::tensor::Metadata;

use crate::weights::LoadError;

/// The header of a safetensors file may be this long; the format's own limit.
const HEADER_BYTES_MAX: u64 = 100_000_000;

pub(super) fn problem(file: &Path, problem: String) -> LoadError {
    LoadError::File { file: file.to_owned(), problem }
}

/// Reads the header alone and checks it against the file's length.
pub(crate) fn check_header(path: &Path) -> Result<(), LoadError> {
    read_header(path).map(|_| ())
}

/// The checked header, and where in the file its offsets begin.
pub(super) fn read_header(path: &Path) -> Result<(Metadata, u64), LoadError> {
    let broken = |why: String| problem(path, format!("not a sound safetensors file: {why}"));
    let mut file = fs::File::open(path).map_err(|error| problem(path, error.to_string()))?;
    let length = file.metadata().map_err(|error| problem(path, error.to_string()))?.len();
    let mut prefix = [0; 8];
    file.read_exact(&mut prefix).map_err(|_| broken("shorter than its header".to_owned()))?;
    let header_length = u64::from_le_bytes(prefix);
    if header_length > HEADER_BYTES_MAX || header_length.saturating_add(8) > length {
        return Err(broken(format!("a header of {header_length} bytes in a file of {length}")));
    }
    let mut header = vec![0; header_length as usize];
    file.read_exact(&mut header).map_err(|error| broken(error.to_string()))?;
    let header = String::from_utf8(header).map_err(|_| broken("a header that is not UTF-8".to_owned()))?;
    // `Metadata` refuses overlaps, holes and sizes that do not fit their shapes.
    let metadata: Metadata = serde_json::from_str(&header).map_err(|error| broken(error.to_string()))?;
    let data: u64 = metadata.tensors().values().map(|info| info.data_offsets.1 as u64).max().unwrap_or(0);
    let found = length - 8 - header_length;
    if data != found {
        return Err(broken(format!(
            "{found} bytes of tensors where the header promises {data}; download it again"
        )));
    }
    Ok((metadata, 8 + header_length))
}
