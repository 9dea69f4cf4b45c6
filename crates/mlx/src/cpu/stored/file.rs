//! A file that is read while its experts are in use, and how a change of it is noticed.

use std::fs::{File, Metadata};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// A file as it was when it was opened.
#[derive(Debug)]
pub struct StoredFile {
    file: File,
    /// For messages: without its folders, as clients see them.
    name: String,
    version: Version,
}

/// What a write changes.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    bytes: u64,
    modified: Option<SystemTime>,
}

impl Version {
    fn of(metadata: &Metadata) -> Self {
        Self { bytes: metadata.len(), modified: metadata.modified().ok() }
    }
}

impl StoredFile {
    /// Opens a file for reading. One that replaces it under its name later is not read.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let file = File::open(path)?;
        let version = Version::of(&file.metadata()?);
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(Self { file, name, version })
    }

    /// Fills `bytes` from `offset` on. Fails if the file was written since it was opened.
    fn read(&self, bytes: &mut [u8], offset: u64) -> Result<(), String> {
        let failed = |error| format!("experts cannot be read from {}: {error}", self.name);
        // The version is read after the bytes: what was written before is seen.
        let read = self.file.read_exact_at(bytes, offset);
        if Version::of(&self.file.metadata().map_err(failed)?) != self.version {
            return Err(format!("{} was changed while it is served: restart the server", self.name));
        }
        read.map_err(failed)
    }
}

/// Where a tensor lies in a file.
#[derive(Clone, Debug)]
pub struct FileRange {
    /// The file.
    pub file: Arc<StoredFile>,
    /// Of the first byte.
    pub offset: u64,
    /// Length.
    pub bytes: u64,
}

/// Where a tensor of all experts lies.
#[derive(Clone, Debug)]
pub enum ExpertRange {
    /// One expert behind the other.
    Stacked(FileRange),
    /// Each expert's in a place of its own, in their order.
    Single(Vec<FileRange>),
}

impl ExpertRange {
    /// Whether it has so many bytes for each of so many experts.
    pub(super) fn holds(&self, experts: usize, bytes: usize) -> bool {
        match self {
            Self::Stacked(range) => range.bytes == (experts * bytes) as u64,
            Self::Single(ranges) => {
                ranges.len() == experts && ranges.iter().all(|range| range.bytes == bytes as u64)
            }
        }
    }

    /// The file with an expert of so many bytes, and where it begins.
    fn of(&self, expert: u32, bytes: usize) -> Result<(&StoredFile, u64), String> {
        match self {
            Self::Stacked(range) => Ok((&range.file, range.offset + u64::from(expert) * bytes as u64)),
            Self::Single(ranges) => {
                let range =
                    ranges.get(expert as usize).ok_or_else(|| format!("there is no expert {expert}"))?;
                Ok((&range.file, range.offset))
            }
        }
    }
}

/// Sixteen floats: what kernels load at once.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "read and written as bytes")] [u8; LINE]);

const LINE: usize = 64;

/// An expert's words, scales and biases, each from a line of its own on.
pub(super) struct Buffer(Vec<Line>);

impl Buffer {
    fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.0.len() * LINE;
        // SAFETY: a line is as large as its bytes, without padding, and any byte is valid.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), bytes) }
    }
}

/// The tensors of a stack of experts: each is read by the bytes of one expert.
pub(super) struct StackFiles {
    pub(super) experts: usize,
    /// Words, and of packed weights scales and biases; with the bytes of one expert.
    pub(super) ranges: Vec<(ExpertRange, usize)>,
}

impl StackFiles {
    /// Bytes that one expert takes in memory.
    pub(super) fn expert_bytes(&self) -> u64 {
        self.ranges.iter().map(|(_, bytes)| bytes.next_multiple_of(LINE) as u64).sum()
    }

    /// Bytes that are read for one expert.
    pub(super) fn read_bytes(&self) -> u64 {
        self.ranges.iter().map(|(_, bytes)| *bytes as u64).sum()
    }

    /// Memory for one expert: `spare` if it is as long, which costs no fresh pages.
    pub(super) fn buffer(&self, spare: Option<Buffer>) -> Buffer {
        let lines = self.expert_bytes() as usize / LINE;
        spare.filter(|buffer| buffer.0.len() == lines).unwrap_or_else(|| Buffer(vec![Line([0; LINE]); lines]))
    }

    /// Reads an expert.
    pub(super) fn read(&self, expert: u32, buffer: &mut Buffer) -> Result<(), String> {
        let mut rest = buffer.bytes_mut();
        for (range, bytes) in &self.ranges {
            let Some((part, after)) = rest.split_at_mut_checked(bytes.next_multiple_of(LINE)) else {
                return Err("a buffer is shorter than an expert".to_owned());
            };
            let (file, offset) = range.of(expert, *bytes)?;
            file.read(part.get_mut(..*bytes).unwrap_or_default(), offset)?;
            rest = after;
        }
        Ok(())
    }

    /// Where the tensors of a resident expert are.
    pub(super) fn addresses(&self, buffer: &Buffer) -> [*const u8; 3] {
        let mut addresses = [std::ptr::null(); 3];
        let mut line = 0;
        for (address, (_, bytes)) in addresses.iter_mut().zip(&self.ranges) {
            *address = buffer.0.as_ptr().wrapping_add(line).cast();
            line += bytes.div_ceil(LINE);
        }
        addresses
    }
}
