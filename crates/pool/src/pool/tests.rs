//! Models that count their loads, and many clients at once.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::*;

/// A model that counts, and fails where it is loaded twice at once or beyond the memory of all.
struct Counted {
    bytes: u64,
    memory: Arc<Memory>,
    loads: AtomicUsize,
    up: AtomicUsize,
    fails_first: usize,
}

struct Memory {
    budget: u64,
    taken: AtomicU64,
}

impl Loadable for Counted {
    fn load(&self) -> Result<u64, String> {
        let load = self.loads.fetch_add(1, Ordering::SeqCst);
        assert_eq!(self.up.fetch_add(1, Ordering::SeqCst), 0, "loaded twice");
        let taken = self.memory.taken.fetch_add(self.bytes, Ordering::SeqCst) + self.bytes;
        assert!(taken <= self.memory.budget, "{taken} bytes");
        if load < self.fails_first {
            self.unload();
            return Err("broken".to_owned());
        }
        Ok(self.bytes)
    }

    fn unload(&self) {
        assert_eq!(self.up.fetch_sub(1, Ordering::SeqCst), 1, "unloaded twice");
        self.memory.taken.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

fn pool(sizes: &[u64], budget: u64, fails_first: usize) -> Pool<Counted> {
    let memory = Arc::new(Memory { budget, taken: AtomicU64::new(0) });
    let model = |bytes: &u64| {
        let (memory, loads, up) = (Arc::clone(&memory), AtomicUsize::new(0), AtomicUsize::new(0));
        (Counted { bytes: *bytes, memory, loads, up, fails_first }, *bytes, Policy::default())
    };
    let settings =
        PoolSettings { budget: Some(budget), patience: Duration::from_millis(1), waiting_max: 1000 };
    Pool::new(sizes.iter().map(model).collect(), &settings)
}

fn loads(pool: &Pool<Counted>) -> Vec<usize> {
    pool.models().iter().map(|model| model.loads.load(Ordering::SeqCst)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_leases_at_once_cause_one_load() {
    let pool = pool(&[4], 8, 0);
    let leases: Vec<_> = (0..100)
        .map(|_| {
            tokio::spawn({
                let pool = pool.clone();
                async move { pool.lease(ModelId(0)).await.map(|_| ()) }
            })
        })
        .collect();
    for lease in leases {
        assert_eq!(lease.await.unwrap(), Ok(()));
    }
    assert_eq!(loads(&pool), [1]);
    pool.unload(ModelId(0)).await;
    assert_eq!(pool.memory().taken, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_models_in_the_memory_of_two_serve_all_that_do_not_leave() {
    let pool = pool(&[4, 4, 3, 5, 4], 9, 1);
    let client = |seed: usize| {
        let pool = pool.clone();
        async move {
            let mut served = 0;
            for turn in 0..20 {
                let model = ModelId((seed * 7 + turn * (seed % 3 + 1)) % 5);
                let lease = pool.lease(model);
                // Some leave at once, in whatever state their place is.
                if (seed + turn).is_multiple_of(5) {
                    tokio::select! {
                        biased;
                        lease = lease => drop(lease),
                        () = tokio::task::yield_now() => {}
                    }
                    continue;
                }
                match lease.await {
                    Ok(lease) => {
                        tokio::task::yield_now().await;
                        drop(lease);
                        served += 1;
                    }
                    Err(Refusal::Failed { why, .. }) => assert_eq!(why, "broken"),
                    Err(other) => panic!("{other}"),
                }
            }
            served
        }
    };
    let clients: Vec<_> = (0..40).map(|seed| tokio::spawn(client(seed))).collect();
    for client in clients {
        client.await.unwrap();
    }
    for (index, model) in pool.models().iter().enumerate() {
        assert_eq!(pool.residence(ModelId(index)).unwrap().users, 0, "a lease was lost");
        assert_eq!(pool.residence(ModelId(index)).unwrap().waiting, 0);
        assert!(model.loads.load(Ordering::SeqCst) > 0);
    }
    for index in 0..5 {
        pool.unload(ModelId(index)).await;
    }
    assert_eq!(pool.memory().taken, 0);
}

#[tokio::test]
async fn time_alone_unloads_what_is_not_used() {
    let pool = pool(&[4], 8, 0);
    pool.set_policy(ModelId(0), Policy { pinned: false, ttl: Some(Duration::ZERO) });
    drop(pool.lease(ModelId(0)).await.unwrap());
    while pool.memory().taken > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(loads(&pool), [1]);
}

#[tokio::test]
async fn a_load_that_panics_has_failed() {
    let pool = pool(&[4], 2, 0);
    // The table was given less than the model takes.
    let added = pool.add(
        Counted {
            bytes: 4,
            memory: Arc::new(Memory { budget: 2, taken: AtomicU64::new(0) }),
            loads: AtomicUsize::new(0),
            up: AtomicUsize::new(0),
            fails_first: 0,
        },
        1,
        Policy::default(),
    );
    let refusal = pool.lease(added).await.map(|_| ()).unwrap_err();
    assert!(matches!(refusal, Refusal::Failed { .. }), "{refusal}");
    let refusal = pool.lease(ModelId(0)).await.map(|_| ()).unwrap_err();
    assert_eq!(refusal, Refusal::TooLarge { needed: 4, budget: 2, pinned: 0 });
}
