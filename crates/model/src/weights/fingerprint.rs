//! Names a model's numbers, so that what was computed with them is never used with others.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};

use super::{LoadError, Source, header::problem};
use crate::batch::AdapterId;

/// Of every so many bytes of a weight file, the first [`SAMPLE_BYTES`] are looked at: reading all of a large model
/// would take longer than loading it.
const STRIDE_BYTES: u64 = 4 << 20;
const SAMPLE_BYTES: u64 = 4 << 10;

impl Source {
    /// Equal for equal configs and weights. Of files, the length, the time of the last change and a thousandth of the
    /// bytes stand for the whole; of embedded ones, all bytes do.
    pub fn fingerprint(&self) -> Result<[u8; 32], LoadError> {
        let mut hash = Sha256::new();
        let mut add = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        match self {
            Self::Embedded(files) => {
                for (name, bytes) in files.iter() {
                    add(name.as_bytes());
                    add(bytes);
                }
            }
            Self::Adapted { base, adapter } => {
                add(&base.fingerprint()?);
                for file in super::adapter::files(adapter) {
                    let bytes = fs::read(&file).map_err(|error| problem(&file, error.to_string()))?;
                    add(&bytes);
                }
            }
            Self::Random(_) => add(&self.bytes("config.json")?.unwrap_or_default()),
            Self::Directory(directory) => {
                add(&self.bytes("config.json")?.unwrap_or_default());
                for path in self.weight_files(directory)? {
                    add(path.file_name().unwrap_or_default().as_encoded_bytes());
                    samples(&path, &mut add).map_err(|error| problem(&path, error.to_string()))?;
                }
            }
        }
        Ok(hash.finalize().into())
    }
}

/// The hash of an adapter's files, all bytes of them.
pub(crate) fn adapter_id(directory: &Path) -> Result<AdapterId, LoadError> {
    let mut hash = Sha256::new();
    for file in super::adapter::files(directory) {
        hash.update(file.file_name().unwrap_or_default().as_encoded_bytes());
        let bytes = fs::read(&file).map_err(|error| problem(&file, error.to_string()))?;
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(&bytes);
    }
    let hash: [u8; 32] = hash.finalize().into();
    let half = hash.first_chunk().map_or(0, |half| u128::from_le_bytes(*half));
    Ok(AdapterId(half.max(1)))
}

fn samples(path: &Path, add: &mut impl FnMut(&[u8])) -> std::io::Result<()> {
    let about = fs::metadata(path)?;
    let changed = about.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    add(&about.len().to_le_bytes());
    add(&changed.as_nanos().to_le_bytes());
    let mut file = File::open(path)?;
    let mut sample = Vec::new();
    for at in (0..about.len()).step_by(STRIDE_BYTES as usize) {
        sample.clear();
        file.seek(SeekFrom::Start(at))?;
        (&mut file).take(SAMPLE_BYTES).read_to_end(&mut sample)?;
        add(&sample);
    }
    Ok(())
}
