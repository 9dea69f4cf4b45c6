//! Blocks of a loaded model for other replicas.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;

use super::LoadedModel;
use crate::error::Failure;
use crate::message::{Answer, BlockQuery, BlocksRefused, Command, QueryId, StoredBlock};

/// How long the loop may take to answer: some steps.
const TIMEOUT: Duration = Duration::from_secs(10);

impl LoadedModel {
    /// Places in the query of the blocks that there are. Blocks until the current step is done.
    pub(crate) fn find_blocks(
        &self,
        query: BlockQuery,
    ) -> Result<Result<Vec<usize>, BlocksRefused>, Failure> {
        let blocks = self.block_query(|id| Command::FindBlocks(id, query))?;
        let places = |blocks: Vec<StoredBlock>| {
            let found = blocks.into_iter().enumerate().filter(|(_, block)| *block != StoredBlock::Absent);
            found.map(|(place, _)| place).collect()
        };
        Ok(blocks.map(places))
    }

    /// The records of the leading blocks of a query, as far as there are, and how many names they answer: at least one of a
    /// query with names. Blocks until the current step is done and files are read.
    pub(crate) fn read_blocks(
        &self,
        query: BlockQuery,
    ) -> Result<Result<(Vec<Bytes>, usize), BlocksRefused>, Failure> {
        let blocks = self.block_query(|id| Command::ReadBlocks(id, query))?;
        Ok(blocks.map(|blocks| {
            let answered = blocks.len();
            (blocks.into_iter().filter_map(record).collect(), answered)
        }))
    }

    fn block_query(
        &self,
        command: impl FnOnce(QueryId) -> Command,
    ) -> Result<Result<Vec<StoredBlock>, BlocksRefused>, Failure> {
        match self.query(TIMEOUT, command)? {
            Answer::Blocks(blocks) => Ok(blocks),
            Answer::Sessions(_) | Answer::Adapter(_) => {
                Err(Failure::unavailable("unexpected reply from the engine; this is a bug"))
            }
        }
    }
}

/// The other replica checks a record; a file that is gone by now is left out.
fn record(block: StoredBlock) -> Option<Bytes> {
    match block {
        StoredBlock::Record(bytes) => Some(bytes),
        StoredBlock::File(path) => read(&path),
        StoredBlock::Absent | StoredBlock::Present => None,
    }
}

fn read(path: &Path) -> Option<Bytes> {
    std::fs::read(path).ok().map(Bytes::from)
}
