//! Threads that must be served soon.

use std::time::Duration;

/// Raises the calling thread's priority: browsers of the same run must not delay bots or the clock that
/// judges them. Without the privilege they may, and the timer lag shows it.
pub(crate) fn be_prompt() {
    let _ = net::thread::set_current_thread_prompt(-10, Duration::from_micros(100));
}
