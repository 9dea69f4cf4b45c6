//! Prompts that peers compute.

use std::time::{Duration, Instant};

use super::status::FailureReason;
use super::{Client, Failed, Peers, Reply, answer, lock, wrong};
use crate::wire::{PREFILL_PATH, PrefillAnswer, PrefillRequest};

/// Most bytes of an answer.
const ANSWER_BYTES: usize = 256;

/// A prompt that a peer is to compute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemotePrefill {
    /// Names the reply.
    pub id: u64,
    /// The peer's place in [`super::PeerSettings::urls`].
    pub peer: usize,
    /// The tokens of its full blocks.
    pub tokens: Vec<u32>,
    /// What their hashes begin with besides tokens.
    pub cache_salt: u128,
    /// How long the peer may take.
    pub timeout: Duration,
}

impl Peers {
    /// The peer that computes prompts with this affinity: always the same one, as long as the same ones may be asked.
    pub fn prefill_peer(&self, affinity: u128) -> Option<usize> {
        let now = Instant::now();
        let statuses = lock(&self.statuses);
        let usable = statuses.iter().enumerate().filter(|(_, status)| status.is_usable(now));
        let usable: Vec<usize> = usable.map(|(peer, _)| peer).collect();
        let at = affinity.checked_rem(usable.len() as u128)?;
        usable.get(at as usize).copied()
    }
}

impl Client {
    pub(super) async fn prefill(&self, prefill: RemotePrefill) -> Reply {
        let (id, peer, started) = (prefill.id, prefill.peer, Instant::now());
        let computed = match self.settings.urls.get(peer) {
            Some(url) => self.prefill_at(url, prefill).await,
            None => Err(Failed(FailureReason::Refused, "there is no such peer".to_owned())),
        };
        let computed = match computed {
            Ok(answer) => {
                self.succeeded(peer);
                if let Some(status) = lock(&self.statuses).get_mut(peer) {
                    status.count_prefill(answer.prompt_tokens as u64);
                }
                Some((answer, started.elapsed()))
            }
            Err(failed) => {
                self.failed(peer, &failed);
                None
            }
        };
        Reply::Prefilled(id, computed)
    }

    async fn prefill_at(&self, url: &str, prefill: RemotePrefill) -> Result<PrefillAnswer, Failed> {
        let body = PrefillRequest {
            fingerprint: self.shape.fingerprint.long(),
            cache_salt: format!("{:032x}", prefill.cache_salt),
            tokens: prefill.tokens,
        };
        let tokens = body.tokens.len();
        let response = self.send(url, PREFILL_PATH, &body, prefill.timeout).await?;
        let answer: PrefillAnswer = answer(response, ANSWER_BYTES).await?;
        match answer.prompt_tokens == tokens && answer.cached_tokens <= tokens {
            true => Ok(answer),
            false => Err(wrong(format!("it computed {} of {tokens} tokens", answer.prompt_tokens))),
        }
    }
}
