//! Messages on a socket: the length in four bytes, little-endian, then postcard.
//!
//! Invariant: no message's meaning. What is read is bounded before memory is allocated for it.

use std::io::{self, BufWriter, Read, Write};

use postcard::ser_flavors::{Flavor, Size};
use postcard::serialize_with_flavor;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Larger than any message: a prompt of a million tokens is about four megabytes.
const BYTES_MAX: u32 = 1 << 28;

/// Small messages are written together; what is larger in a message, as pixels are, is written from where it lies.
pub(crate) const BUFFER_BYTES: usize = 1 << 16;

/// Writes messages.
pub(crate) fn write<T: Serialize>(to: &mut impl Write, messages: &[T]) -> io::Result<()> {
    let mut to = BufWriter::with_capacity(BUFFER_BYTES, to);
    for message in messages {
        let length = serialize_with_flavor(message, Size::default()).map_err(io::Error::other)?;
        let length = u32::try_from(length).ok().filter(|length| *length <= BYTES_MAX);
        let length =
            length.ok_or_else(|| io::Error::other(format!("a message is over {BYTES_MAX} bytes")))?;
        to.write_all(&length.to_le_bytes())?;
        let mut result = Ok(());
        let written = serialize_with_flavor(message, Stream { to: &mut to, result: &mut result });
        // What the socket said comes before what postcard makes of it.
        result.and(written.map_err(io::Error::other))?;
    }
    to.flush()
}

/// Writes what is serialized.
struct Stream<'a, W> {
    to: &'a mut W,
    result: &'a mut io::Result<()>,
}

impl<W: Write> Flavor for Stream<'_, W> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.try_extend(&[byte])
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        *self.result = self.to.write_all(bytes);
        self.result.as_ref().map_err(|_| postcard::Error::SerializeBufferFull).copied()
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Reads one message; `None` when the other side has closed the socket, even inside a message.
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let Some(bytes) = read_bytes(from)? else { return Ok(None) };
    postcard::from_bytes(&bytes).map(Some).map_err(io::Error::other)
}

/// Copies one message as it is; false when the other side has closed the socket.
pub(crate) fn relay(from: &mut impl Read, to: &mut impl Write) -> io::Result<bool> {
    let Some(bytes) = read_bytes(from)? else { return Ok(false) };
    to.write_all(&(bytes.len() as u32).to_le_bytes())?;
    to.write_all(&bytes)?;
    Ok(true)
}

/// The bytes of one message.
fn read_bytes(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    if !fill(from, &mut length)? {
        return Ok(None);
    }
    let length = u32::from_le_bytes(length);
    if length > BYTES_MAX {
        return Err(io::Error::other(format!("a message of {length} bytes is over {BYTES_MAX}")));
    }
    let mut bytes = vec![0; length as usize];
    Ok(fill(from, &mut bytes)?.then_some(bytes))
}

/// False when there is no more.
fn fill(from: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if is_hang_up(error.kind()) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_hang_up(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}
