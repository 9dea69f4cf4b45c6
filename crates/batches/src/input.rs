//! The file of requests: read once to check it, and then line by line where a request begins.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::line::{Line, LineError, custom_id_hash, trimmed};
use crate::lines::{Lines, Place};

/// Most bytes of a line.
const LINE_MAX: usize = 64 << 20;
/// Most problems of one file that are reported.
const PROBLEMS_MAX: usize = 100;

/// What a file may have.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// The paths that its lines may have.
    pub urls: &'a [&'a str],
    /// Most lines.
    pub lines_max: usize,
}

/// A checked file of requests.
#[derive(Debug)]
pub struct Input {
    path: PathBuf,
    urls: Arc<[String]>,
    places: Arc<[Place]>,
    model: Option<String>,
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// For programs.
    pub code: String,
    /// The number of the line, from 1 on; `None` for the file.
    pub line: Option<usize>,
    /// For people.
    pub message: String,
    /// The field at fault.
    pub param: Option<String>,
}

/// Why a file cannot be used.
#[derive(Debug, Error)]
pub enum InputError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// It has lines that are no requests, or too many. The first ones; at least one.
    #[error("{} problems", .0.len())]
    Problems(Vec<Problem>),
}

impl Problem {
    fn of_line(line: usize, error: LineError) -> Self {
        let LineError { code, param, message } = error;
        let param = param.map(str::to_owned);
        Self { code: code.to_owned(), line: Some(line), message, param }
    }

    /// Of the whole file.
    pub fn of_file(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), line: None, message: message.into(), param: None }
    }
}

impl Input {
    /// Reads a file once, and fails with its first problems.
    pub fn open(path: &Path, rules: Rules<'_>) -> Result<Self, InputError> {
        let mut reader = BufReader::with_capacity(1 << 20, File::open(path)?);
        let (mut found, mut start, mut text) = (Found::default(), 0u64, Vec::new());
        for number in 1usize.. {
            text.clear();
            let read = reader.by_ref().take(LINE_MAX as u64 + 1).read_until(b'\n', &mut text)?;
            if read == 0 {
                break;
            }
            if read > LINE_MAX {
                // Where the next line begins is not known.
                found.problems.push(Problem::of_line(number, LineError::too_long(LINE_MAX)));
                break;
            }
            if !trimmed(&text).is_empty() {
                found.add(number, (start, read), Line::read(&text, rules.urls));
            }
            if found.places.len() > rules.lines_max {
                let message = format!("a file has at most {} requests", rules.lines_max);
                found.problems.push(Problem::of_file("too_many_lines", message));
            }
            if found.is_hopeless(rules) {
                break;
            }
            start += read as u64;
        }
        if !found.problems.is_empty() {
            return Err(InputError::Problems(found.problems));
        }
        let urls = rules.urls.iter().map(|url| (*url).to_owned()).collect();
        Ok(Self { path: path.to_owned(), urls, places: found.places.into(), model: found.model })
    }

    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The model of the first request that names one.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The requests. Within a window, those that begin alike are neighbours.
    pub fn lines(&self) -> io::Result<Lines> {
        Ok(Lines::new(File::open(&self.path)?, Arc::clone(&self.urls), Arc::clone(&self.places)))
    }
}

#[derive(Default)]
struct Found {
    places: Vec<Place>,
    ids: HashSet<u128>,
    model: Option<String>,
    problems: Vec<Problem>,
}

impl Found {
    fn add(&mut self, number: usize, (start, len): (u64, usize), line: Result<Line, LineError>) {
        let line = line.and_then(|line| {
            let id = custom_id_hash(&line.custom_id);
            if self.ids.insert(id) { Ok((id, line)) } else { Err(LineError::twice(&line.custom_id)) }
        });
        match line {
            Ok((id, line)) => {
                if self.model.is_none() {
                    let model = line.body.get("model").and_then(serde_json::Value::as_str);
                    self.model = model.map(str::to_owned);
                }
                self.places.push(Place { id, start, len });
            }
            Err(error) => self.problems.push(Problem::of_line(number, error)),
        }
    }

    /// Whether the rest of the file changes nothing.
    fn is_hopeless(&self, rules: Rules<'_>) -> bool {
        self.problems.len() >= PROBLEMS_MAX || self.places.len() > rules.lines_max
    }
}

#[cfg(test)]
mod tests {
    use tempfile::NamedTempFile;

    use super::*;

    const RULES: Rules<'static> = Rules { urls: &["/v1/chat/completions", "/v1/embeddings"], lines_max: 3 };

    fn opened(text: &[u8]) -> Result<(Input, NamedTempFile), Vec<String>> {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let input = Input::open(file.path(), RULES).map(|input| (input, file));
        input.map_err(|error| match error {
            InputError::Problems(problems) => {
                let text = |problem: Problem| format!("{:?}: {}", problem.line, problem.message);
                problems.into_iter().map(text).collect()
            }
            InputError::Read(error) => vec![error.to_string()],
        })
    }

    const GOOD: &str = r#"{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {}}"#;

    #[test]
    fn lines_are_read_from_where_they_are() {
        let other = GOOD.replace("\"a\"", "\"é\"").replace("{}", r#"{"model": "m"}"#);
        let (input, _file) = opened(format!("\u{feff}{GOOD}\r\n\n{other}").as_bytes()).unwrap();
        let mut lines = input.lines().unwrap();
        let ids: Vec<String> =
            std::iter::from_fn(|| lines.next_line(|_| false)).map(|line| line.unwrap().custom_id).collect();
        assert_eq!(ids, ["a", "é"]);
        assert_eq!(input.model(), Some("m"));
    }

    #[test]
    fn bad_lines_are_named_by_their_numbers() {
        for (line, why) in [
            ("{", "not valid JSON: "),
            ("[]", "`custom_id` is missing"),
            (GOOD, "the custom_id `a` is there twice"),
            (r#"{"custom_id": "b", "url": "/v1/models", "body": {}}"#, "`url` must be one of "),
            (r#"{"custom_id": "b", "url": "/v1/embeddings"}"#, "`body` must be an object"),
            (r#"{"custom_id": "b", "url": "/v1/embeddings", "body": {"stream": true}}"#, "`body.stream`"),
            (r#"{"custom_id": "b", "url": "/v1/embeddings", "body": {"background": true}}"#, "`body.back"),
            (r#"{"custom_id": "b", "method": "GET", "url": "/v1/embeddings", "body": {}}"#, "`method` must"),
        ] {
            let problems = opened(format!("{GOOD}\n{line}\n").as_bytes()).unwrap_err();
            assert_eq!(problems.len(), 1);
            assert!(problems[0].starts_with(&format!("Some(2): {why}")), "{problems:?}");
        }
        assert!(opened(b"").unwrap().0.is_empty());
        let both = opened(b"{\n[]\n").unwrap_err();
        assert!(both[0].starts_with("Some(1)") && both[1].starts_with("Some(2)"), "{both:?}");
        let many: String =
            (0..5).map(|id| format!("{}\n", GOOD.replace("\"a\"", &format!("\"{id}\"")))).collect();
        assert_eq!(opened(many.as_bytes()).unwrap_err(), ["None: a file has at most 3 requests"]);
    }
}
