//! The directory of a conversion, and what an interrupted one left in it.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{Conversion, failed, write_json};
use crate::input_squares::InputSquares;
use crate::weights::LoadError;

/// Present until the conversion is complete; says what it converts, and how.
const MARK: &str = "omnibus-conversion.json";

/// What a conversion converts, and how, so that another run can tell whether it may complete it.
pub(super) struct Plan(Value);

impl Plan {
    pub(super) fn new(conversion: &Conversion, config: &Map<String, Value>) -> Result<Self, LoadError> {
        let mut hash = Sha256::new();
        hash.update(conversion.source.fingerprint()?);
        hash.update(Value::Object(config.clone()).to_string());
        let Conversion { packing, dtype, shard_bytes, inputs, .. } = conversion;
        let inputs = inputs.as_ref().map(InputSquares::fingerprint);
        hash.update(format!("{packing:?} {inputs:?} {dtype:?} {shard_bytes} {}", env!("CARGO_PKG_VERSION")));
        let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self(json!({"conversion": hash})))
    }

    /// Creates the directory. One that exists must have an unfinished conversion of the same kind.
    pub(super) fn claim(&self, directory: &Path) -> Result<(), LoadError> {
        let mark = directory.join(MARK);
        if directory.exists() {
            let found = fs::read_to_string(&mark).ok().and_then(|text| serde_json::from_str(&text).ok());
            return match found {
                Some(found) if self.0 == found => Ok(()),
                Some::<Value>(_) => Err(failed(
                    directory,
                    &"holds an unfinished conversion of another kind; remove it or name another directory",
                )),
                None => Err(failed(directory, &"exists; remove it or name another directory")),
            };
        }
        fs::create_dir_all(directory).map_err(|error| failed(directory, &error))?;
        write_json(&mark, &self.0)
    }

    /// The conversion is complete.
    pub(super) fn finish(&self, directory: &Path) -> Result<(), LoadError> {
        let mark = directory.join(MARK);
        fs::remove_file(&mark).map_err(|error| failed(&mark, &error))
    }
}
