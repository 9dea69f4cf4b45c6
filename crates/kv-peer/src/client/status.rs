//! The state of a peer: whether it may be asked, and what came of it.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// How long a peer is left alone after its first failure; twice as long after each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Why a request to a peer failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureReason {
    /// There is no connection, or it broke.
    Unreachable,
    /// It took too long.
    Timeout,
    /// It answered with an error.
    Refused,
    /// Its blocks are those of another model or format.
    OtherModel,
    /// What it sent is damaged or was not requested.
    Invalid,
}

/// Failures by reason. They only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureCounts {
    /// There was no connection, or it broke.
    pub unreachable_total: u64,
    /// A request took too long.
    pub timeout_total: u64,
    /// A peer answered with an error.
    pub refused_total: u64,
    /// A peer serves another model, another KV format or another block size.
    pub other_model_total: u64,
    /// What a peer sent was damaged or not requested.
    pub invalid_total: u64,
}

impl FailureCounts {
    fn add(&mut self, reason: FailureReason) {
        let count = match reason {
            FailureReason::Unreachable => &mut self.unreachable_total,
            FailureReason::Timeout => &mut self.timeout_total,
            FailureReason::Refused => &mut self.refused_total,
            FailureReason::OtherModel => &mut self.other_model_total,
            FailureReason::Invalid => &mut self.invalid_total,
        };
        *count += 1;
    }
}

/// Statistics of peers. Those named `…_total` only grow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStats {
    /// Blocks that came.
    pub fetched_blocks_total: u64,
    /// Bytes of those.
    pub fetched_bytes_total: u64,
    /// Prompts that peers computed.
    pub prefills_total: u64,
    /// Tokens of those.
    pub prefill_tokens_total: u64,
    /// Requests that failed.
    pub failures: FailureCounts,
    /// Each peer's state.
    pub peers: Vec<PeerState>,
}

/// What is known of a peer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerState {
    /// Its server.
    pub url: String,
    /// Whether it may be asked now.
    pub usable: bool,
    /// Why the last request failed, if it did.
    pub failure: Option<String>,
}

/// A peer.
#[derive(Debug)]
pub(crate) struct PeerStatus {
    url: String,
    /// Failures since the last success.
    failures_in_a_row: u32,
    paused_until: Option<Instant>,
    failure: Option<String>,
    counts: FailureCounts,
    blocks: u64,
    bytes: u64,
    prefills: u64,
    prefill_tokens: u64,
}

impl PeerStatus {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            failures_in_a_row: 0,
            paused_until: None,
            failure: None,
            counts: FailureCounts::default(),
            blocks: 0,
            bytes: 0,
            prefills: 0,
            prefill_tokens: 0,
        }
    }

    pub(crate) fn is_usable(&self, now: Instant) -> bool {
        self.paused_until.is_none_or(|until| until <= now)
    }

    /// Blocks came, of so many bytes.
    pub(crate) fn count(&mut self, blocks: u64, bytes: u64) {
        self.blocks += blocks;
        self.bytes += bytes;
    }

    /// It computed a prompt of so many tokens.
    pub(crate) fn count_prefill(&mut self, tokens: u64) {
        self.prefills += 1;
        self.prefill_tokens += tokens;
    }

    pub(crate) fn succeeded(&mut self) {
        if self.failures_in_a_row > 0 {
            tracing::info!(peer = self.url, "the peer answers again");
        }
        (self.failures_in_a_row, self.paused_until, self.failure) = (0, None, None);
    }

    /// A request failed: the peer is left alone for a while. One line is logged until it answers again.
    pub(crate) fn failed(&mut self, reason: FailureReason, why: &str, now: Instant) {
        if self.failures_in_a_row == 0 {
            tracing::warn!(
                peer = self.url,
                why,
                "a peer's blocks cannot be fetched; prompts are computed instead"
            );
        }
        self.counts.add(reason);
        let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(self.failures_in_a_row));
        self.failures_in_a_row += 1;
        self.paused_until = Some(now + pause.min(LONGEST_PAUSE));
        self.failure = Some(why.to_owned());
    }
}

impl PeerStats {
    pub(crate) fn of(peers: &[PeerStatus], now: Instant) -> Self {
        let mut stats = Self::default();
        for peer in peers {
            stats.fetched_blocks_total += peer.blocks;
            stats.fetched_bytes_total += peer.bytes;
            stats.prefills_total += peer.prefills;
            stats.prefill_tokens_total += peer.prefill_tokens;
            stats.failures.unreachable_total += peer.counts.unreachable_total;
            stats.failures.timeout_total += peer.counts.timeout_total;
            stats.failures.refused_total += peer.counts.refused_total;
            stats.failures.other_model_total += peer.counts.other_model_total;
            stats.failures.invalid_total += peer.counts.invalid_total;
            let (url, failure) = (peer.url.clone(), peer.failure.clone());
            stats.peers.push(PeerState { url, usable: peer.is_usable(now), failure });
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_left_alone_longer_with_each_failure() {
        let (mut peer, now) = (PeerStatus::new("http://peer"), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..8 {
            peer.failed(FailureReason::Timeout, "late", now);
            pauses.push(peer.paused_until.map(|until| (until - now).as_secs()));
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60].map(Some));
        assert!(!peer.is_usable(now + Duration::from_secs(59)));
        assert!(peer.is_usable(now + Duration::from_secs(60)));
        peer.succeeded();
        assert!(peer.is_usable(now));
        peer.failed(FailureReason::Refused, "no", now);
        assert!(peer.is_usable(now + Duration::from_secs(1)));
        let stats = PeerStats::of(&[peer], now);
        assert_eq!((stats.failures.timeout_total, stats.failures.refused_total), (8, 1));
        assert_eq!(stats.peers[0].failure.as_deref(), Some("no"));
    }
}
