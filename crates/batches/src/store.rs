//! All files and batches of a state directory.
//!
//! Invariant: a change is on the disk before it is seen. A tenant sees its own only. Files, batches and bytes are bounded.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use thiserror::Error;
use uuid::Uuid;

use crate::batch::{Batch, Counts, NewBatch, Status, Times};
use crate::file::{Purpose, StoredFile};
use crate::folder::{Folder, Kind};
use crate::format::{Answer, Format};
use crate::input::{Input, InputError, Problem, Rules};
use crate::journal::Journal;
use crate::result_file::JournalError;
use crate::usage::Usage;

/// Most files, and most batches.
const RECORDS_MAX: usize = 10_000;
/// Seconds that a batch stays after its end.
const BATCH_KEPT: u64 = 30 * 24 * 3600;

/// All files and batches.
#[derive(Debug)]
pub struct Store {
    folder: Folder,
    most_bytes: u64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    files: BTreeMap<String, StoredFile>,
    batches: BTreeMap<String, Batch>,
    bytes: u64,
    number: u64,
}

/// Why something cannot be stored or found.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The disk failed, or is full.
    #[error("the disk failed: {0}")]
    Io(#[from] io::Error),
    /// There is none with this id.
    #[error("there is none with the id `{0}`")]
    NotFound(String),
    /// A batch needs the file.
    #[error("the batch `{0}` needs the file until it has ended")]
    FileInUse(String),
    /// The batch has not ended.
    #[error("the batch `{0}` has not ended; cancel it first")]
    NotEnded(String),
    /// The batch's status does not allow it.
    #[error("a batch that is {0} cannot be cancelled")]
    Ended(&'static str),
    /// There is no room.
    #[error("the files of all batches take at most {0} bytes; remove some, or raise --batch-disk-limit")]
    Full(u64),
    /// There are too many.
    #[error("there are {RECORDS_MAX} {0} already; remove some")]
    TooMany(&'static str),
}

impl Store {
    /// Opens or makes the folder below a state directory, whose files take so many bytes at most. What was not stored to
    /// its end is removed.
    pub fn open(state: &Path, most_bytes: u64) -> io::Result<Self> {
        let folder = Folder::open(state)?;
        let mut inner = Inner::default();
        for file in folder.records::<StoredFile>(Kind::File)? {
            inner.number = inner.number.max(file.number);
            inner.files.insert(file.id.clone(), file);
        }
        for batch in folder.records::<Batch>(Kind::Batch)? {
            inner.number = inner.number.max(batch.number);
            inner.batches.insert(batch.id.clone(), batch);
        }
        let is_result = |id: &str| {
            let mut running = inner.batches.values().filter(|batch| !batch.status.is_end());
            running.any(|batch| batch.output == id || batch.errors.as_deref() == Some(id))
        };
        let bytes = folder.clean(|id| inner.files.contains_key(id) || is_result(id))?;
        Ok(Self { folder, most_bytes, inner: Mutex::new(Inner { bytes, ..inner }) })
    }

    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    pub(crate) fn new_id(&self, prefix: &str) -> String {
        format!("{prefix}{}", Uuid::new_v4().simple())
    }

    pub(crate) fn next_number(&self) -> u64 {
        let mut inner = self.lock();
        inner.number += 1;
        inner.number
    }

    pub(crate) fn add_file(&self, file: StoredFile) {
        self.lock().files.insert(file.id.clone(), file);
    }

    /// Counts bytes that are about to be written. Fails where there is no room for them.
    pub fn take(&self, bytes: u64) -> Result<(), StoreError> {
        let mut inner = self.lock();
        let all = inner.bytes.saturating_add(bytes);
        if all > self.most_bytes {
            return Err(StoreError::Full(self.most_bytes));
        }
        inner.bytes = all;
        Ok(())
    }

    /// Counts bytes that were not written, or removed.
    pub fn give_back(&self, bytes: u64) {
        let mut inner = self.lock();
        inner.bytes = inner.bytes.saturating_sub(bytes);
    }

    /// Fails where there are as many files as there may be.
    pub fn check_room_for_file(&self) -> Result<(), StoreError> {
        match self.lock().files.len() >= RECORDS_MAX {
            true => Err(StoreError::TooMany("files")),
            false => Ok(()),
        }
    }

    /// A tenant's files, newest first, without those of other APIs.
    pub fn files(&self, tenant: &str) -> Vec<StoredFile> {
        let inner = self.lock();
        let own = |file: &&StoredFile| file.tenant == tenant && file.purpose != Purpose::Internal;
        let mut files: Vec<StoredFile> = inner.files.values().filter(own).cloned().collect();
        files.sort_by_key(|file| std::cmp::Reverse(file.number));
        files
    }

    /// A tenant's file.
    pub fn file(&self, tenant: &str, id: &str) -> Result<StoredFile, StoreError> {
        let found = self.any_file(id).filter(|file| file.tenant == tenant);
        let found = found.filter(|file| file.purpose != Purpose::Internal);
        found.ok_or_else(|| StoreError::NotFound(id.to_owned()))
    }

    fn any_file(&self, id: &str) -> Option<StoredFile> {
        self.lock().files.get(id).cloned()
    }

    /// Where the bytes of a stored file are.
    pub fn data(&self, file: &StoredFile) -> PathBuf {
        self.folder.data(&file.id)
    }

    /// Removes a tenant's file. Fails where a batch needs it.
    pub fn remove_file(&self, tenant: &str, id: &str) -> Result<(), StoreError> {
        let file = self.file(tenant, id)?;
        self.remove(&file)
    }

    fn remove(&self, file: &StoredFile) -> Result<(), StoreError> {
        let mut inner = self.lock();
        if let Some(batch) = inner.batches.values().find(|batch| batch.uses(&file.id)) {
            return Err(StoreError::FileInUse(batch.id.clone()));
        }
        // Without its record it is removed at the next start at the latest.
        self.folder.remove_record(Kind::File, &file.id)?;
        inner.files.remove(&file.id);
        self.folder.remove_data(&file.id)?;
        inner.bytes = inner.bytes.saturating_sub(file.bytes);
        Ok(())
    }

    /// Adds a batch of a tenant's file.
    pub fn create(&self, tenant: &str, request: NewBatch) -> Result<Batch, StoreError> {
        let (prefix, errors) = match request.format {
            Format::OpenAi => ("batch_", Some(self.new_id("file-"))),
            Format::Anthropic => ("msgbatch_", None),
        };
        let mut inner = self.lock();
        if inner.batches.len() >= RECORDS_MAX {
            return Err(StoreError::TooMany("batches"));
        }
        if inner.files.get(&request.input).is_none_or(|file| file.tenant != tenant) {
            return Err(StoreError::NotFound(request.input));
        }
        inner.number += 1;
        let batch = Batch {
            id: self.new_id(prefix),
            tenant: tenant.to_owned(),
            number: inner.number,
            total: request.total,
            request,
            output: self.new_id("file-"),
            errors,
            status: Status::Validating,
            model: None,
            problems: Vec::new(),
            counts: Counts::default(),
            usage: Usage::default(),
            times: Times::default(),
            has_output: false,
            has_errors: false,
        };
        self.folder.write(Kind::Batch, &batch.id, &batch)?;
        inner.batches.insert(batch.id.clone(), batch.clone());
        Ok(batch)
    }

    /// A tenant's batches of an API, newest first.
    pub fn batches(&self, tenant: &str, format: Format) -> Vec<Batch> {
        let inner = self.lock();
        let own = |batch: &&Batch| batch.tenant == tenant && batch.request.format == format;
        let mut batches: Vec<Batch> = inner.batches.values().filter(own).cloned().collect();
        batches.sort_by_key(|batch| std::cmp::Reverse(batch.number));
        batches
    }

    /// A tenant's batch of an API.
    pub fn batch(&self, tenant: &str, format: Format, id: &str) -> Result<Batch, StoreError> {
        let found = self.any_batch(id).filter(|batch| batch.tenant == tenant);
        let found = found.filter(|batch| batch.request.format == format);
        found.ok_or_else(|| StoreError::NotFound(id.to_owned()))
    }

    /// A batch of any tenant.
    pub fn any_batch(&self, id: &str) -> Option<Batch> {
        self.lock().batches.get(id).cloned()
    }

    /// The batches that have not ended, oldest first.
    pub fn unfinished(&self) -> Vec<String> {
        let inner = self.lock();
        let running = inner.batches.values().filter(|batch| !batch.status.is_end());
        let mut numbered: Vec<(u64, String)> =
            running.map(|batch| (batch.number, batch.id.clone())).collect();
        numbered.sort();
        numbered.into_iter().map(|(_, id)| id).collect()
    }

    /// Begins to cancel a tenant's batch. One that is being cancelled stays as it is.
    pub fn cancel(&self, tenant: &str, format: Format, id: &str, now: u64) -> Result<Batch, StoreError> {
        let batch = self.batch(tenant, format, id)?;
        if matches!(batch.status, Status::Cancelling | Status::Cancelled) {
            return Ok(batch);
        }
        self.advance(id, Status::Cancelling, now, |_| ()).map_err(|error| match error {
            StoreError::Ended(_) => StoreError::Ended(batch.status.name()),
            error => error,
        })
    }

    /// Moves a batch to its next status, with a change of what else is known of it.
    pub(crate) fn advance(
        &self,
        id: &str,
        next: Status,
        now: u64,
        change: impl FnOnce(&mut Batch),
    ) -> Result<Batch, StoreError> {
        let mut inner = self.lock();
        let batch = inner.batches.get_mut(id).ok_or_else(|| StoreError::NotFound(id.to_owned()))?;
        let mut changed = batch.clone();
        if !changed.advance(next, now) {
            return Err(StoreError::Ended(batch.status.name()));
        }
        change(&mut changed);
        self.folder.write(Kind::Batch, id, &changed)?;
        *batch = changed.clone();
        Ok(changed)
    }

    /// Notes results, which the journal has on the disk.
    pub fn note(&self, id: &str, counts: Counts, usage: Usage) {
        if let Some(batch) = self.lock().batches.get_mut(id) {
            (batch.counts, batch.usage) = (counts, usage);
        }
    }

    /// Checks the file of a batch, once. Its status says what was found.
    pub fn validate(&self, batch: &Batch, lines_max: usize, now: u64) -> Result<Batch, StoreError> {
        let (model, total, problems) = match self.input(batch, lines_max) {
            Ok(input) if input.is_empty() => {
                (None, 0, vec![Problem::of_file("empty_file", "the file has no requests")])
            }
            Ok(input) => (input.model().map(str::to_owned), input.len(), Vec::new()),
            Err(InputError::Problems(problems)) => (None, 0, problems),
            Err(InputError::Read(error)) => return Err(error.into()),
        };
        let next = if problems.is_empty() { Status::InProgress } else { Status::Failed };
        self.advance(&batch.id, next, now, |batch| {
            (batch.model, batch.total, batch.problems) = (model, total, problems);
        })
    }

    /// The requests of a batch.
    pub fn input(&self, batch: &Batch, lines_max: usize) -> Result<Input, InputError> {
        let urls = [batch.request.endpoint.as_str()];
        Input::open(&self.folder.data(&batch.request.input), Rules { urls: &urls, lines_max })
    }

    /// The results of a batch.
    pub fn journal(&self, batch: &Batch) -> Result<Journal, JournalError> {
        let errors = batch.errors.as_ref().map(|id| self.folder.data(id));
        Journal::open(&self.folder.data(&batch.output), errors.as_deref(), batch.request.format)
    }

    /// Adds a result, and fails where the files of all batches have no room for it.
    pub fn push(&self, journal: &mut Journal, custom_id: &str, answer: &Answer) -> Result<(), StoreError> {
        let Some(line) = journal.line(custom_id, answer) else { return Ok(()) };
        let bytes = line.len() as u64;
        self.take(bytes)?;
        journal.append(custom_id, answer, &line).map_err(|error| {
            self.give_back(bytes);
            error.into()
        })
    }

    /// Moves a batch to its next status. A batch that ends has all its results in the journal.
    pub fn finish(
        &self,
        batch: &Batch,
        next: Status,
        journal: &mut Journal,
        now: u64,
    ) -> Result<Batch, StoreError> {
        journal.sync()?;
        let (output, errors) = journal.bytes();
        if next.is_end() {
            self.store_results(batch, &batch.output, output, now)?;
            if let Some(id) = &batch.errors {
                self.store_results(batch, id, errors, now)?;
            }
        }
        let (counts, usage) = (journal.counts(), journal.usage());
        self.advance(&batch.id, next, now, |batch| {
            (batch.counts, batch.usage) = (counts, usage);
            (batch.has_output, batch.has_errors) = (output > 0, errors > 0);
            batch.total = batch.total.max(counts.all());
        })
    }

    fn store_results(&self, batch: &Batch, id: &str, bytes: u64, now: u64) -> Result<(), StoreError> {
        if bytes == 0 {
            return Ok(self.folder.remove_data(id)?);
        }
        let file = StoredFile {
            id: id.to_owned(),
            tenant: batch.tenant.clone(),
            number: self.next_number(),
            filename: format!("{}_{}.jsonl", batch.id, if id == batch.output { "output" } else { "error" }),
            purpose: match batch.request.format {
                Format::OpenAi => Purpose::BatchOutput,
                Format::Anthropic => Purpose::Internal,
            },
            bytes,
            created_at: now,
            expires_at: Some(now.saturating_add(batch.request.output_expires_after)),
        };
        self.folder.write(Kind::File, id, &file)?;
        self.add_file(file);
        Ok(())
    }

    /// The results of a batch that can be read, by the path of their bytes.
    pub fn results(&self, batch: &Batch) -> Option<PathBuf> {
        let id = batch.output_file()?;
        self.any_file(id).map(|file| self.data(&file))
    }

    /// Removes a tenant's batch that has ended, with what its API has no files for.
    pub fn remove_batch(&self, tenant: &str, format: Format, id: &str) -> Result<(), StoreError> {
        let batch = self.batch(tenant, format, id)?;
        if !batch.status.is_end() {
            return Err(StoreError::NotEnded(batch.id));
        }
        self.drop_batch(&batch)
    }

    fn drop_batch(&self, batch: &Batch) -> Result<(), StoreError> {
        self.folder.remove_record(Kind::Batch, &batch.id)?;
        self.lock().batches.remove(&batch.id);
        for id in [&batch.request.input, &batch.output] {
            if let Some(file) = self.any_file(id).filter(|file| file.purpose == Purpose::Internal) {
                self.remove(&file)?;
            }
        }
        Ok(())
    }

    /// Removes what has expired.
    pub fn remove_expired(&self, now: u64) -> Result<(), StoreError> {
        let (files, batches) = {
            let inner = self.lock();
            let passed = |file: &&StoredFile| file.expires_at.is_some_and(|at| at <= now);
            let is_needed = |file: &StoredFile| inner.batches.values().any(|batch| batch.uses(&file.id));
            let files = inner.files.values().filter(passed).filter(|file| !is_needed(file));
            let old =
                |batch: &&Batch| batch.ended_at().is_some_and(|at| at.saturating_add(BATCH_KEPT) <= now);
            let batches = inner.batches.values().filter(old);
            (files.cloned().collect::<Vec<_>>(), batches.cloned().collect::<Vec<_>>())
        };
        files.iter().try_for_each(|file| self.remove(file))?;
        batches.iter().try_for_each(|batch| self.drop_batch(batch))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
