//! What a key has used, and what is left of its limits.
//!
//! Invariant: an account outlives reloads of the key file, so that a reload fills no limit.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use omnibus_engine::Class;

use super::bucket::{Bucket, Level};
use super::limits::{Exceeded, KeyLimits};

/// The use of one key since the server's start.
#[derive(Debug, Default)]
pub struct Account {
    requests: AtomicU64,
    limited: AtomicU64,
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    completion_tokens: AtomicU64,
    streams: AtomicUsize,
    queued: AtomicUsize,
    buckets: Mutex<Buckets>,
}

/// What is left of limits per minute; `None` before their first use.
#[derive(Debug, Default)]
struct Buckets {
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
}

/// The numbers of an account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests that were not limited.
    pub requests: u64,
    /// Requests that a limit refused.
    pub limited: u64,
    /// Tokens of prompts.
    pub prompt_tokens: u64,
    /// Tokens of prompts that were cached.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub completion_tokens: u64,
    /// Responses that are generated now.
    pub streams: usize,
    /// Sequences that wait for their first step.
    pub queued: usize,
}

/// Limits per minute at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Levels {
    /// Of requests, if they are limited.
    pub requests: Option<Level>,
    /// Of tokens, if they are limited.
    pub tokens: Option<Level>,
}

/// A response that is generated. One that a client waits for counts as a stream of its key until it is dropped.
#[derive(Debug)]
pub struct StreamPlace(Option<Arc<Account>>);

