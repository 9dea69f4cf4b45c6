//! The head of a file: metadata, and where its tensors are.
//!
//! Source: ggml `docs/gguf.md`. Invariant: lengths and counts are compared with what the file still has before memory is
//! allocated for them.

use std::collections::BTreeMap;
use std::io::Read;

use crate::error::Problem;
use crate::tensor_type::TensorType;
use crate::value::{Kind, List, Value};

const MAGIC: &[u8; 4] = b"GGUF";
/// Versions with lengths of 64 bits.
const VERSIONS: [u32; 2] = [2, 3];
/// Most entries of metadata, and most tensors.
const ENTRIES_MAX: u64 = 100_000;
/// Longest text, in bytes: templates and tokens are far shorter.
const TEXT_BYTES_MAX: u64 = 16 << 20;
/// Longest name of an entry or a tensor, in bytes.
const NAME_BYTES_MAX: u64 = 1024;
/// Most items of a list: vocabularies have fewer.
const ITEMS_MAX: u64 = 8 << 20;
/// Most dimensions of a tensor.
const DIMENSIONS_MAX: u32 = 4;
/// Where tensors begin unless the file says otherwise, in bytes.
const ALIGNMENT: u64 = 32;

/// A tensor of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name, as llama.cpp has it.
    pub name: String,
    /// Rows first: `[rows, columns]`.
    pub shape: Vec<usize>,
    /// How its numbers are stored.
    pub kind: TensorType,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Bytes of the tensor.
    pub bytes: u64,
}

/// The head of a file.
#[derive(Debug, Clone)]
pub struct Head {
    /// By key.
    pub metadata: BTreeMap<String, Value>,
    /// In the file's order.
    pub tensors: Vec<TensorInfo>,
}

impl Head {
    /// Reads a head. `length`: bytes of the whole file, which tensors may not exceed.
    pub fn read(input: &mut impl Read, length: u64) -> Result<Self, Problem> {
        let mut reader = Reader { input, position: 0, length };
        let magic = reader.array::<4>()?;
        if &magic != MAGIC {
            return Err(Problem::broken("it does not begin with `GGUF`"));
        }
        let version = reader.u32()?;
        if !VERSIONS.contains(&version) {
            return Err(Problem::broken(format!("version {version} is neither 2 nor 3")));
        }
        let (tensors, entries) = (reader.count("tensors")?, reader.count("entries")?);
        let mut metadata = BTreeMap::new();
        for _ in 0..entries {
            let (key, value) = reader.entry()?;
            if metadata.contains_key(&key) {
                return Err(Problem::broken(format!("`{key}` is there twice")));
            }
            metadata.insert(key, value);
        }
        let declared: Vec<Declared> = (0..tensors).map(|_| reader.declared()).collect::<Result<_, _>>()?;
        let data = data_start(&metadata, reader.position)?;
        let tensors =
            declared.into_iter().map(|tensor| tensor.place(data, length)).collect::<Result<_, _>>()?;
        Ok(Self { metadata, tensors })
    }
}

/// Where the tensors' bytes begin.
fn data_start(metadata: &BTreeMap<String, Value>, head_bytes: u64) -> Result<u64, Problem> {
    let alignment = metadata.get("general.alignment").map_or(Some(ALIGNMENT), Value::as_u64);
    alignment
        .filter(|alignment| alignment.is_power_of_two())
        .and_then(|alignment| head_bytes.checked_next_multiple_of(alignment))
        .ok_or_else(|| Problem::broken("`general.alignment` is not a power of two"))
}

/// A tensor as the head names it: its place is relative.
struct Declared {
    name: String,
    shape: Vec<usize>,
    kind: TensorType,
    relative: u64,
}

impl Declared {
    fn place(self, data: u64, length: u64) -> Result<TensorInfo, Problem> {
        let Self { name, shape, kind, relative } = self;
        let broken = |why: &str| Problem::broken(format!("tensor `{name}` {why}"));
        let elements = shape.iter().try_fold(1_usize, |product, axis| product.checked_mul(*axis));
        let elements = elements.ok_or_else(|| broken("is larger than any memory"))?;
        let columns = shape.last().copied().unwrap_or(1);
        if elements == 0 || !columns.is_multiple_of(kind.block_elements()) {
            return Err(broken(&format!("has rows of {columns}, which {} cannot hold", kind.name())));
        }
        let blocks = elements / kind.block_elements();
        let bytes = (blocks as u64).checked_mul(kind.block_bytes() as u64);
        let offset = data.checked_add(relative);
        let end = bytes.zip(offset).and_then(|(bytes, offset)| bytes.checked_add(offset));
        match (bytes, offset, end) {
            (Some(bytes), Some(offset), Some(end)) if end <= length => {
                Ok(TensorInfo { name, shape, kind, offset, bytes })
            }
            _ => Err(broken("lies beyond the end of the file")),
        }
    }
}

struct Reader<'a, R> {
    input: &'a mut R,
    position: u64,
    length: u64,
}

