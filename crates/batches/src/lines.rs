//! Requests of a file, one by one, in an order that the prefix cache likes.
//!
//! Invariant: the bytes of one request are in memory, and the first bytes of a window's.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use crate::line::Line;
use crate::prefix::prefix;

/// Requests that are sorted at a time.
const WINDOW: usize = 2048;

/// Where a line is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The hash of its `custom_id`.
    pub(crate) id: u128,
    pub(crate) start: u64,
    pub(crate) len: usize,
}

/// The requests of a checked file.
#[derive(Debug)]
pub struct Lines {
    file: File,
    urls: Arc<[String]>,
    places: Arc<[Place]>,
    /// The first place behind the window.
    next: usize,
    window: VecDeque<Place>,
}

impl Lines {
    pub(crate) fn new(file: File, urls: Arc<[String]>, places: Arc<[Place]>) -> Self {
        Self { file, urls, places, next: 0, window: VecDeque::new() }
    }

    /// The next request, without those that are done, by the hashes of their names. Fails where the file changed.
    pub fn next_line(&mut self, is_done: impl Fn(u128) -> bool) -> Option<io::Result<Line>> {
        loop {
            if self.window.is_empty() {
                match self.fill(&is_done) {
                    Ok(0) => return None,
                    Ok(_) => {}
                    Err(error) => return Some(Err(error)),
                }
            }
            let place = self.window.pop_front()?;
            if !is_done(place.id) {
                return Some(self.read(place));
            }
        }
    }

    /// Sorts the next window by what its prompts begin with. Equal ones stay in the order of the file.
    fn fill(&mut self, is_done: &impl Fn(u128) -> bool) -> io::Result<usize> {
        let mut keyed = Vec::new();
        while keyed.len() < WINDOW
            && let Some(place) = self.places.get(self.next).copied()
        {
            self.next += 1;
            if !is_done(place.id) {
                keyed.push((prefix(&self.read(place)?.body), place));
            }
        }
        keyed.sort_by(|(one, _), (other, _)| one.cmp(other));
        self.window = keyed.into_iter().map(|(_, place)| place).collect();
        Ok(self.window.len())
    }

    fn read(&mut self, place: Place) -> io::Result<Line> {
        let mut text = vec![0; place.len];
        self.file.seek(SeekFrom::Start(place.start))?;
        self.file.read_exact(&mut text)?;
        let urls: Vec<&str> = self.urls.iter().map(String::as_str).collect();
        Line::read(&text, &urls).map_err(|why| {
            io::Error::new(io::ErrorKind::InvalidData, format!("changed while it was read: {why}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::input::{Input, Rules};

    #[test]
    fn requests_that_begin_alike_are_neighbours_and_done_ones_are_left_out() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let line = |id: usize| {
            let system = if id.is_multiple_of(2) { "be brief" } else { "be kind" };
            let body = serde_json::json!({"max_tokens": id, "messages": [
                {"role": "system", "content": system}, {"role": "user", "content": format!("{id}")},
            ]});
            format!("{}\n", serde_json::json!({"custom_id": id.to_string(), "url": "/x", "body": body}))
        };
        std::fs::write(file.path(), (0..6).map(line).collect::<String>()).unwrap();
        let input = Input::open(file.path(), Rules { urls: &["/x"], lines_max: 9 }).unwrap();
        let mut lines = input.lines().unwrap();
        let done = crate::custom_id_hash("3");
        let next = || lines.next_line(|id| id == done);
        let ids: Vec<String> = std::iter::from_fn(next).map(|line| line.unwrap().custom_id).collect();
        assert_eq!(ids, ["0", "2", "4", "1", "5"]);
    }
}
