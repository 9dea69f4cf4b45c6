//! What the scheduler's prefix cache stores and evicts, as KV events of vLLM's schema.
//!
//! Invariant: publishing never waits.

use std::collections::BTreeMap;

use omnibus_core::CacheEvent;
use omnibus_kv_events::{Adapter, Event, Publisher, PublisherStats, StoredBlock};

use crate::error::StartError;
use crate::settings::{NamedAdapter, Settings};

/// The publisher of one engine.
pub(super) struct KvEvents {
    publisher: Publisher,
    /// Names of the adapters that are loaded at the start, by id.
    names: BTreeMap<u128, String>,
}

impl KvEvents {
    /// Listens, if the settings say where. The first event clears what subscribers know of an engine before this one.
    pub(super) fn start(settings: &Settings, adapters: &[NamedAdapter]) -> Result<Option<Self>, StartError> {
        let Some(settings) = &settings.kv_events else { return Ok(None) };
        let publisher = Publisher::start(settings).map_err(|error| {
            StartError::new(format!("--kv-events-endpoint: {error}; each model needs a port of its own"))
        })?;
        let names = adapters.iter().filter_map(|adapter| Some((adapter.loaded?, adapter.name.clone())));
        Ok(Some(Self { publisher, names: names.collect() }))
    }

    /// Publishes changes of the prefix cache in one batch.
    pub(super) fn publish(&mut self, changes: Vec<CacheEvent>) {
        let events = changes.into_iter().map(|change| event(change, &self.names)).collect();
        self.publisher.publish(events);
    }

    pub(super) fn stats(&self) -> PublisherStats {
        self.publisher.stats()
    }
}

fn event(change: CacheEvent, names: &BTreeMap<u128, String>) -> Event {
    match change {
        CacheEvent::Stored(omnibus_core::StoredBlock { hash, parent, tokens, adapter }) => {
            Event::BlockStored(StoredBlock {
                hash: short(hash),
                parent: parent.map(short),
                tokens,
                adapter: (adapter != 0).then(|| Adapter {
                    id: short(adapter),
                    name: names.get(&adapter).cloned().unwrap_or_else(|| format!("{adapter:032x}")),
                }),
            })
        }
        CacheEvent::Removed(hash) => Event::BlockRemoved(short(hash)),
        CacheEvent::Cleared => Event::AllBlocksCleared,
    }
}

/// The half of a hash that readers have room for.
fn short(hash: u128) -> u64 {
    hash as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_an_adapter_have_its_name() {
        let names = BTreeMap::from([(7, "turn".to_owned())]);
        let stored = |adapter| {
            let block =
                omnibus_core::StoredBlock { hash: 1 << 100 | 3, parent: Some(2), tokens: vec![4], adapter };
            match event(CacheEvent::Stored(block), &names) {
                Event::BlockStored(block) => {
                    Some((block.hash, block.parent, block.adapter.map(|adapter| adapter.name)))
                }
                Event::BlockRemoved(_) | Event::AllBlocksCleared => None,
            }
        };
        assert_eq!(stored(0), Some((3, Some(2), None)));
        assert_eq!(stored(7), Some((3, Some(2), Some("turn".to_owned()))));
        assert_eq!(stored(8), Some((3, Some(2), Some(format!("{:032x}", 8)))));
    }
}
