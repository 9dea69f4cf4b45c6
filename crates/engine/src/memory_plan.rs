//! How a model's memory is divided: weights, KV cache, scratch, swap space.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How much memory a model may use, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLimit {
    /// Bytes that may be in use at once, this process's present use included.
    pub bytes: u64,
    /// The limit's source, for messages.
    pub source: String,
}

/// How a model's memory is divided.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPlan {
    /// The machine's limit; `None` where it is unknown.
    pub limit: Option<MemoryLimit>,
    /// Bytes of the weights, and of the adapters that are loaded with them.
    pub weights_bytes: u64,
    /// Of the weights, most bytes of resident experts, where the others stay in files.
    pub expert_bytes: u64,
    /// Bytes kept for adapters that are loaded later.
    pub adapter_bytes: u64,
    /// Bytes of KV blocks and recurrent states.
    pub kv_bytes: u64,
    /// Tokens that fit into them.
    pub kv_tokens: usize,
    /// Of the weights, bytes of the draft model or head.
    pub draft_weights_bytes: u64,
    /// Of the KV blocks, bytes of the draft model or head.
    pub draft_kv_bytes: u64,
    /// Bytes of intermediate results of the largest steps.
    pub scratch_bytes: u64,
    /// Bytes of features of images, as they come.
    pub media_bytes: u64,
    /// Bytes of intermediate results of the largest picture or sound in its encoder.
    pub encoder_bytes: u64,
    /// Bytes left free on purpose.
    pub headroom_bytes: u64,
    /// Bytes of host memory for the blocks of preempted sequences, allocated as needed.
    pub swap_bytes: u64,
}

impl MemoryPlan {
    /// Expected peak of all arrays.
    pub fn expected_peak_bytes(&self) -> u64 {
        let steps = self.weights_bytes + self.adapter_bytes + self.kv_bytes + self.scratch_bytes;
        steps + self.media_bytes + self.encoder_bytes
    }

    /// Bytes left for the KV cache.
    pub(crate) fn left_bytes(&self) -> Option<u64> {
        let taken = self.expected_peak_bytes() + self.headroom_bytes;
        self.limit.as_ref().map(|limit| limit.bytes.saturating_sub(taken))
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} weights, {} KV cache for {} tokens, up to {} activations",
            gigabytes(self.weights_bytes),
            gigabytes(self.kv_bytes),
            self.kv_tokens,
            gigabytes(self.scratch_bytes),
        )?;
        if self.draft_weights_bytes > 0 {
            let [weights, kv] = [self.draft_weights_bytes, self.draft_kv_bytes].map(gigabytes);
            write!(f, "; of these {weights} weights and {kv} KV cache of what drafts")?;
        }
        if self.expert_bytes > 0 {
            write!(f, "; of these weights up to {} experts, read from files", gigabytes(self.expert_bytes))?;
        }
        if self.adapter_bytes > 0 {
            write!(f, ", up to {} adapters", gigabytes(self.adapter_bytes))?;
        }
        if self.media_bytes > 0 {
            write!(f, ", up to {} features of images", gigabytes(self.media_bytes))?;
        }
        if self.encoder_bytes > 0 {
            write!(f, ", up to {} activations of encoders", gigabytes(self.encoder_bytes))?;
        }
        if self.swap_bytes > 0 {
            write!(f, ", up to {} swap space", gigabytes(self.swap_bytes))?;
        }
        match &self.limit {
            Some(limit) => write!(f, "; {} is {}", limit.source, gigabytes(limit.bytes)),
            None => Ok(()),
        }
    }
}

/// Bytes as `1.25 GB`.
pub fn gigabytes(bytes: u64) -> String {
    format!("{:.2} GB", bytes as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_of_encoders_leave_less_for_the_kv_cache() {
        let limit = Some(MemoryLimit { bytes: 10 << 30, source: "memory".to_owned() });
        let without =
            MemoryPlan { limit, weights_bytes: 1 << 30, media_bytes: 1 << 28, ..MemoryPlan::default() };
        let with = MemoryPlan { encoder_bytes: 3 << 28, ..without.clone() };
        assert_eq!(without.left_bytes().unwrap() - with.left_bytes().unwrap(), 3 << 28);
        assert!(with.to_string().contains(", up to 0.81 GB activations of encoders"), "{with}");
        assert!(!without.to_string().contains("of encoders"), "{without}");
    }

    #[test]
    fn what_drafts_is_part_of_the_weights_and_the_kv_cache() {
        let plan = MemoryPlan {
            weights_bytes: 3 << 30,
            kv_bytes: 2 << 30,
            draft_weights_bytes: 1 << 30,
            draft_kv_bytes: 1 << 29,
            ..MemoryPlan::default()
        };
        assert_eq!(plan.expected_peak_bytes(), 5 << 30);
        let text = plan.to_string();
        assert!(text.contains("; of these 1.07 GB weights and 0.54 GB KV cache of what drafts"), "{text}");
    }
}