impl<R: Read> Reader<'_, R> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes).map_err(|_| Problem::broken("it ends inside its head"))?;
        self.position += N as u64;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, Problem> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Problem> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn count(&mut self, what: &str) -> Result<u64, Problem> {
        let count = self.u64()?;
        if count > ENTRIES_MAX {
            return Err(Problem::broken(format!("{count} {what} are more than any model has")));
        }
        Ok(count)
    }

    /// Refuses lengths that the file cannot have.
    fn within(&self, bytes: Option<u64>) -> Result<(), Problem> {
        let left = self.length.saturating_sub(self.position);
        match bytes {
            Some(bytes) if bytes <= left => Ok(()),
            _ => Err(Problem::broken("a length in its head is beyond the end of the file")),
        }
    }

    fn text(&mut self, most: u64) -> Result<String, Problem> {
        let length = self.u64()?;
        if length > most {
            return Err(Problem::broken(format!("a text of {length} bytes is too long")));
        }
        self.within(Some(length))?;
        let mut bytes = vec![0; length as usize];
        self.input.read_exact(&mut bytes).map_err(|_| Problem::broken("it ends inside its head"))?;
        self.position += length;
        String::from_utf8(bytes).map_err(|_| Problem::broken("a text in its head is not UTF-8"))
    }

    fn entry(&mut self) -> Result<(String, Value), Problem> {
        let key = self.text(NAME_BYTES_MAX)?;
        let kind = self.kind(&key)?;
        let value = match kind {
            Kind::List => self.list(&key)?,
            kind => self.value(kind)?,
        };
        Ok((key, value))
    }

    fn kind(&mut self, key: &str) -> Result<Kind, Problem> {
        let number = self.u32()?;
        Kind::of(number).ok_or_else(|| Problem::broken(format!("`{key}` is of the unknown type {number}")))
    }

    /// A value that is no list.
    fn value(&mut self, kind: Kind) -> Result<Value, Problem> {
        Ok(match kind {
            Kind::U8 => Value::Unsigned(u64::from(u8::from_le_bytes(self.array()?))),
            Kind::U16 => Value::Unsigned(u64::from(u16::from_le_bytes(self.array()?))),
            Kind::U32 => Value::Unsigned(u64::from(self.u32()?)),
            Kind::U64 => Value::Unsigned(self.u64()?),
            Kind::I8 => Value::Signed(i64::from(i8::from_le_bytes(self.array()?))),
            Kind::I16 => Value::Signed(i64::from(i16::from_le_bytes(self.array()?))),
            Kind::I32 => Value::Signed(i64::from(i32::from_le_bytes(self.array()?))),
            Kind::I64 => Value::Signed(i64::from_le_bytes(self.array()?)),
            Kind::F32 => Value::Float(f64::from(f32::from_le_bytes(self.array()?))),
            Kind::F64 => Value::Float(f64::from_le_bytes(self.array()?)),
            Kind::Truth => Value::Truth(self.array::<1>()? != [0]),
            Kind::Text => Value::Text(self.text(TEXT_BYTES_MAX)?),
            Kind::List => return Err(Problem::broken("it holds lists of lists")),
        })
    }

    fn list(&mut self, key: &str) -> Result<Value, Problem> {
        let kind = self.kind(key)?;
        let count = self.u64()?;
        if count > ITEMS_MAX {
            return Err(Problem::broken(format!("`{key}` has {count} items, more than any model has")));
        }
        self.within(count.checked_mul(kind.bytes_min()))?;
        // Memory grows with what is read, not with what the head says.
        Ok(Value::List(match kind {
            Kind::Text => {
                List::Texts((0..count).map(|_| self.text(TEXT_BYTES_MAX)).collect::<Result<_, _>>()?)
            }
            Kind::F32 => List::Floats(
                (0..count).map(|_| Ok(f32::from_le_bytes(self.array()?))).collect::<Result<_, _>>()?,
            ),
            kind => {
                let number = |_| {
                    self.value(kind)?
                        .as_i64()
                        .ok_or_else(|| Problem::broken(format!("`{key}` holds no whole numbers")))
                };
                List::Integers((0..count).map(number).collect::<Result<_, _>>()?)
            }
        }))
    }

    fn declared(&mut self) -> Result<Declared, Problem> {
        let name = self.text(NAME_BYTES_MAX)?;
        let dimensions = self.u32()?;
        if !(1..=DIMENSIONS_MAX).contains(&dimensions) {
            return Err(Problem::broken(format!("tensor `{name}` has {dimensions} dimensions")));
        }
        let mut shape: Vec<usize> = (0..dimensions)
            .map(|_| Ok(usize::try_from(self.u64()?).unwrap_or(usize::MAX)))
            .collect::<Result<_, _>>()?;
        // ggml names the columns first.
        shape.reverse();
        let kind = TensorType::of(self.u32()?).map_err(|kind| {
            Problem::unsupported(format!("tensor `{name}` is of the type {kind}, which is not read"))
        })?;
        Ok(Declared { name, shape, kind, relative: self.u64()? })
    }
}
