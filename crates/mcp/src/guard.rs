//! A reader of what a server writes, which ends when a line is too long or when there is too much.
//!
//! Invariant: memory stays within one longest line, whatever the server writes.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

/// Longest line: one message.
pub const LINE_BYTES_MAX: usize = 8 << 20;
/// How long lines and bytes are counted.
const WINDOW: Duration = Duration::from_secs(10);
/// Most lines in that time.
const LINES_MAX: usize = 20_000;
/// Most bytes in that time.
const BYTES_MAX: usize = 128 << 20;

/// Why the reader ended.
pub type Breach = Arc<OnceLock<String>>;

/// Reads what a server writes.
pub struct GuardedReader<R> {
    inner: R,
    meter: Meter,
    start: Instant,
    breach: Breach,
}

impl<R> GuardedReader<R> {
    /// Reads from `inner`.
    pub fn new(inner: R) -> Self {
        Self { inner, meter: Meter::default(), start: Instant::now(), breach: Breach::default() }
    }

    /// Where the reason will stand, if it ends.
    pub fn breach(&self) -> Breach {
        Arc::clone(&self.breach)
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for GuardedReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let now = self.start.elapsed();
        let new = buffer.filled().get(before..).unwrap_or_default();
        match self.meter.take(new, now) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(why) => {
                _ = self.breach.set(why.clone());
                Poll::Ready(Err(io::Error::other(why)))
            }
        }
    }
}

/// Counts lines and bytes.
#[derive(Debug, Default)]
struct Meter {
    /// Bytes of the line that has not ended.
    line: usize,
    /// When the window began.
    since: Duration,
    lines: usize,
    bytes: usize,
}

impl Meter {
    fn take(&mut self, new: &[u8], now: Duration) -> Result<(), String> {
        if now.saturating_sub(self.since) >= WINDOW {
            (self.since, self.lines, self.bytes) = (now, 0, 0);
        }
        self.bytes += new.len();
        let mut parts = new.split(|byte| *byte == b'\n');
        self.line += parts.next().map_or(0, <[u8]>::len);
        if self.line > LINE_BYTES_MAX {
            return Err(format!("it sent a message of more than {LINE_BYTES_MAX} bytes"));
        }
        for part in parts {
            self.lines += 1;
            self.line = part.len();
        }
        if self.lines > LINES_MAX || self.bytes > BYTES_MAX {
            return Err(format!(
                "it sent more than {LINES_MAX} messages or {BYTES_MAX} bytes within {} s",
                WINDOW.as_secs()
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_may_have_its_limit_and_no_more() {
        let mut meter = Meter::default();
        let half = vec![b'x'; LINE_BYTES_MAX / 2];
        for _ in 0..3 {
            meter.take(&half, Duration::ZERO).unwrap();
            meter.take(&half, Duration::ZERO).unwrap();
            meter.take(b"\nab", Duration::ZERO).unwrap();
            meter.take(b"\n", Duration::ZERO).unwrap();
        }
        meter.take(&half, Duration::ZERO).unwrap();
        meter.take(&half, Duration::ZERO).unwrap();
        assert!(meter.take(b"x", Duration::ZERO).unwrap_err().contains("8388608 bytes"));
    }

    #[test]
    fn a_flood_ends_and_a_slow_stream_does_not() {
        let lines = |count: usize| "{}\n".repeat(count);
        let mut meter = Meter::default();
        meter.take(lines(LINES_MAX).as_bytes(), Duration::ZERO).unwrap();
        meter.take(lines(LINES_MAX).as_bytes(), WINDOW).unwrap();
        assert!(meter.take(b"{}\n", WINDOW + Duration::from_secs(9)).unwrap_err().contains("messages"));
    }
}
