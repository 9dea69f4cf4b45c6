//! Events and their batches, as vLLM's `KVEventBatch` has them: arrays, each with its kind as the first value.

use crate::message_pack::Writer;

/// Where all blocks of these events are, by vLLM's word for device memory. Readers know no other one for it, also without a GPU.
const MEDIUM: &str = "GPU";

/// A change of the prefix cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A full block was cached.
    BlockStored(StoredBlock),
    /// The block with this hash was evicted.
    BlockRemoved(u64),
    /// All blocks were evicted.
    AllBlocksCleared,
}

/// A full block that was cached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBlock {
    /// The hash of its tokens and of all before them.
    pub hash: u64,
    /// The hash of the block before it; none for the first one.
    pub parent: Option<u64>,
    /// As many as a block has.
    pub tokens: Vec<u32>,
    /// The adapter that it was computed with.
    pub adapter: Option<Adapter>,
}

/// A LoRA adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adapter {
    /// Its number, which is equal in all servers that have it.
    pub id: u64,
    /// The name that requests use.
    pub name: String,
}

/// A batch of events as a message: `[timestamp, [event, …], data-parallel rank]`. `timestamp`: seconds since 1970.
pub fn batch(timestamp: f64, events: &[Event], rank: u32) -> Vec<u8> {
    let mut message = Writer::default();
    message.array(3);
    message.float(timestamp);
    message.array(events.len());
    for event in events {
        write(&mut message, event);
    }
    message.unsigned(rank.into());
    message.into_bytes()
}

fn write(message: &mut Writer, event: &Event) {
    match event {
        Event::BlockStored(StoredBlock { hash, parent, tokens, adapter }) => {
            message.array(8);
            message.string("BlockStored");
            message.integers([*hash].into_iter());
            match parent {
                Some(parent) => message.unsigned(*parent),
                None => message.nil(),
            }
            message.integers(tokens.iter().map(|token| u64::from(*token)));
            message.unsigned(tokens.len() as u64);
            match adapter {
                Some(adapter) => message.unsigned(adapter.id),
                None => message.nil(),
            }
            message.string(MEDIUM);
            match adapter {
                Some(adapter) => message.string(&adapter.name),
                None => message.nil(),
            }
        }
        Event::BlockRemoved(hash) => {
            message.array(3);
            message.string("BlockRemoved");
            message.integers([*hash].into_iter());
            message.string(MEDIUM);
        }
        Event::AllBlocksCleared => {
            message.array(1);
            message.string("AllBlocksCleared");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes as msgpack-python 1.1 packs `[1.5, [event], rank]`, with hexadecimal digits of the event and the rank.
    fn check(event: Event, rank: u32, expected: &str) {
        let bytes = batch(1.5, &[event], rank);
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, format!("93cb3ff800000000000091{expected}"));
    }

    #[test]
    fn events_are_the_arrays_that_vllm_publishes() {
        let first = StoredBlock { hash: 1 << 40, parent: None, tokens: vec![1, 300], adapter: None };
        let next = StoredBlock {
            hash: 2,
            parent: Some(1),
            tokens: vec![7],
            adapter: Some(Adapter { id: 5, name: "ab".to_owned() }),
        };
        check(
            Event::BlockStored(first),
            0,
            "98ab426c6f636b53746f72656491cf0000010000000000c09201cd012c02c0a3475055c000",
        );
        check(Event::BlockStored(next), 1, "98ab426c6f636b53746f72656491020191070105a3475055a2616201");
        check(Event::BlockRemoved(3), 0, "93ac426c6f636b52656d6f7665649103a347505500");
        check(Event::AllBlocksCleared, 2, "91b0416c6c426c6f636b73436c656172656402");
    }
}
