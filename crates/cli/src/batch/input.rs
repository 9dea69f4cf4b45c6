//! The file of requests: read once to check it, then line by line where a request begins.
//!
//! Source: OpenAI's batch input files; vLLM's `run-batch`.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::Error;

/// Most bytes of a line.
const LINE_MAX: usize = 64 << 20;

/// What a line may request.
const PATHS: [&str; 13] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/rerank",
    "/v2/rerank",
    "/rerank",
    "/v1/score",
    "/score",
    "/v2/embed",
    "/classify",
    "/pooling",
];

/// A checked file of requests.
pub struct Input {
    path: PathBuf,
    lines: Vec<Place>,
}

/// Where a line is.
#[derive(Debug, Clone, Copy)]
struct Place {
    start: u64,
    len: usize,
}

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The client's name of it.
    pub custom_id: String,
    /// Its path, from `/` on.
    pub url: String,
    /// What is sent.
    pub body: Value,
}

impl Input {
    /// Reads a file once. Fails with the first line that cannot be sent, by its number.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let fail = |why: String| Error::failed(format!("{}{why}", path.display()));
        let file = File::open(path).map_err(|error| fail(format!(": {error}")))?;
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let (mut lines, mut ids, mut start) = (Vec::new(), HashSet::new(), 0u64);
        let mut text = Vec::new();
        for number in 1usize.. {
            text.clear();
            let read = reader.by_ref().take(LINE_MAX as u64 + 1).read_until(b'\n', &mut text);
            let read = read.map_err(|error| fail(format!(": {error}")))?;
            if read == 0 {
                break;
            }
            if read > LINE_MAX {
                return Err(fail(format!(":{number}: longer than {LINE_MAX} bytes")));
            }
            if !trimmed(&text).is_empty() {
                let line = Line::read(&text).map_err(|why| fail(format!(":{number}: {why}")))?;
                if !ids.insert(line.custom_id.clone()) {
                    return Err(fail(format!(
                        ":{number}: the custom_id `{}` is there twice",
                        line.custom_id
                    )));
                }
                lines.push(Place { start, len: read });
            }
            start += read as u64;
        }
        Ok(Self { path: path.to_owned(), lines })
    }

    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// The requests, in order.
    pub fn lines(&self) -> Result<impl Iterator<Item = Result<Line, Error>>, Error> {
        let fail = |why: String| Error::failed(format!("{}: {why}", self.path.display()));
        let mut file = File::open(&self.path).map_err(|error| fail(error.to_string()))?;
        Ok(self.lines.iter().map(move |place| {
            let mut text = vec![0; place.len];
            let read = file.seek(SeekFrom::Start(place.start)).and_then(|_| file.read_exact(&mut text));
            read.map_err(|error| fail(error.to_string()))?;
            Line::read(&text).map_err(|why| fail(format!("changed while it was read: {why}")))
        }))
    }
}

/// Without what may stand around a line: spaces, a carriage return, a byte order mark.
fn trimmed(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii()
}

impl Line {
    fn read(text: &[u8]) -> Result<Self, String> {
        let value: Value =
            serde_json::from_slice(trimmed(text)).map_err(|error| format!("not valid JSON: {error}"))?;
        let field = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let custom_id = field("custom_id").filter(|id| !id.is_empty());
        let custom_id = custom_id.ok_or("`custom_id` is missing")?;
        if let Some(method) = field("method").filter(|method| method != "POST") {
            return Err(format!("`method` must be POST, not {method}"));
        }
        let url = field("url").ok_or("`url` is missing")?;
        if !PATHS.contains(&url.as_str()) {
            return Err(format!("`url` must be one of {}, not {url}", PATHS.join(", ")));
        }
        let body = value.get("body").filter(|body| body.is_object()).cloned();
        let body = body.ok_or("`body` must be an object")?;
        if body.get("stream").and_then(Value::as_bool) == Some(true) {
            return Err("`body.stream` must not be true: an answer is one line".to_owned());
        }
        Ok(Self { custom_id, url, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(name: &str, text: &[u8]) -> Result<Input, String> {
        let folder = std::env::temp_dir().join(format!("omnibus-batch-input-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        let input = Input::open(&path).map_err(|error| error.to_string());
        input.map_err(|error| error.replace(&path.display().to_string(), "FILE"))
    }

    const GOOD: &str = r#"{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {}}"#;

    #[test]
    fn lines_are_read_from_where_they_are() {
        let other = GOOD.replace("\"a\"", "\"é\"");
        let text = format!("\u{feff}{GOOD}\r\n\n{other}");
        let input = opened("good", text.as_bytes()).unwrap();
        let ids: Vec<String> = input.lines().unwrap().map(|line| line.unwrap().custom_id).collect();
        assert_eq!(ids, ["a", "é"]);
    }

    #[test]
    fn the_first_bad_line_is_named() {
        for (line, why) in [
            ("{", "not valid JSON: "),
            ("[]", "`custom_id` is missing"),
            (GOOD, "the custom_id `a` is there twice"),
            (r#"{"custom_id": "b", "url": "/v1/models", "body": {}}"#, "`url` must be one of "),
            (r#"{"custom_id": "b", "url": "/v1/embeddings"}"#, "`body` must be an object"),
            (r#"{"custom_id": "b", "url": "/v1/embeddings", "body": {"stream": true}}"#, "`body.stream`"),
            (r#"{"custom_id": "b", "method": "GET", "url": "/v1/embeddings", "body": {}}"#, "`method` must"),
        ] {
            let error = opened("bad", format!("{GOOD}\n{line}\n").as_bytes()).err().unwrap();
            assert!(error.starts_with(&format!("FILE:2: {why}")), "{error}");
        }
        assert!(opened("empty", b"").is_ok_and(|input| input.len() == 0));
    }
}
