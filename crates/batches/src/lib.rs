//! Batches on disk: files of requests, their results, and the state of each batch. Start at [`Store`], [`Input`] and
//! [`Journal`].
//!
//! Invariant: no HTTP, no engine, no clock: the caller sends lines and passes the time. A batch's state moves forward only,
//! and is on the disk before it is returned. Each finished line has one result, whenever the process ends. Memory does not
//! depend on the size of lines, and takes some bytes for each.

mod batch;
mod file;
mod folder;
mod format;
mod input;
mod journal;
mod line;
mod lines;
mod prefix;
mod result_file;
mod store;
mod upload;
mod usage;

pub use batch::{Batch, Counts, NewBatch, Status, Times};
pub use file::{Purpose, StoredFile};
pub use format::{Answer, Format, Outcome, Unanswered};
pub use input::{Input, InputError, Problem, Rules};
pub use journal::Journal;
pub use line::{Line, LineError, URLS, check_body, custom_id_hash};
pub use lines::Lines;
pub use result_file::JournalError;
pub use store::{Store, StoreError};
pub use upload::{NewFile, Upload};
pub use usage::Usage;
