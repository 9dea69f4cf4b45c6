//! Stop strings, also where they span tokens.

/// Whether a stop string that was found is part of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// It is the last thing that is emitted.
    Yes,
    /// The text ends before it.
    No,
}

/// What a piece of text led to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stopped {
    /// Text that can be shown: it is no part of a stop string that may still come.
    pub emit: String,
    /// The stop string that ended the text, by its place in the list.
    pub matched: Option<usize>,
}

/// Finds the first stop string in a text that comes in pieces.
///
/// The stop string that is complete first ends the text; of those that are complete at the same place, the one
/// that starts first. Text is held back only while it is the start of a stop string. A byte costs the same
/// whatever came before: the automaton of Knuth, Morris and Pratt, one for each stop string.
#[derive(Debug, Clone)]
pub struct StopMatcher {
    stops: Vec<Needle>,
    keep: Keep,
    /// The text that may be the start of a stop string.
    held: String,
    matched: Option<usize>,
}

#[derive(Debug, Clone)]
struct Needle {
    bytes: Vec<u8>,
    /// For each length of a matched start: the longest shorter start that ends it.
    falls_to: Vec<usize>,
    /// How much of the needle the text ends with.
    matched: usize,
    /// The place in the caller's list.
    place: usize,
}

impl StopMatcher {
    /// A matcher of these strings; empty ones match nothing.
    pub fn new(stops: Vec<String>, keep: Keep) -> Self {
        let stops = stops.into_iter().enumerate().filter(|(_, stop)| !stop.is_empty());
        let stops = stops.map(|(place, stop)| Needle::new(stop.into_bytes(), place)).collect();
        StopMatcher { stops, keep, held: String::new(), matched: None }
    }

    /// Takes the next piece of text. After a match nothing more is emitted.
    pub fn push(&mut self, text: &str) -> Stopped {
        if self.matched.is_some() {
            return Stopped { emit: String::new(), matched: self.matched };
        }
        let before = self.held.len();
        self.held.push_str(text);
        for (at, byte) in text.bytes().enumerate() {
            let end = before + at + 1;
            if let Some((place, length)) = self.step(byte) {
                self.matched = Some(place);
                let mut emit = std::mem::take(&mut self.held);
                emit.truncate(if self.keep == Keep::Yes { end } else { end - length });
                return Stopped { emit, matched: self.matched };
            }
        }
        let waiting = self.stops.iter().map(|stop| stop.matched).max().unwrap_or(0);
        let held = self.held.split_off(self.held.len() - waiting);
        Stopped { emit: std::mem::replace(&mut self.held, held), matched: None }
    }

    /// The text that was held back, when no more comes.
    pub fn flush(&mut self) -> String {
        for stop in &mut self.stops {
            stop.matched = 0;
        }
        std::mem::take(&mut self.held)
    }

    /// Moves all needles on by a byte. Returns the longest that is complete, by its place and length.
    fn step(&mut self, byte: u8) -> Option<(usize, usize)> {
        let mut found: Option<(usize, usize)> = None;
        for stop in &mut self.stops {
            let is_complete = stop.step(byte);
            if is_complete && found.is_none_or(|(_, length)| stop.bytes.len() > length) {
                found = Some((stop.place, stop.bytes.len()));
            }
        }
        found
    }
}

impl Needle {
    fn new(bytes: Vec<u8>, place: usize) -> Self {
        let mut falls_to = vec![0; bytes.len() + 1];
        let mut length = 0;
        for at in 1..bytes.len() {
            while length > 0 && bytes[length] != bytes[at] {
                length = falls_to[length];
            }
            if bytes[length] == bytes[at] {
                length += 1;
            }
            falls_to[at + 1] = length;
        }
        Needle { bytes, falls_to, matched: 0, place }
    }

    /// Whether `byte` completes the needle.
    fn step(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.bytes[self.matched] != byte {
            self.matched = self.falls_to[self.matched];
        }
        if self.bytes[self.matched] == byte {
            self.matched += 1;
        }
        self.matched == self.bytes.len()
    }
}
