//! The exchange of rows on sockets: followers send their parts to the first rank, which sends each of them all others.
//!
//! Invariant: a part is named by the number of its exchange, its rank and its shape, so that ranks that computed different steps
//! find out before they add. What is read is bounded by the shape of the rank's own part.

use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use mlx::{Array, Dtype};
use omnibus_model::Exchange;

/// Wider rows are not exchanged: vocabularies have up to a million tokens.
const WIDTH_MAX: u32 = 1 << 22;
const HEADER_BYTES: usize = 24;

/// The sockets of one rank: the first one has one to each follower, a follower one to the first.
pub(super) struct SocketExchange {
    rank: usize,
    sockets: RefCell<Vec<UnixStream>>,
    /// Exchanges so far.
    count: Cell<u64>,
}

/// One rank's rows, f32, little-endian.
struct Part {
    rank: u32,
    rows: u32,
    width: u32,
    bytes: Vec<u8>,
}

impl SocketExchange {
    /// Of the first rank. `sockets`: to the followers, in rank order.
    pub(super) fn of_first(sockets: Vec<UnixStream>) -> Self {
        Self { rank: 0, sockets: RefCell::new(sockets), count: Cell::new(0) }
    }

    /// Of a follower, with its socket to the first rank.
    pub(super) fn of_follower(rank: usize, socket: UnixStream) -> Self {
        Self { rank, ..Self::of_first(vec![socket]) }
    }

    fn parts(&self, own: Part) -> io::Result<Vec<Part>> {
        let count = self.count.get();
        self.count.set(count + 1);
        let mut sockets = self.sockets.borrow_mut();
        match (self.rank, sockets.as_mut_slice()) {
            (0, followers) => collect(count, own, followers),
            (rank, [first]) => {
                own.write(count, first)?;
                let rows = own.rows;
                let before = (0..rank).map(|of| Part::read(count, of, rows, first));
                let mut parts = before.collect::<io::Result<Vec<_>>>()?;
                parts.push(own);
                // The first rank says how many there are.
                let mut ranks = [0; 4];
                first.read_exact(&mut ranks)?;
                for of in rank + 1..u32::from_le_bytes(ranks) as usize {
                    parts.push(Part::read(count, of, rows, first)?);
                }
                Ok(parts)
            }
            _ => Err(io::Error::other("a follower has one socket")),
        }
    }
}

/// Collects the followers' parts and sends each follower those of the others, in rank order.
fn collect(count: u64, own: Part, followers: &mut [UnixStream]) -> io::Result<Vec<Part>> {
    let (rows, ranks) = (own.rows, followers.len() as u32 + 1);
    let mut parts = vec![own];
    for (index, follower) in followers.iter_mut().enumerate() {
        parts.push(Part::read(count, index + 1, rows, follower)?);
    }
    for (index, follower) in followers.iter_mut().enumerate() {
        for part in parts.iter().take(index + 1) {
            part.write(count, follower)?;
        }
        follower.write_all(&ranks.to_le_bytes())?;
        for part in parts.iter().skip(index + 2) {
            part.write(count, follower)?;
        }
    }
    Ok(parts)
}

impl Part {
    fn of(rank: usize, rows: &Array) -> mlx::Result<Self> {
        let [count, width] = rows.dims()?;
        Ok(Self { rank: rank as u32, rows: count as u32, width: width as u32, bytes: rows.to_bytes()? })
    }

    fn array(&self) -> mlx::Result<Array> {
        Array::from_bytes(&self.bytes, &[self.rows as i32, self.width as i32], Dtype::F32)
    }

    fn write(&self, count: u64, to: &mut impl Write) -> io::Result<()> {
        let mut header = [0; HEADER_BYTES];
        let fields = count.to_le_bytes().into_iter();
        let sizes = [self.rank, self.rows, self.width, 0].into_iter().flat_map(u32::to_le_bytes);
        header.iter_mut().zip(fields.chain(sizes)).for_each(|(to, byte)| *to = byte);
        to.write_all(&header)?;
        to.write_all(&self.bytes)
    }

