//! Blocks of other replicas: which a peer has, and reading those that are worth it.
//!
//! Invariant: a sequence waits for a peer while it is in the queue, never longer than the timeout for the lookup and again
//! for each batch that is read, and once for a prompt that a peer computes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, channel};

use bytes::Bytes;
use omnibus_core::{HoldReason, OffloadTier, Scheduler, SequenceId, Tick, Transfer};
use omnibus_kv_peer::{BlockShape, Fingerprint, PeerStats, Peers, Reply, Request};

use super::pending_reads::PendingReads;
use super::remote_prefills::RemotePrefills;
use super::{KvOffload, name_of, ticks};
use crate::disk::BlockName;
use crate::error::StartError;
use crate::settings::Settings;
use crate::worker::device_client::DeviceClient;
use crate::worker::model_traits::KvLayout;

/// The client of the peers, and its requests in progress.
pub(super) struct PeerTier {
    pub(super) peers: Peers,
    replies: Receiver<Reply>,
    pending: PendingReads,
    /// Prompts that peers compute; `None` where they compute none for this server.
    pub(super) prefills: Option<RemotePrefills>,
}

impl PeerTier {
    pub(super) fn open(
        settings: &Settings,
        fingerprint: Fingerprint,
        layout: &KvLayout,
    ) -> Result<Option<Self>, StartError> {
        if !settings.fetches_blocks() {
            return Ok(None);
        }
        let (replies_tx, replies) = channel();
        let on_reply = move |reply| {
            // The loop drops the receiver with the client.
            let _receiver_gone = replies_tx.send(reply);
        };
        let shape = BlockShape { fingerprint, block_bytes: layout.block_bytes.clone() };
        let timeout = settings.kv_peers.timeout;
        let prefills = settings.delegates_prefill().then(|| RemotePrefills::new(timeout));
        let peers = Peers::start(settings.kv_peers.clone(), shape, on_reply)
            .map_err(|error| StartError::new(format!("--kv-peer: {error}")))?;
        Ok(Some(Self { peers, replies, pending: PendingReads::new(ticks(timeout)), prefills }))
    }

    /// Sends a request for a sequence, unless no peer may be asked.
    fn send(&mut self, id: SequenceId, request: Request, now: Tick) -> bool {
        let is_sent = !self.pending.is_stalled() && self.peers.is_usable() && self.peers.send(request);
        if is_sent {
            self.pending.push(id, now);
        }
        is_sent
    }

    /// Detaches the requests from their sequences.
    pub(super) fn detach(&mut self) {
        self.pending.detach();
        self.prefills.iter_mut().for_each(RemotePrefills::detach);
    }

    pub(super) fn is_reading(&self) -> bool {
        self.pending.is_any() || self.prefills.as_ref().is_some_and(RemotePrefills::is_any)
    }

    pub(super) fn stats(&self) -> PeerStats {
        self.peers.stats()
    }
}

impl KvOffload {
    /// Asks peers for the blocks that a waiting sequence lacks, and holds it, if reading them all were worth it.
    pub(super) fn ask_peers(&mut self, scheduler: &mut Scheduler, id: SequenceId, now: Tick) {
        if self.peers.is_none() {
            return;
        }
        let absent = scheduler.missing_blocks(id, |_, _| true).into_iter();
        let absent: Vec<_> = absent.map(|(group, key)| (group, key, OffloadTier::Peer)).collect();
        if absent.is_empty() || !scheduler.is_worth_restoring(id, &absent) {
            return;
        }
        // A layer group with states or a window may resume at other blocks than the last one.
        let hashes = scheduler.block_hashes(id).into_iter();
        let names = hashes.flat_map(|key| (0..self.block_bytes.len()).map(move |group| (group, key)));
        let names = names.filter(|(group, key)| scheduler.find_cached_block(*group, *key).is_none());
        let names = names.map(|(group, key)| name_of(group, key)).collect();
        self.send_to_peers(scheduler, id, Request::Lookup(names), now);
    }

    fn send_to_peers(&mut self, scheduler: &mut Scheduler, id: SequenceId, request: Request, now: Tick) {
        if self.peers.as_mut().is_some_and(|peers| peers.send(id, request, now)) {
            scheduler.hold(id, HoldReason::Transfer);
        }
    }

    /// Takes in replies of peers: reads what was found and restores what was read.
    pub(super) fn finish_peer_requests(
        &mut self,
        scheduler: &mut Scheduler,
        device: &mut DeviceClient,
        now: Tick,
    ) -> mlx::Result<()> {
        while let Some(reply) = self.peers.as_ref().and_then(|peers| peers.replies.try_recv().ok()) {
            if let Reply::Prefilled(number, computed) = reply {
                self.finish_prefill(scheduler, (number, computed), now);
                continue;
            }
            let waiting = self.peers.as_mut().and_then(|peers| peers.pending.complete());
            let Some(id) = waiting else { continue };
            match reply {
                Reply::Prefilled(..) => {}
                Reply::Found(peer, names) => {
                    scheduler.release_hold(id, HoldReason::Transfer);
                    let at_peer: BTreeSet<BlockName> = names.into_iter().collect();
                    if !self.delegate_prefill(scheduler, id, (peer, &at_peer), now) {
                        self.read_from_peer(scheduler, id, (peer, at_peer), now);
                    }
                }
                Reply::Blocks(blocks, took) => {
                    let bytes = blocks.iter().map(|(_, bytes)| bytes.len() as u64).sum();
                    scheduler.learn_transfer(Transfer::PeerRead, bytes, ticks(took));
                    let blocks = blocks.into_iter().map(|(name, bytes)| (name, Bytes::from(bytes)));
                    let read: BTreeMap<BlockName, Bytes> = blocks.collect();
                    self.restore_read(scheduler, device, (id, &read), now)?;
                }
            }
        }
        let Some(peers) = &mut self.peers else { return Ok(()) };
        let late = peers.prefills.as_mut().map(|prefills| prefills.expire(now)).unwrap_or_default();
        for id in peers.pending.expire(now).into_iter().chain(late) {
            scheduler.release_hold(id, HoldReason::Transfer);
        }
        Ok(())
    }

    /// Reads the blocks that a peer has and a sequence can use, and holds the sequence, if that is expected to be faster than
    /// computing them.
    fn read_from_peer(
        &mut self,
        scheduler: &mut Scheduler,
        id: SequenceId,
        (peer, at_peer): (usize, BTreeSet<BlockName>),
        now: Tick,
    ) {
        let sought = self.find_restorable(scheduler, id, &at_peer).into_iter();
        let wanted = sought.filter_map(|(name, store)| (store == OffloadTier::Peer).then_some(name));
        let mut names: Vec<BlockName> = wanted.collect();
        // Leading blocks first, all groups of each: so a transfer that breaks leaves something of use.
        let places = scheduler.block_hashes(id).into_iter().enumerate();
        let places: BTreeMap<u128, usize> = places.map(|(place, key)| (key, place)).collect();
        names.sort_by_key(|name| places.get(&name.key).copied());
        if !names.is_empty() {
            self.send_to_peers(scheduler, id, Request::Read(peer, names), now);
        }
    }
}
