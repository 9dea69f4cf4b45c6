//! Stop strings, also where they span tokens.

/// Whether a matched stop string is part of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The output ends with it.
    Yes,
    /// The output ends before it.
    No,
}

/// The result of one piece of text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stopped {
    /// Text that is certain: no part of it can become a stop string.
    pub emit: String,
    /// The index of the stop string that matched.
    pub matched: Option<usize>,
}

/// Finds the first stop string in streamed text.
///
/// The stop string that is complete first ends the text; of those that are complete at the same place, the one
/// that starts first. Text is held back only while it is the start of a stop string. A byte costs the same
/// whatever came before: the automaton of Knuth, Morris and Pratt, one for each stop string.
#[derive(Debug, Clone)]
pub struct StopMatcher {
    stops: Vec<Needle>,
    keep: Keep,
    /// Text that may be the start of a stop string.
    held: String,
    matched: Option<usize>,
}

#[derive(Debug, Clone)]
struct Needle {
    bytes: Vec<u8>,
    /// For each length of a matched start: the longest shorter start that ends it.
    falls_to: Vec<usize>,
    /// How many bytes of the needle the text ends with.
    matched: usize,
    /// The index in the caller's list.
    place: usize,
}

impl StopMatcher {
    /// A matcher of these strings. An empty string never matches.
    pub fn new(stops: Vec<String>, keep: Keep) -> Self {
        let stops = stops.into_iter().enumerate().filter(|(_, stop)| !stop.is_empty());
        let stops = stops.map(|(place, stop)| Needle::new(stop.into_bytes(), place)).collect();
        StopMatcher { stops, keep, held: String::new(), matched: None }
    }

    /// Takes the next piece of text. After a match the output is empty.
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

    /// The text still held back, at the end of the sequence.
    pub fn flush(&mut self) -> String {
        for stop in &mut self.stops {
            stop.matched = 0;
        }
        std::mem::take(&mut self.held)
    }

    /// Advances all needles by one byte. Returns the index and length of the longest complete one.
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