impl Drop for StreamPlace {
    fn drop(&mut self) {
        if let Some(account) = &self.0 {
            account.streams.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A sequence that waits for its first step. One that a client waits for counts as queued until it is dropped.
#[derive(Debug)]
pub struct QueuePlace(Option<Arc<Account>>);

impl Drop for QueuePlace {
    fn drop(&mut self) {
        if let Some(account) = &self.0 {
            account.queued.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Account {
    /// Counts a request and its stream, or fails at a limit. A batch's request takes no stream.
    pub fn admit(
        self: &Arc<Self>,
        limits: &KeyLimits,
        now: Duration,
        class: Class,
    ) -> Result<StreamPlace, Exceeded> {
        self.try_admit(limits, now, class).inspect_err(|_| _ = self.limited.fetch_add(1, Ordering::Relaxed))
    }

    fn try_admit(
        self: &Arc<Self>,
        limits: &KeyLimits,
        now: Duration,
        class: Class,
    ) -> Result<StreamPlace, Exceeded> {
        let mut buckets = self.filled(limits, now);
        let waits = [
            buckets
                .requests
                .zip(limits.requests_per_minute)
                .and_then(|(bucket, limit)| Some(Exceeded::Requests { limit, wait: bucket.wait(limit)? })),
            buckets
                .tokens
                .zip(limits.tokens_per_minute)
                .and_then(|(bucket, limit)| Some(Exceeded::Tokens { limit, wait: bucket.wait(limit)? })),
        ];
        // The client is to wait for both.
        if let Some(longest) = waits.into_iter().flatten().max_by_key(Exceeded::wait) {
            return Err(longest);
        }
        if class == Class::Online {
            let most = limits.streams.unwrap_or(usize::MAX);
            enter(&self.streams, most).ok_or(Exceeded::Streams { limit: most })?;
        }
        if let Some(bucket) = &mut buckets.requests {
            bucket.take(1);
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        Ok(StreamPlace((class == Class::Online).then(|| Arc::clone(self))))
    }

    /// Counts a sequence that waits in a queue with `places` places, or fails at the key's share of them. Sequences of
    /// batches have a queue of their own.
    pub fn queue(
        self: &Arc<Self>,
        limits: &KeyLimits,
        places: usize,
        class: Class,
    ) -> Result<QueuePlace, Exceeded> {
        if class == Class::Offline {
            return Ok(QueuePlace(None));
        }
        let most = limits.queue_places(places);
        let entered = enter(&self.queued, most).ok_or(Exceeded::QueueShare { limit: most });
        entered.inspect_err(|_| _ = self.limited.fetch_add(1, Ordering::Relaxed))?;
        Ok(QueuePlace(Some(Arc::clone(self))))
    }

    /// Counts tokens of a prompt.
    pub fn charge_prompt(&self, tokens: u64, cached: u64) {
        self.prompt_tokens.fetch_add(tokens, Ordering::Relaxed);
        self.cached_tokens.fetch_add(cached, Ordering::Relaxed);
        self.take(tokens);
    }

    /// Counts tokens that were generated.
    pub fn charge_completion(&self, tokens: u64) {
        self.completion_tokens.fetch_add(tokens, Ordering::Relaxed);
        self.take(tokens);
    }

    fn take(&self, tokens: u64) {
        if let Some(bucket) = &mut self.lock().tokens {
            bucket.take(tokens);
        }
    }

    /// What was used.
    pub fn totals(&self) -> Totals {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Totals {
            requests: of(&self.requests),
            limited: of(&self.limited),
            prompt_tokens: of(&self.prompt_tokens),
            cached_tokens: of(&self.cached_tokens),
            completion_tokens: of(&self.completion_tokens),
            streams: self.streams.load(Ordering::Relaxed),
            queued: self.queued.load(Ordering::Relaxed),
        }
    }

    /// Whether a request came, limited or not.
    pub fn is_used(&self) -> bool {
        let Totals { requests, limited, .. } = self.totals();
        requests + limited > 0
    }

    /// What is left of limits per minute.
    pub fn levels(&self, limits: &KeyLimits, now: Duration) -> Levels {
        let buckets = self.filled(limits, now);
        let level = |bucket: Option<Bucket>, limit: Option<u64>| Some(bucket?.level(limit?));
        Levels {
            requests: level(buckets.requests, limits.requests_per_minute),
            tokens: level(buckets.tokens, limits.tokens_per_minute),
        }
    }

    fn filled(&self, limits: &KeyLimits, now: Duration) -> MutexGuard<'_, Buckets> {
        let mut buckets = self.lock();
        fill(&mut buckets.requests, limits.requests_per_minute, now);
        fill(&mut buckets.tokens, limits.tokens_per_minute, now);
        buckets
    }

    fn lock(&self) -> MutexGuard<'_, Buckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fill(bucket: &mut Option<Bucket>, limit: Option<u64>, now: Duration) {
    match limit {
        Some(limit) => bucket.get_or_insert_with(|| Bucket::full(limit, now)).fill(limit, now),
        None => *bucket = None,
    }
}

/// Adds one to a count that is below a limit.
fn enter(count: &AtomicUsize, most: usize) -> Option<()> {
    let next = |count: usize| (count < most).then_some(count + 1);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok().map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(100);

    fn seconds(count: u64) -> Duration {
        START + Duration::from_secs(count)
    }

    #[test]
    fn requests_of_a_minute_are_limited() {
        let (account, limits) =
            (Arc::default(), KeyLimits { requests_per_minute: Some(2), ..KeyLimits::default() });
        let admit = |now| Account::admit(&account, &limits, now, Class::Online).map(drop);
        assert_eq!([admit(START), admit(START)], [Ok(()), Ok(())]);
        assert_eq!(admit(START), Err(Exceeded::Requests { limit: 2, wait: Duration::from_secs(30) }));
        assert_eq!(admit(seconds(30)), Ok(()));
        let Totals { requests, limited, streams, .. } = account.totals();
        assert_eq!((requests, limited, streams), (3, 1, 0));
    }

    #[test]
    fn tokens_are_charged_as_they_come_and_waited_for() {
        let account = Arc::<Account>::default();
        let limits = KeyLimits { tokens_per_minute: Some(60), ..KeyLimits::default() };
        drop(account.admit(&limits, START, Class::Online).unwrap());
        account.charge_prompt(50, 20);
        account.charge_completion(70);
        assert_eq!(account.levels(&limits, START).tokens.unwrap().remaining, 0);
        let refused = account.admit(&limits, START, Class::Online).unwrap_err();
        assert_eq!(refused, Exceeded::Tokens { limit: 60, wait: Duration::from_secs(61) });
        assert!(account.admit(&limits, seconds(61), Class::Online).is_ok());
        let Totals { prompt_tokens, cached_tokens, completion_tokens, .. } = account.totals();
        assert_eq!((prompt_tokens, cached_tokens, completion_tokens), (50, 20, 70));
    }

    #[test]
    fn streams_and_places_in_the_queue_end_with_their_drop() {
        let account = Arc::<Account>::default();
        let limits = KeyLimits { streams: Some(1), queue_share: Some(0.5), ..KeyLimits::default() };
        let stream = account.admit(&limits, START, Class::Online).unwrap();
        assert_eq!(account.admit(&limits, START, Class::Online).unwrap_err(), Exceeded::Streams { limit: 1 });
        drop(stream);
        assert!(account.admit(&limits, START, Class::Online).is_ok());
        let places = [
            account.queue(&limits, 4, Class::Online).unwrap(),
            account.queue(&limits, 4, Class::Online).unwrap(),
        ];
        assert_eq!(account.queue(&limits, 4, Class::Online).unwrap_err(), Exceeded::QueueShare { limit: 2 });
        drop(places);
        assert!(account.queue(&limits, 4, Class::Online).is_ok());
        assert_eq!(account.totals().queued, 0);
    }

    #[test]
    fn requests_of_batches_take_no_stream_and_no_place_but_count_per_minute() {
        let account = Arc::<Account>::default();
        let limits = KeyLimits {
            streams: Some(1),
            queue_share: Some(0.5),
            requests_per_minute: Some(3),
            ..KeyLimits::default()
        };
        let _batch = [(); 2].map(|()| {
            let place = account.queue(&limits, 2, Class::Offline).unwrap();
            (account.admit(&limits, START, Class::Offline).unwrap(), place)
        });
        assert_eq!((account.totals().streams, account.totals().queued), (0, 0));
        let _stream = account.admit(&limits, START, Class::Online).unwrap();
        assert!(account.queue(&limits, 2, Class::Online).is_ok());
        let refused = account.admit(&limits, START, Class::Offline).unwrap_err();
        assert!(matches!(refused, Exceeded::Requests { limit: 3, .. }));
    }

    #[test]
    fn a_refused_request_takes_nothing() {
        let account = Arc::<Account>::default();
        let limits = KeyLimits { streams: Some(1), requests_per_minute: Some(2), ..KeyLimits::default() };
        let _stream = account.admit(&limits, START, Class::Online).unwrap();
        assert!(account.admit(&limits, START, Class::Online).is_err());
        assert_eq!(account.levels(&limits, START).requests.unwrap().remaining, 1);
    }

    #[test]
    fn a_key_without_limits_has_no_levels() {
        let account = Arc::<Account>::default();
        drop(account.admit(&KeyLimits::default(), START, Class::Online).unwrap());
        account.charge_completion(5);
        assert_eq!(account.levels(&KeyLimits::default(), START), Levels::default());
    }
}
