//! The results of a batch. They are the journal, too: a request that has a result is done.
//!
//! Invariant: each request has one result at most, whenever the process ends.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use crate::batch::Counts;
use crate::format::{Answer, Format, Outcome, ReadResult};
use crate::line::custom_id_hash;
use crate::result_file::{JournalError, ResultFile};
use crate::usage::Usage;

/// Lines between two waits for the disk.
const SYNC_LINES: usize = 256;

/// The results of a batch.
#[derive(Debug)]
pub struct Journal {
    output: ResultFile,
    /// Of requests without success, where they have their own file.
    errors: Option<ResultFile>,
    done: Done,
    unsynced: usize,
}

#[derive(Debug, Default)]
struct Done {
    ids: HashSet<u128>,
    counts: Counts,
    usage: Usage,
}

impl Done {
    fn add(&mut self, ReadResult { custom_id, outcome, usage }: ReadResult) {
        if self.ids.insert(custom_id_hash(&custom_id)) {
            self.counts.add(outcome);
            self.usage += usage;
        }
    }
}

impl Journal {
    /// Opens files of results, or begins them.
    pub fn open(output: &Path, errors: Option<&Path>, format: Format) -> Result<Self, JournalError> {
        let mut done = Done::default();
        let output = ResultFile::open(output, format, |result| done.add(result))?;
        let errors = errors.map(|path| ResultFile::open(path, format, |result| done.add(result)));
        Ok(Self { output, errors: errors.transpose()?, done, unsynced: 0 })
    }

    /// Whether a request has its result, by the hash of its name.
    pub fn has(&self, id: u128) -> bool {
        self.done.ids.contains(&id)
    }

    /// How many results there are.
    pub fn len(&self) -> usize {
        self.done.ids.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.done.ids.is_empty()
    }

    /// How many there are of each outcome.
    pub fn counts(&self) -> Counts {
        self.done.counts
    }

    /// The tokens of all.
    pub fn usage(&self) -> Usage {
        self.done.usage
    }

    /// Bytes of the file of results, and of that of errors.
    pub fn bytes(&self) -> (u64, u64) {
        (self.output.bytes(), self.errors.as_ref().map_or(0, ResultFile::bytes))
    }

    /// Adds a result. When that fails, nothing of it stays. One that is there already stays as it is.
    pub fn push(&mut self, custom_id: &str, answer: &Answer) -> io::Result<()> {
        match self.line(custom_id, answer) {
            Some(line) => self.append(custom_id, answer, &line),
            None => Ok(()),
        }
    }

    /// The line of a result; `None` where there is one already.
    pub(crate) fn line(&mut self, custom_id: &str, answer: &Answer) -> Option<String> {
        let is_there = self.has(custom_id_hash(custom_id));
        let file = self.file(answer.outcome());
        (!is_there).then(|| file.format().line(custom_id, file.lines(), answer))
    }

    /// Adds the line of a result.
    pub(crate) fn append(&mut self, custom_id: &str, answer: &Answer, line: &str) -> io::Result<()> {
        let outcome = answer.outcome();
        self.file(outcome).push(line)?;
        self.done.add(ReadResult { custom_id: custom_id.to_owned(), outcome, usage: answer.usage() });
        self.unsynced += 1;
        if self.unsynced >= SYNC_LINES { self.sync() } else { Ok(()) }
    }

    fn file(&mut self, outcome: Outcome) -> &mut ResultFile {
        match &mut self.errors {
            Some(errors) if outcome != Outcome::Succeeded => errors,
            _ => &mut self.output,
        }
    }

    /// Waits until all results are on the disk.
    pub fn sync(&mut self) -> io::Result<()> {
        self.output.sync()?;
        self.errors.as_ref().map_or(Ok(()), ResultFile::sync)?;
        self.unsynced = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::format::Unanswered;

    fn answer(number: usize) -> Answer {
        let response = |status: u16| Answer::Response {
            status,
            request_id: format!("r{number}"),
            body: json!({"text": "a \"quoted\" line\nand another é", "usage": {"prompt_tokens": 2}}),
        };
        match number % 4 {
            0 | 1 => response(200),
            2 => response(400),
            _ => Answer::None(Unanswered::Failed("gone".to_owned())),
        }
    }

    fn ids(text: &[u8], format: Format) -> Vec<String> {
        let lines = text.split_inclusive(|byte| *byte == b'\n');
        lines.map(|line| format.read(line).unwrap().custom_id).collect()
    }

    /// Pushes the results that are missing.
    fn complete(path: &Path, errors: Option<&Path>, format: Format, count: usize) -> Journal {
        let mut journal = Journal::open(path, errors, format).unwrap();
        for number in 0..count {
            let id = format!("line-{number}");
            if !journal.has(custom_id_hash(&id)) {
                journal.push(&id, &answer(number)).unwrap();
            }
        }
        journal
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

        #[test]
        fn a_process_that_dies_at_any_byte_loses_no_whole_line_and_repeats_none(
            count in 1usize..5, split: bool, anthropic: bool,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let (output, errors) = (folder.path().join("output"), folder.path().join("errors"));
            let format = if anthropic { Format::Anthropic } else { Format::OpenAi };
            let error_path = split.then_some(errors.as_path());
            drop(complete(&output, error_path, format, count));
            let whole = std::fs::read(&output).unwrap();
            for cut in 0..=whole.len() {
                std::fs::write(&output, &whole[..cut]).unwrap();
                let kept = whole[..cut].iter().filter(|byte| **byte == b'\n').count();
                let found = Journal::open(&output, None, format).unwrap().len();
                prop_assert_eq!(found, kept, "cut at {}", cut);
                let journal = complete(&output, error_path, format, count);
                prop_assert_eq!(journal.len(), count);
                drop(journal);
                let mut all = ids(&std::fs::read(&output).unwrap(), format);
                if split {
                    all.extend(ids(&std::fs::read(&errors).unwrap(), format));
                }
                all.sort();
                let expected: Vec<String> = (0..count).map(|number| format!("line-{number}")).collect();
                prop_assert_eq!(all, expected, "cut at {}", cut);
            }
        }
    }

    #[test]
    fn counts_and_tokens_are_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let (output, errors) = (folder.path().join("output"), folder.path().join("errors"));
        let journal = complete(&output, Some(&errors), Format::OpenAi, 8);
        let (counts, usage) = (journal.counts(), journal.usage());
        assert_eq!((counts.succeeded, counts.failed, usage.input_tokens), (4, 4, 12));
        assert!(matches!(Journal::open(&output, None, Format::OpenAi), Err(JournalError::InUse)));
        drop(journal);
        let journal = Journal::open(&output, Some(&errors), Format::OpenAi).unwrap();
        assert_eq!((journal.counts(), journal.usage()), (counts, usage));
    }

    #[test]
    fn a_file_of_something_else_stays_as_it_is() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for other in ["notes\n", "notes", "{\"custom_id\":\"a\",\"url\":\"/v1/embeddings\",\"body\":{}}"] {
            std::fs::write(file.path(), other).unwrap();
            let opened = Journal::open(file.path(), None, Format::OpenAi);
            assert!(matches!(opened, Err(JournalError::NoResults)), "{other}");
            assert_eq!(std::fs::read_to_string(file.path()).unwrap(), other);
        }
    }
}
