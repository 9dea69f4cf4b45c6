//! Features of pictures in `--cache-dir`.
//!
//! Invariant: the loop never waits for the disk: one read is in progress at most, and the loop looks for its result. A file holds
//! the key of its features, so that none is mistaken for another.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use mlx::{Array, Dtype};
use omnibus_kv_peer::Fingerprint;
use omnibus_model::Source;
use omnibus_model::encoders::Features;
use sha2::{Digest, Sha256};

use crate::disk::{BlockName, BlockSizes, Disk, ReadResult};
use crate::error::StartError;
use crate::media::MediaKey;
use crate::settings::{DiskSettings, Settings};

/// Of the disk cache's limit, the share that features have on top.
const SHARE: u64 = 10;
/// A read that takes longer is given up, and nothing is read until it ends.
const READ_MAX: Duration = Duration::from_secs(5);
/// Changes with the order of bytes.
const FORMAT: &[u8] = b"features 1";

/// Features on disk.
pub(super) struct FeatureFiles {
    disk: Disk,
    results: Receiver<ReadResult>,
    reading: Option<(MediaKey, Instant)>,
}

/// What became of a read.
pub(super) enum FeatureRead {
    /// There is no such file, or it is of no use.
    Absent,
    /// It is being read.
    Pending,
    /// The features.
    Done(Features),
}

impl FeatureFiles {
    /// Opens the files of a model's encoder, if there is a disk cache.
    pub(super) fn open(settings: &Settings, source: &Source) -> Result<Option<Self>, StartError> {
        let chosen = settings.disk.as_ref().filter(|disk| !disk.directory.as_os_str().is_empty());
        let Some(chosen) = chosen else { return Ok(None) };
        let weights = source.fingerprint().map_err(StartError::new)?;
        let activations = format!("{:?}", settings.cpu_activations);
        let parts = Sha256::new().chain_update(FORMAT).chain_update(weights).chain_update(activations);
        let (results_tx, results) = channel();
        let on_read = move |result| {
            // The loop drops the receiver before the disk.
            let _receiver_gone = results_tx.send(result);
        };
        let limited = DiskSettings { limit_bytes: chosen.limit_bytes / SHARE, ..chosen.clone() };
        let fingerprint = Fingerprint(parts.finalize().into());
        let disk = Disk::open(&limited, "features", fingerprint, BlockSizes::Any, &settings.faults, on_read)?;
        Ok(Some(Self { disk, results, reading: None }))
    }

    /// Whether a read is in progress.
    pub(super) fn is_reading(&self) -> bool {
        self.reading.is_some_and(|(_, since)| since.elapsed() < READ_MAX)
    }

    /// Whether there is a file of a key.
    pub(super) fn has(&self, key: MediaKey) -> bool {
        self.disk.has(name_of(key))
    }

    /// The features of a key, or the beginning of their read.
    pub(super) fn read(&mut self, key: MediaKey) -> FeatureRead {
        if let Some((reading, since)) = self.reading {
            let result = match self.results.try_recv() {
                Ok(result) => result,
                Err(TryRecvError::Empty) if since.elapsed() < READ_MAX => return FeatureRead::Pending,
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return FeatureRead::Absent,
            };
            self.reading = None;
            if reading == key {
                let bytes = result.blocks.first().map(|block| &block.bytes[..]);
                return bytes
                    .and_then(|bytes| features_of(key, bytes))
                    .map_or(FeatureRead::Absent, FeatureRead::Done);
            }
        }
        if !self.has(key) || self.disk.fetch(vec![name_of(key)]).is_err() {
            return FeatureRead::Absent;
        }
        self.reading = Some((key, Instant::now()));
        FeatureRead::Pending
    }

    /// Writes features, unless they are there or the writer is behind.
    pub(super) fn write(&self, key: MediaKey, features: &Features) -> mlx::Result<()> {
        if !self.has(key) {
            self.disk.put(name_of(key), bytes_of(key, features)?.into());
        }
        Ok(())
    }
}

fn name_of(key: MediaKey) -> BlockName {
    BlockName { group: 0, key: key.mark() }
}

/// What features are in, by its place in files.
const FLOATS: &[Dtype] = &[Dtype::F32, Dtype::F16, Dtype::Bf16];

/// The key; the number of layers, of rows and of columns, and which of [`FLOATS`] they are in; and the numbers of each layer
/// as f32, which holds all of these.
fn bytes_of(key: MediaKey, features: &Features) -> mlx::Result<Vec<u8>> {
    let [rows, width] = features.rows.dims()?;
    let layers = 1 + features.deepstack.len();
    let mut bytes = key.bytes().to_vec();
    let dtype = features.rows.dtype()?;
    let float = FLOATS.iter().position(|float| *float == dtype);
    let float = float.ok_or_else(|| mlx::Error::new(format!("features in {}", dtype.name())))?;
    for size in [layers, rows as usize, width as usize, float] {
        bytes.extend((size as u32).to_le_bytes());
    }
    for layer in std::iter::once(&features.rows).chain(&features.deepstack) {
        let numbers = layer.astype(Dtype::F32)?.to_vec::<f32>()?;
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    }
    Ok(bytes)
}

/// The features in a file. `None` if they are another key's.
fn features_of(key: MediaKey, bytes: &[u8]) -> Option<Features> {
    let (found, rest) = bytes.split_at_checked(key.bytes().len())?;
    let (sizes, numbers) = rest.split_at_checked(16)?;
    let mut sizes =
        sizes.chunks(4).filter_map(|size| Some(u32::from_le_bytes(size.try_into().ok()?) as usize));
    let (layers, rows, width) = (sizes.next()?, sizes.next()?, sizes.next()?);
    let dtype = *FLOATS.get(sizes.next()?)?;
    let of_layer = rows.checked_mul(width)?.checked_mul(4)?;
    let is_whole = of_layer > 0 && layers > 0 && of_layer.checked_mul(layers)? == numbers.len();
    if found != key.bytes() || !is_whole {
        return None;
    }
    let layer = |bytes: &[u8]| {
        let numbers = bytes.chunks(4).filter_map(|number| Some(f32::from_le_bytes(number.try_into().ok()?)));
        let layer = Array::from_slice(&numbers.collect::<Vec<f32>>(), &[rows as i32, width as i32]);
        layer.and_then(|layer| layer.astype(dtype)).ok()
    };
    let mut layers = numbers.chunks(of_layer).map(layer).collect::<Option<Vec<_>>>()?.into_iter();
    Some(Features { rows: layers.next()?, deepstack: layers.collect() })
}
