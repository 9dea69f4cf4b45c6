//! Failures to accept a connection. A full table of descriptors fails every accept until connections end; one line a
//! second says so.
//!
//! Invariant: no clock. Time is an argument.

use std::io;
use std::time::{Duration, Instant};

/// Least time between two lines.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Failures since the last line.
#[derive(Debug, Default)]
pub struct AcceptErrors {
    logged: Option<Instant>,
    /// Since then.
    count: u64,
    /// Since the last line that connections are accepted again.
    run: u64,
    state: LogState,
}

/// What the last line says.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum LogState {
    /// That connections are accepted, or nothing yet.
    #[default]
    Accepting,
    /// That they are not.
    Failing,
}

/// What a failure to accept means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptFailure {
    /// The client gave up; the next connection can be accepted at once.
    OfConnection,
    /// The server lacks something, most often descriptors; so will the next accept.
    OfServer,
}

impl AcceptFailure {
    /// What an error of `accept` means.
    pub fn of(error: &io::Error) -> Self {
        use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
        match error.kind() {
            ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted => Self::OfConnection,
            _ => Self::OfServer,
        }
    }
}

impl AcceptErrors {
    /// Counts a failure. Returns how many a line has to report, if it is time for one.
    pub fn failed(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        self.run += 1;
        let is_due = self.logged.is_none_or(|last| now.saturating_duration_since(last) >= LOG_INTERVAL);
        is_due.then(|| {
            self.logged = Some(now);
            self.state = LogState::Failing;
            std::mem::take(&mut self.count)
        })
    }

    /// A connection was accepted. Returns how many failures came before it, if the last line says that connections fail: a
    /// table that is full and not by turns gives two lines a second at most.
    pub fn accepted(&mut self) -> Option<u64> {
        let state = std::mem::take(&mut self.state);
        (state == LogState::Failing).then(|| std::mem::take(&mut self.run))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_second_has_the_count() {
        let (mut errors, start) = (AcceptErrors::default(), Instant::now());
        let at = |millis: u64| start + Duration::from_millis(millis);
        let logged: Vec<_> = (0..50).filter_map(|tick| errors.failed(at(tick * 50))).collect();
        assert_eq!(logged, [1, 20, 20]);
        assert_eq!(errors.accepted(), Some(50));
        assert_eq!(errors.accepted(), None);
        assert_eq!(errors.failed(at(2_600)), None, "a new failure within the second is counted only");
        assert_eq!(errors.accepted(), None, "no line says that it failed");
        assert_eq!(errors.failed(at(3_100)), Some(11));
        assert_eq!(errors.accepted(), Some(2));
    }

    #[test]
    fn only_the_servers_own_failures_are_waited_for() {
        let of = |kind: io::ErrorKind| AcceptFailure::of(&kind.into());
        assert_eq!(of(io::ErrorKind::ConnectionAborted), AcceptFailure::OfConnection);
        // EMFILE
        assert_eq!(AcceptFailure::of(&io::Error::from_raw_os_error(24)), AcceptFailure::OfServer);
    }
}
