//! How far the load of a model is.

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// How much of a model's weights is in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadProgress {
    /// Bytes of weights that are resident, at most all.
    pub loaded_bytes: u64,
    /// Bytes of all weight files; 0 before they were looked at.
    pub total_bytes: u64,
}

/// Receives the progress of a load.
pub(crate) type ProgressSender = Box<dyn Fn(LoadProgress) + Send>;

/// The progress of a load that goes on, of each replica. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoadWatch(Arc<Mutex<Vec<LoadProgress>>>);

impl LoadWatch {
    /// A load begins.
    pub(crate) fn reset(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// How far a replica is.
    pub(crate) fn set(&self, replica: usize, progress: LoadProgress) {
        let mut each = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let replicas = each.len().max(replica.saturating_add(1));
        each.resize(replicas, LoadProgress::default());
        if let Some(of_replica) = each.get_mut(replica) {
            *of_replica = progress;
        }
    }

    /// How far all replicas are together, as far as they have begun.
    pub(crate) fn together(&self) -> LoadProgress {
        let each = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        each.iter().fold(LoadProgress::default(), |sum, replica| LoadProgress {
            loaded_bytes: sum.loaded_bytes.saturating_add(replica.loaded_bytes),
            total_bytes: sum.total_bytes.saturating_add(replica.total_bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_of_replicas_adds_up_until_the_next_load() {
        let watch = LoadWatch::default();
        let progress = |loaded_bytes, total_bytes| LoadProgress { loaded_bytes, total_bytes };
        assert_eq!(watch.together(), progress(0, 0));
        watch.set(1, progress(3, 10));
        watch.set(0, progress(10, 10));
        watch.set(1, progress(4, 10));
        assert_eq!(watch.together(), progress(14, 20));
        watch.reset();
        assert_eq!(watch.together(), progress(0, 0));
    }
}
