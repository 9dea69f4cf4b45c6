//! How much memory a model may take beside others, before it is loaded.

use omnibus_engine::Settings;

/// What is taken beside weights and KV cache: activations, code, buffers.
const OVERHEAD: u64 = 512 << 20;
/// The share of the weights that is taken beside them.
const OVERHEAD_SHARE: f64 = 0.1;
/// Bounds of the KV cache, where the settings do not say how much it takes: as much as the weights, within these.
const KV: (u64, u64) = (256 << 20, 8 << 30);

/// Bytes for a model with these bytes of weights: what the settings say, else weights, overhead and a KV cache. A model that
/// fits without most of its KV cache gets a smaller one.
pub fn bytes(weights: u64, settings: &Settings, budget: u64) -> u64 {
    if let Some(bytes) = settings.memory_limit.filter(|bytes| *bytes < budget) {
        return bytes;
    }
    let least = weights + (weights as f64 * OVERHEAD_SHARE) as u64 + OVERHEAD;
    let kv = settings.kv_cache_memory.unwrap_or_else(|| weights.clamp(KV.0, KV.1));
    match settings.kv_cache_memory {
        Some(kv) => least + kv,
        None => (least + kv).min(budget.max(least + KV.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1 << 30;

    #[test]
    fn a_model_has_its_weights_overhead_and_a_kv_cache_of_its_size() {
        let settings = Settings::default();
        assert_eq!(bytes(10 * GB, &settings, 100 * GB), 19 * GB + OVERHEAD);
        assert_eq!(bytes(GB / 100, &settings, 100 * GB), GB / 100 + GB / 1000 + OVERHEAD + KV.0);
        // A smaller KV cache, where the memory ends there.
        assert_eq!(bytes(10 * GB, &settings, 12 * GB), 12 * GB);
        // What cannot fit is not made to.
        assert!(bytes(20 * GB, &settings, 12 * GB) > 20 * GB);
    }

    #[test]
    fn settings_say_how_much_there_is() {
        let kv = Settings { kv_cache_memory: Some(GB), ..Settings::default() };
        assert_eq!(bytes(10 * GB, &kv, 100 * GB), 12 * GB + OVERHEAD);
        let all = Settings { memory_limit: Some(3 * GB), ..Settings::default() };
        assert_eq!(bytes(10 * GB, &all, 100 * GB), 3 * GB);
        // The limit of all models is none of this one.
        let of_all = Settings { memory_limit: Some(50 * GB), ..Settings::default() };
        assert_eq!(bytes(10 * GB, &of_all, 50 * GB), 19 * GB + OVERHEAD);
    }
}
