//! Finds tests that hang, in what a test program prints.
//!
//! A program with several threads names a test that has run for a minute, and one with a single thread prints a test's
//! name before it runs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// When a program is ended.
#[derive(Clone, Copy)]
pub enum Limit {
    None,
    /// A test program: when a test ran for as long, or nothing was printed for as long.
    Tests(Duration),
}

/// What libtest says of a test after [`NAMED_AFTER`].
const NAMED: &str = " has been running for over 60 seconds";
const NAMED_AFTER: Duration = Duration::from_secs(60);

pub struct Watch {
    limit: Limit,
    last_output: Instant,
    /// The line that has no end yet.
    line: String,
    /// Tests that were named, and when they began.
    slow: BTreeMap<String, Instant>,
}

impl Watch {
    pub fn new(limit: Limit, now: Instant) -> Self {
        Self { limit, last_output: now, line: String::new(), slow: BTreeMap::new() }
    }

    /// Reads the next piece of output.
    pub fn read(&mut self, piece: &[u8], now: Instant) {
        self.last_output = now;
        self.line += &String::from_utf8_lossy(piece);
        while let Some(end) = self.line.find('\n') {
            let line: String = self.line.drain(..=end).collect();
            self.read_line(line.trim_end(), now);
        }
    }

    fn read_line(&mut self, line: &str, now: Instant) {
        let Some(test) = line.strip_prefix("test ") else { return };
        if let Some(name) = test.strip_suffix(NAMED) {
            self.slow.insert(name.to_owned(), now.checked_sub(NAMED_AFTER).unwrap_or(now));
        } else if let Some((name, _)) = test.split_once(" ... ") {
            self.slow.remove(name);
        }
    }

    /// Why the program should be ended.
    pub fn too_long(&self, now: Instant) -> Option<String> {
        let Limit::Tests(limit) = self.limit else { return None };
        let over = |since: Instant| now.saturating_duration_since(since) >= limit;
        let seconds = limit.as_secs_f64();
        if let Some((name, _)) = self.slow.iter().find(|(_, since)| over(**since)) {
            return Some(format!("the test `{name}` ran for {seconds} s and was ended"));
        }
        if !over(self.last_output) {
            return None;
        }
        // The name comes without the end of its line.
        let started = self.line.strip_prefix("test ").and_then(|test| test.split_once(" ... "));
        Some(match started {
            Some((name, _)) => format!("the test `{name}` ran for {seconds} s and was ended"),
            None => format!("printed nothing for {seconds} s and was ended"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::{Job, run};
    use super::*;

    const LIMIT: Duration = Duration::from_secs(100);

    fn after(text: &str, seconds: u64) -> Option<String> {
        let now = Instant::now();
        let mut watch = Watch::new(Limit::Tests(LIMIT), now);
        watch.read(text.as_bytes(), now);
        // Something is printed all the time.
        watch.read(b"note\n", now + Duration::from_secs(seconds));
        watch.too_long(now + Duration::from_secs(seconds))
    }

    #[test]
    fn a_named_test_has_the_limit_less_a_minute() {
        let text = "test a::b has been running for over 60 seconds\n";
        assert_eq!(after(text, 39), None);
        assert_eq!(after(text, 40), Some("the test `a::b` ran for 100 s and was ended".to_owned()));
        assert_eq!(after(&format!("{text}test a::b ... ok\n"), 500), None);
    }

    #[test]
    fn silence_has_the_limit() {
        let now = Instant::now();
        let watch = Watch::new(Limit::Tests(LIMIT), now);
        assert_eq!(watch.too_long(now + Duration::from_secs(99)), None);
        assert_eq!(watch.too_long(now + LIMIT), Some("printed nothing for 100 s and was ended".to_owned()));
        assert_eq!(Watch::new(Limit::None, now).too_long(now + LIMIT), None);
    }

    /// The program of the test below.
    #[test]
    #[ignore = "never ends"]
    fn never_ends() {
        loop {
            std::thread::park();
        }
    }

    #[test]
    fn a_test_program_that_hangs_is_ended_and_its_test_named() {
        let Ok(program) = std::env::current_exe() else { panic!("a test is a program") };
        let mut command = Command::new(program);
        command.args(["jobs::watch::tests::never_ends", "--exact", "--ignored", "--test-threads=1"]);
        let job = Job::new("hangs", command).limited(Duration::from_secs(2));
        let why = run(vec![job], 1).err().unwrap_or_default();
        assert_eq!(why, "hangs: the test `jobs::watch::tests::never_ends` ran for 2 s and was ended");
    }
}
