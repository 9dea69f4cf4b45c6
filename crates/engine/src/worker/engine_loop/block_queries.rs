//! Blocks that other replicas request.

use super::EngineLoop;
use crate::message::{Answer, BlockQuery, BlocksRefused, QueryId, QueryReply};

impl EngineLoop {
    /// Replies with which blocks there are.
    pub(super) fn find_blocks(&mut self, query: QueryId, blocks: &BlockQuery) {
        let found = match &self.offload {
            Some(offload) => offload.find_for_peer(&self.scheduler, blocks),
            None => Err(BlocksRefused::NotServed),
        };
        self.replies.push(QueryReply { query, answer: Answer::Blocks(found) });
    }

    /// Replies with the first ones of these blocks.
    pub(super) fn read_blocks(&mut self, query: QueryId, blocks: &BlockQuery) {
        let read = match &mut self.offload {
            Some(offload) => offload.read_for_peer(&self.scheduler, &mut self.device, blocks),
            None => Ok(Err(BlocksRefused::NotServed)),
        };
        match read {
            Ok(read) => self.replies.push(QueryReply { query, answer: Answer::Blocks(read) }),
            // The other replica computes what it gets no answer for.
            Err(error) => self.recover(&error),
        }
    }
}
