//! The requests and results of a batch that runs, used off the threads that serve connections.

use std::sync::Arc;

use omnibus_batches::{
    Answer, Batch, InputError, Journal, JournalError, Line, Lines, Status, Store, StoreError,
};

use crate::batches::{LINES_MAX, now};

/// What a batch reads and writes.
pub struct Progress {
    store: Arc<Store>,
    batch: Batch,
    lines: Lines,
    journal: Journal,
}

impl Progress {
    /// Goes on where the journal ends.
    pub fn open(store: Arc<Store>, batch: Batch) -> Result<Self, StoreError> {
        let input = store.input(&batch, LINES_MAX).map_err(|error| match error {
            InputError::Read(error) => error,
            InputError::Problems(_) => {
                std::io::Error::other("the file of a batch changed after it was checked")
            }
        })?;
        let journal = store.journal(&batch).map_err(|error| match error {
            JournalError::Io(error) => error,
            other => std::io::Error::other(format!("results of the batch {}: {other}", batch.id)),
        })?;
        store.note(&batch.id, journal.counts(), journal.usage());
        Ok(Self { store, lines: input.lines()?, batch, journal })
    }

    /// The next request without a result.
    pub fn next(&mut self) -> Result<Option<Line>, StoreError> {
        Ok(self.lines.next_line(|id| self.journal.has(id)).transpose()?)
    }

    /// Adds a result.
    pub fn push(&mut self, custom_id: &str, answer: &Answer) -> Result<(), StoreError> {
        self.store.push(&mut self.journal, custom_id, answer)?;
        metrics::counter!("omnibus_batch_requests_total", "outcome" => answer.outcome().name()).increment(1);
        self.store.note(&self.batch.id, self.journal.counts(), self.journal.usage());
        Ok(())
    }

    /// Gives each request without a result this one. Its requests do not run any more.
    pub fn push_rest(&mut self, answer: &Answer) -> Result<(), StoreError> {
        let input = self.store.input(&self.batch, LINES_MAX);
        let Ok(input) = input else { return Ok(()) };
        self.lines = input.lines()?;
        while let Some(line) = self.next()? {
            self.push(&line.custom_id, answer)?;
        }
        Ok(())
    }

    /// Moves the batch on.
    pub fn finish(&mut self, next: Status) -> Result<Batch, StoreError> {
        self.store.finish(&self.batch, next, &mut self.journal, now())
    }
}
