//! Threads without time, on purpose: the fault `busy_thread`.

use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// So long it does nothing else, again and again.
const TURN: Duration = Duration::from_millis(50);

/// Keeps a CPU busy for a turn.
pub(crate) fn burn() {
    let begin = Instant::now();
    while begin.elapsed() < TURN {
        std::hint::spin_loop();
    }
}

/// Leaves the threads of the current runtime no time, until it is dropped.
pub(crate) fn keep_busy() -> JoinSet<()> {
    let threads = tokio::runtime::Handle::current().metrics().num_workers();
    let keep_one = async || loop {
        burn();
        tokio::task::yield_now().await;
    };
    (0..threads).map(|_| keep_one()).collect()
}
