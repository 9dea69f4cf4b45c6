//! A linear layer in a file of torch: a zip archive with a pickled dictionary and the bytes of its tensors.
//!
//! Nothing is unpickled. Of a layer's state the first storage is the weight, the second the bias, and their lengths follow from
//! each other; the name of the storages' class says the type of their numbers. Source: torch `serialization.py`; APPNOTE 4.3 of zip.

use std::path::Path;

use safetensors::tensor::Dtype;

use crate::activation::Activation;
use crate::checkpoint::numbers;
use crate::error::PoolerError;
use crate::step::Dense;

/// Most bytes of a file.
const BYTES_MAX: u64 = 256 << 20;

/// Classes of storages, and their numbers.
const STORAGES: [(&[u8], Dtype); 3] =
    [(b"FloatStorage", Dtype::F32), (b"HalfStorage", Dtype::F16), (b"BFloat16Storage", Dtype::BF16)];

/// The layer of a file.
pub(crate) fn dense(directory: &Path, file: &str, act: Activation) -> Result<Dense, PoolerError> {
    let fail = |reason: &str| PoolerError::new(file, reason);
    let path = directory.join(file);
    let length = std::fs::metadata(&path).map_err(|error| PoolerError::new(file, error))?.len();
    if length > BYTES_MAX {
        return Err(fail("is too large for a head"));
    }
    let bytes = std::fs::read(&path).map_err(|error| PoolerError::new(file, error))?;
    let entries = stored_entries(&bytes).ok_or_else(|| fail("is no archive of torch"))?;
    let of = |ending: &str| entries.iter().find(|(name, _)| name.ends_with(ending)).map(|(_, bytes)| *bytes);
    let pickle = of("/data.pkl").ok_or_else(|| fail("has no `data.pkl`"))?;
    let names = |class: &[u8]| pickle.windows(class.len()).any(|window| window == class);
    let found: Vec<Dtype> =
        STORAGES.iter().filter(|(class, _)| names(class)).map(|(_, dtype)| *dtype).collect();
    let dtype = match found.as_slice() {
        [dtype] => *dtype,
        _ => return Err(fail("has no floats of one type")),
    };
    if of("/data/2").is_some() {
        return Err(fail("has more tensors than a linear layer"));
    }
    let tensor = |place: &str| of(place).and_then(|bytes| numbers(bytes, dtype));
    let (weight, bias) = (tensor("/data/0"), tensor("/data/1"));
    let (weight, bias) = weight.zip(bias).ok_or_else(|| fail("has no weight and bias"))?;
    if bias.is_empty() || !weight.len().is_multiple_of(bias.len()) {
        return Err(fail("has a weight and a bias that do not fit each other"));
    }
    let inputs = weight.len() / bias.len();
    Ok(Dense { weight: weight.into(), inputs, bias: bias.into(), act })
}

/// Names and bytes of an archive's entries, none of which is compressed.
fn stored_entries(archive: &[u8]) -> Option<Vec<(String, &[u8])>> {
    const END: &[u8] = b"PK\x05\x06";
    let end = archive.windows(END.len()).rposition(|window| window == END)?;
    let count = u16_at(archive, end + 10)?;
    let mut at = u32_at(archive, end + 16)?;
    let mut entries = Vec::new();
    for _ in 0..count {
        if archive.get(at..at.checked_add(4)?)? != b"PK\x01\x02" || u16_at(archive, at + 10)? != 0 {
            return None;
        }
        let length = u32_at(archive, at + 24)?;
        let [name, extra, comment] =
            [u16_at(archive, at + 28)?, u16_at(archive, at + 30)?, u16_at(archive, at + 32)?];
        let local = u32_at(archive, at + 42)?;
        let text = archive.get(at + 46..at + 46 + name)?;
        let start = local + 30 + u16_at(archive, local + 26)? + u16_at(archive, local + 28)?;
        let bytes = archive.get(start..start.checked_add(length)?)?;
        entries.push((String::from_utf8_lossy(text).into_owned(), bytes));
        at += 46 + name + extra + comment;
    }
    Some(entries)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<usize> {
    let two = bytes.get(at..at.checked_add(2)?)?;
    Some(usize::from(u16::from_le_bytes(two.try_into().ok()?)))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(four.try_into().ok()?) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files that `torch.save` of torch 2.15 wrote of a layer's state.
    fn sample(file: &str) -> Result<Dense, PoolerError> {
        dense(&Path::new(env!("CARGO_MANIFEST_DIR")).join("samples"), file, Activation::Identity)
    }

    #[test]
    fn layers_are_read_as_torch_writes_them() {
        for file in ["linear.pt", "linear-half.pt"] {
            let layer = sample(file).unwrap();
            assert_eq!(*layer.weight, [1.0, 2.0, -3.0, 0.5, -0.25, 4.0], "{file}");
            assert_eq!((&*layer.bias, layer.inputs), (&[0.125, -1.0][..], 3), "{file}");
        }
    }

    #[test]
    fn what_is_no_layer_is_refused() {
        assert_eq!(sample("no-bias.pt").unwrap_err().to_string(), "no-bias.pt: has no weight and bias");
        let folder = std::env::temp_dir().join(format!("omnibus-torch-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let whole = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("samples/linear.pt")).unwrap();
        // The last record ends with a comment, which none reads.
        for length in (0..whole.len() - 22).step_by(7) {
            std::fs::write(folder.join("cut.pt"), &whole[..length]).unwrap();
            assert!(dense(&folder, "cut.pt", Activation::Identity).is_err(), "{length} bytes");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            std::fs::write(folder.join("changed.pt"), changed).unwrap();
            // It may be another layer; it may not be a panic.
            _ = dense(&folder, "changed.pt", Activation::Identity);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
