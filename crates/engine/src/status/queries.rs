//! Queries to the replicas of an engine, and their answers taken together.
//!
//! Invariant: a query is answered when all replicas have answered it, and ends without an answer when one cannot.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::message::{Answer, QueryId, QueryReply, StoredBlock};
use crate::stats::SessionStats;

/// Queries without an answer.
#[derive(Default)]
pub(super) struct Queries {
    waiting: BTreeMap<QueryId, Waiting>,
    next: u64,
}

struct Waiting {
    /// Dropping it ends the wait.
    answer: Sender<Answer>,
    /// Replicas that have not answered.
    missing: usize,
    /// What the others have answered.
    so_far: Option<Answer>,
}

impl Queries {
    /// A new query to so many replicas, and where the answer comes.
    pub(super) fn begin(&mut self, replicas: usize) -> (QueryId, Receiver<Answer>) {
        let (answer, answers) = channel();
        let query = QueryId(self.next);
        self.next += 1;
        self.waiting.insert(query, Waiting { answer, missing: replicas, so_far: None });
        (query, answers)
    }

    /// Ends a query without an answer.
    pub(super) fn end(&mut self, query: QueryId) {
        self.waiting.remove(&query);
    }

    /// Ends all queries without an answer.
    pub(super) fn end_all(&mut self) {
        self.waiting.clear();
    }

    /// Takes in the replies of one replica.
    pub(super) fn answer(&mut self, replies: Vec<QueryReply>) {
        for QueryReply { query, answer } in replies {
            let Some(mut waiting) = self.waiting.remove(&query) else { continue };
            waiting.missing = waiting.missing.saturating_sub(1);
            let answer = match waiting.so_far.take() {
                Some(so_far) => together(so_far, answer),
                None => answer,
            };
            if waiting.missing == 0 {
                let _timed_out = waiting.answer.send(answer);
            } else {
                waiting.so_far = Some(answer);
                self.waiting.insert(query, waiting);
            }
        }
    }
}

/// The answer of two replicas: all sessions; an adapter that all have loaded.
fn together(one: Answer, other: Answer) -> Answer {
    match (one, other) {
        (Answer::Sessions(mut sessions), Answer::Sessions(others)) => {
            for session in others {
                add_session(&mut sessions, session);
            }
            Answer::Sessions(sessions)
        }
        (Answer::Adapter(Ok(_)), other) => other,
        (Answer::Blocks(Ok(blocks)), Answer::Blocks(Ok(others))) => {
            Answer::Blocks(Ok(first_of(blocks, others)))
        }
        (Answer::Blocks(Err(_)), other @ Answer::Blocks(Ok(_))) => other,
        (one, _) => one,
    }
}

/// Each block of whichever replica has it. One may have answered for more of them.
fn first_of(mut blocks: Vec<StoredBlock>, others: Vec<StoredBlock>) -> Vec<StoredBlock> {
    for (block, other) in blocks.iter_mut().zip(others.iter()) {
        if *block == StoredBlock::Absent {
            *block = other.clone();
        }
    }
    blocks.truncate(others.len());
    blocks
}

/// A session that resumed at another replica has blocks at both.
fn add_session(sessions: &mut Vec<SessionStats>, session: SessionStats) {
    match sessions.iter_mut().find(|known| known.session == session.session) {
        Some(known) => {
            known.tokens = known.tokens.max(session.tokens);
            known.blocks += session.blocks;
            known.idle_s = known.idle_s.min(session.idle_s);
        }
        None => sessions.push(session),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::BlocksRefused;

    fn session(session: u128, tokens: usize, blocks: usize, idle_s: f64) -> SessionStats {
        SessionStats { session, tokens, blocks, idle_s }
    }

    fn check(answers: [Answer; 2], expected: Answer) {
        let mut queries = Queries::default();
        let (query, reply) = queries.begin(2);
        for (replica, answer) in answers.into_iter().enumerate() {
            assert!(reply.try_recv().is_err(), "{replica} replicas have answered");
            queries.answer(vec![QueryReply { query, answer }]);
        }
        assert_eq!(reply.try_recv(), Ok(expected));
    }

    #[test]
    fn the_answers_of_replicas_are_taken_together() {
        check(
            [
                Answer::Sessions(vec![session(1, 64, 2, 9.0), session(2, 32, 1, 1.0)]),
                Answer::Sessions(vec![session(3, 32, 1, 2.0), session(1, 96, 3, 4.0)]),
            ],
            Answer::Sessions(vec![session(1, 96, 5, 4.0), session(2, 32, 1, 1.0), session(3, 32, 1, 2.0)]),
        );
        check([Answer::Adapter(Ok(4)), Answer::Adapter(Ok(4))], Answer::Adapter(Ok(4)));
        let (absent, present) = (StoredBlock::Absent, StoredBlock::Present);
        check(
            [
                Answer::Blocks(Ok(vec![absent.clone(), present.clone(), absent.clone()])),
                Answer::Blocks(Ok(vec![present.clone(), absent.clone()])),
            ],
            Answer::Blocks(Ok(vec![present.clone(), present.clone()])),
        );
        check(
            [Answer::Blocks(Err(BlocksRefused::NotServed)), Answer::Blocks(Ok(vec![absent.clone()]))],
            Answer::Blocks(Ok(vec![absent])),
        );
        let refused = || Answer::Adapter(Err("no file".to_owned()));
        check([refused(), Answer::Adapter(Ok(4))], refused());
        check([Answer::Adapter(Ok(4)), refused()], refused());
    }

    #[test]
    fn a_query_ends_with_the_first_replica_that_ends() {
        let mut queries = Queries::default();
        let (query, reply) = queries.begin(2);
        queries.answer(vec![QueryReply { query, answer: Answer::Sessions(Vec::new()) }]);
        queries.end_all();
        assert!(reply.recv().is_err());
    }
}