    /// The part of a rank in this exchange, of so many rows.
    fn read(count: u64, rank: usize, rows: u32, from: &mut impl Read) -> io::Result<Self> {
        let mut words = [[0; 4]; HEADER_BYTES / 4];
        for word in &mut words {
            from.read_exact(word)?;
        }
        let [low, high, of, own_rows, width, _] = words.map(u32::from_le_bytes);
        let number = u64::from(low) | u64::from(high) << 32;
        if (number, of as usize, own_rows) != (count, rank, rows) || width > WIDTH_MAX {
            return Err(io::Error::other(format!(
                "rank {of} sent {own_rows} rows of {width} in exchange {number}, and rank {rank} was to send {rows} in {count}"
            )));
        }
        let mut bytes = vec![0; rows as usize * width as usize * 4];
        from.read_exact(&mut bytes)?;
        Ok(Self { rank: of, rows, width, bytes })
    }
}

impl Exchange for SocketExchange {
    fn gather(&self, own: &Array) -> mlx::Result<Vec<Array>> {
        let parts = self.parts(Part::of(self.rank, &own.astype(Dtype::F32)?)?);
        let parts = parts.map_err(|error| mlx::Error::new(format!("the exchange between ranks: {error}")))?;
        parts.iter().map(Part::array).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn part(rank: usize, rows: u32, width: u32) -> Part {
        let values = (0..rows * width).map(|at| (rank as u32 * 100 + at) as f32);
        Part { rank: rank as u32, rows, width, bytes: values.flat_map(f32::to_le_bytes).collect() }
    }

    fn group(ranks: usize) -> Vec<SocketExchange> {
        let pairs: Vec<_> = (1..ranks).map(|_| UnixStream::pair().unwrap()).collect();
        let (ours, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let followers = theirs.into_iter().enumerate();
        let followers = followers.map(|(index, socket)| SocketExchange::of_follower(index + 1, socket));
        std::iter::once(SocketExchange::of_first(ours)).chain(followers).collect()
    }

    #[test]
    fn each_rank_gets_all_parts_in_rank_order() {
        for ranks in 2..=4 {
            let threads = group(ranks).into_iter().enumerate().map(|(rank, exchange)| {
                thread::spawn(move || {
                    // Larger than a socket's buffer, and of unequal widths.
                    [(3, 5), (700, 900)]
                        .map(|(rows, width)| exchange.parts(part(rank, rows, width + rank as u32)).unwrap())
                })
            });
            for thread in threads.collect::<Vec<_>>() {
                for (parts, (rows, width)) in thread.join().unwrap().iter().zip([(3, 5), (700, 900)]) {
                    assert_eq!(parts.len(), ranks);
                    for (rank, found) in parts.iter().enumerate() {
                        let wanted = part(rank, rows, width + rank as u32);
                        assert!(found.bytes == wanted.bytes && found.rank == wanted.rank);
                    }
                }
            }
        }
    }

    /// More time than any machine needs.
    const LONG: Duration = Duration::from_secs(60);

    /// The first of two ranks makes an exchange of 2 rows; its follower does this. The first may have closed the socket before the
    /// follower has written all.
    fn first_of_two(timeout: Duration, follower: impl FnOnce(UnixStream) + Send + 'static) -> io::Error {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(timeout)).unwrap();
        let thread = thread::spawn(move || follower(theirs));
        let error = SocketExchange::of_first(vec![ours]).parts(part(0, 2, 4)).map(|_| ()).unwrap_err();
        thread.join().unwrap();
        error
    }

    #[test]
    fn a_rank_that_ends_or_is_silent_or_computes_something_else_is_an_error() {
        assert_eq!(first_of_two(LONG, drop).kind(), io::ErrorKind::UnexpectedEof);
        let (keep, kept) = std::sync::mpsc::channel();
        let silent = first_of_two(Duration::from_millis(50), move |socket| keep.send(socket).unwrap());
        assert!(matches!(silent.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{silent}");
        drop(kept);
        let other_rows = first_of_two(LONG, |mut socket| _ = part(1, 3, 4).write(0, &mut socket));
        assert!(other_rows.to_string().contains("sent 3 rows of 4 in exchange 0"), "{other_rows}");
        let other_step = first_of_two(LONG, |mut socket| _ = part(1, 2, 4).write(1, &mut socket));
        assert!(other_step.to_string().contains("in exchange 1"), "{other_step}");
        let too_wide = first_of_two(LONG, |mut socket| {
            _ = Part { rank: 1, rows: 2, width: u32::MAX, bytes: Vec::new() }.write(0, &mut socket);
        });
        assert!(too_wide.to_string().contains("rows of 4294967295"), "{too_wide}");
    }
}
