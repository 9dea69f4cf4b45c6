//! How much of a prompt a peer computes, when its blocks come over a link and the rest is computed here.
//!
//! The peer sends each block once it is computed, so computing there and sending overlap; what comes last is computed here,
//! after the blocks have come. Time to first token is the larger of both ways' times, plus the rest.

/// Measured speeds of two servers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speeds {
    /// Tokens of a prompt that this server computes in a second.
    pub here: f64,
    /// Tokens of a prompt that the peer computes in a second.
    pub peer: f64,
}

/// A connection to a peer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Bytes in a second.
    pub bytes_per_s: f64,
    /// Seconds until the first byte: the request, and the peer's queue.
    pub latency_s: f64,
    /// Bytes of keys and values of a token.
    pub token_bytes: f64,
}

/// How a prompt is divided.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Split {
    /// Leading tokens that the peer computes: whole blocks.
    pub peer_tokens: usize,
    /// Expected seconds until the prompt is computed.
    pub seconds: f64,
}

/// The division of a prompt that takes the least time; all here where a peer does not help. `block_size`: tokens of a
/// block; `tokens`: of the prompt, of which the last one is always computed here.
pub fn choose_split(tokens: usize, block_size: usize, speeds: Speeds, link: Link) -> Split {
    let seconds = |peer_tokens: usize| time_of(tokens, peer_tokens, speeds, link);
    let alone = Split { peer_tokens: 0, seconds: seconds(0) };
    let blocks = tokens.saturating_sub(1) / block_size.max(1);
    // The time is linear in the peer's share but for the step at zero, so that the best is at one of the ends.
    let most =
        Split { peer_tokens: blocks * block_size.max(1), seconds: seconds(blocks * block_size.max(1)) };
    if most.seconds < alone.seconds { most } else { alone }
}

/// Seconds until a prompt is computed, of which a peer computes the first tokens.
fn time_of(tokens: usize, peer_tokens: usize, speeds: Speeds, link: Link) -> f64 {
    let rest = tokens.saturating_sub(peer_tokens) as f64 / speeds.here;
    if peer_tokens == 0 {
        return rest;
    }
    let (computed, sent) = (1.0 / speeds.peer, link.token_bytes / link.bytes_per_s);
    link.latency_s + peer_tokens as f64 * computed.max(sent) + rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_division_into_blocks_is_faster(
            tokens in 1_usize..5_000,
            block_size in 1_usize..64,
            here in 1.0..10_000.0_f64,
            peer in 1.0..10_000.0_f64,
            bytes_per_s in 1e6..1e10_f64,
            latency_s in 0.0..2.0_f64,
        ) {
            let (speeds, link) = (Speeds { here, peer }, Link { bytes_per_s, latency_s, token_bytes: 131_072.0 });
            let chosen = choose_split(tokens, block_size, speeds, link);
            prop_assert!(chosen.peer_tokens < tokens && chosen.peer_tokens.is_multiple_of(block_size));
            for peer_tokens in (0..tokens).step_by(block_size) {
                let other = time_of(tokens, peer_tokens, speeds, link);
                prop_assert!(chosen.seconds <= other * (1.0 + 1e-9), "{peer_tokens} tokens: {other} s");
            }
        }

        #[test]
        fn a_faster_link_never_costs_time(tokens in 1_usize..5_000, bytes_per_s in 1e6..1e9_f64) {
            let speeds = Speeds { here: 100.0, peer: 1_000.0 };
            let link = |bytes_per_s| Link { bytes_per_s, latency_s: 0.01, token_bytes: 131_072.0 };
            let slow = choose_split(tokens, 32, speeds, link(bytes_per_s));
            prop_assert!(choose_split(tokens, 32, speeds, link(2.0 * bytes_per_s)).seconds <= slow.seconds);
        }
    }

    #[test]
    fn a_slow_link_or_a_slow_peer_leaves_all_here() {
        let link = Link { bytes_per_s: 1.25e9, latency_s: 0.01, token_bytes: 131_072.0 };
        let slow_peer = choose_split(65_536, 32, Speeds { here: 800.0, peer: 700.0 }, link);
        assert_eq!(slow_peer.peer_tokens, 0);
        let slow_link = Link { bytes_per_s: 10e6, ..link };
        assert_eq!(
            choose_split(65_536, 32, Speeds { here: 800.0, peer: 39_000.0 }, slow_link).peer_tokens,
            0
        );
        let both_fast = choose_split(65_536, 32, Speeds { here: 800.0, peer: 39_000.0 }, link);
        assert_eq!(both_fast.peer_tokens, 65_504, "all but the last block");
    }
}
