//! Loops over fixtures, over every core.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::thread;

/// Checks each item, on whichever core is free, and returns the results in the order of the items. Arrays stay in a check:
/// they belong to its thread.
pub fn each<I: Send, R: Send>(items: Vec<I>, check: impl Fn(I) -> R + Sync) -> Vec<R> {
    let queue = Mutex::new(items.into_iter().enumerate());
    let next = || queue.lock().unwrap().next();
    let worker = || std::iter::from_fn(next).map(|(at, item)| (at, check(item))).collect::<Vec<_>>();
    let mut results: Vec<(usize, R)> = thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        let results =
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        results.flatten().collect()
    });
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

#[test]
fn results_have_the_order_of_the_items_and_a_panic_is_passed_on() {
    assert_eq!(each((0..100).collect(), |n| n * n), (0..100).map(|n| n * n).collect::<Vec<_>>());
    assert!(std::panic::catch_unwind(|| each(vec![1, 2, 3], |n| assert!(n != 2))).is_err());
}
