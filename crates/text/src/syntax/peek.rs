//! Reading ahead: every function takes from the front of the text, or says that it is not there or not there yet.

use super::Stop;

/// The longest name of a function or parameter, in bytes.
const MAX_NAME: usize = 256;

/// Text that may grow at its end, unless it has ended.
#[derive(Debug, Clone)]
pub(crate) struct Peek<'a> {
    rest: &'a str,
    ended: bool,
    taken: usize,
}

impl<'a> Peek<'a> {
    pub fn new(rest: &'a str, ended: bool) -> Self {
        Self { rest, ended, taken: 0 }
    }

    /// Bytes taken so far.
    pub fn taken(&self) -> usize {
        self.taken
    }

    pub fn rest(&self) -> &'a str {
        self.rest
    }

    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Nothing is left, and nothing comes.
    pub fn is_end(&self) -> bool {
        self.ended && self.rest.is_empty()
    }

    pub fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.rest = rest;
        self.taken += taken.len();
        taken
    }

    /// The text that is known does not decide.
    pub fn undecided(&self) -> Stop {
        if self.ended { Stop::No } else { Stop::More }
    }

    pub fn literal(&mut self, literal: &str) -> Result<(), Stop> {
        if self.rest.starts_with(literal) {
            self.take(literal.len());
            return Ok(());
        }
        Err(if literal.starts_with(self.rest) { self.undecided() } else { Stop::No })
    }

    /// Takes the literal if it is there.
    pub fn optional(&mut self, literal: &str) -> Result<bool, Stop> {
        match self.literal(literal) {
            Ok(()) => Ok(true),
            Err(Stop::No) => Ok(false),
            Err(Stop::More) => Err(Stop::More),
        }
    }

    /// Takes the first of the literals that is there.
    pub fn one_of(&mut self, literals: &[&str]) -> Result<usize, Stop> {
        for (index, literal) in literals.iter().enumerate() {
            if self.optional(literal)? {
                return Ok(index);
            }
        }
        Err(Stop::No)
    }

    /// The next char, which is not taken.
    pub fn char(&self) -> Result<char, Stop> {
        self.rest.chars().next().ok_or(self.undecided())
    }

    /// Takes whitespace, of which there may be more.
    pub fn whitespace(&mut self) -> Result<(), Stop> {
        let rest = self.rest.trim_start();
        self.take(self.rest.len() - rest.len());
        if rest.is_empty() && !self.ended { Err(Stop::More) } else { Ok(()) }
    }

    /// Takes the text before `end`, and `end`. At most `limit` bytes.
    pub fn until(&mut self, end: &str, limit: usize) -> Result<&'a str, Stop> {
        match self.rest.find(end) {
            Some(at) if at <= limit => {
                let text = self.take(at);
                self.take(end.len());
                Ok(text)
            }
            None if self.rest.len() <= limit => Err(self.undecided()),
            _ => Err(Stop::No),
        }
    }

    /// Takes a name up to one of these chars, which is not taken. A name is one line, without brackets
    /// and quotes; space around it is dropped.
    pub fn name(&mut self, ends: &[char]) -> Result<&'a str, Stop> {
        let Some(at) = self.rest.find(|c: char| ends.contains(&c) || c.is_control()) else {
            return Err(if self.rest.len() <= MAX_NAME { self.undecided() } else { Stop::No });
        };
        let is_end = self.rest.get(at..).is_some_and(|rest| rest.starts_with(ends));
        let name = self.rest.get(..at).unwrap_or_default().trim();
        let is_name = !name.is_empty() && !name.contains(['{', '}', '<', '>', '"']);
        if !is_end || !is_name || at > MAX_NAME {
            return Err(Stop::No);
        }
        self.take(at);
        Ok(name)
    }

    /// Takes a JSON string.
    pub fn json_string(&mut self) -> Result<String, Stop> {
        let rest = self.rest.strip_prefix('"').ok_or(if self.rest.is_empty() {
            self.undecided()
        } else {
            Stop::No
        })?;
        let mut is_escaped = false;
        let end = rest.find(|c: char| {
            let is_end = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            is_end
        });
        let end = end.ok_or(self.undecided())?;
        let text = self.take(end + 2);
        serde_json::from_str(text).map_err(|_| Stop::No)
    }
}
