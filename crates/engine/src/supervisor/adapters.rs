//! The named adapters that a new engine process loads.
//!
//! Invariant: an adapter is among them from the process's answer that it is loaded until the command to unload it.

use std::collections::BTreeMap;

use crate::message::{Answer, Command, QueryId, QueryReply};
use crate::settings::NamedAdapter;

/// Adapters that a process was sent to load, without an answer so far.
#[derive(Debug, Default)]
pub(super) struct LoadingAdapters(BTreeMap<QueryId, NamedAdapter>);

impl LoadingAdapters {
    /// A command is about to be sent.
    pub(super) fn requested(&mut self, command: &Command, loaded: &mut Vec<NamedAdapter>) {
        match command {
            Command::LoadAdapter(query, adapter) => _ = self.0.insert(*query, adapter.clone()),
            Command::UnloadAdapter(id) => loaded.retain(|adapter| adapter.loaded != Some(*id)),
            Command::Submit(_)
            | Command::Cancel(_)
            | Command::Pixels(..)
            | Command::ListSessions(_)
            | Command::FindBlocks(..)
            | Command::ReadBlocks(..)
            | Command::DropSession(_)
            | Command::MemoryPressure(_)
            | Command::WatchSteps
            | Command::Stop => {}
        }
    }

    /// The process has answered queries.
    pub(super) fn answered(&mut self, replies: &[QueryReply], loaded: &mut Vec<NamedAdapter>) {
        for QueryReply { query, answer } in replies {
            if let (Some(adapter), Answer::Adapter(Ok(id))) = (self.0.remove(query), answer) {
                loaded.push(NamedAdapter { loaded: Some(*id), ..adapter });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_process_loads_what_was_loaded_and_not_unloaded() {
        let (mut loading, mut loaded) = (LoadingAdapters::default(), Vec::new());
        for (query, name) in [(1, "a"), (2, "b"), (3, "c")] {
            let adapter = NamedAdapter::new(name, name);
            loading.requested(&Command::LoadAdapter(QueryId(query), adapter), &mut loaded);
        }
        assert_eq!(loaded, [], "nothing is loaded before the process says so");
        let reply = |query, answer| QueryReply { query: QueryId(query), answer: Answer::Adapter(answer) };
        loading.answered(&[reply(1, Ok(7)), reply(2, Err("no".to_owned())), reply(3, Ok(9))], &mut loaded);
        loading.requested(&Command::UnloadAdapter(7), &mut loaded);
        assert_eq!(loaded, [NamedAdapter { loaded: Some(9), ..NamedAdapter::new("c", "c") }]);
    }
}
