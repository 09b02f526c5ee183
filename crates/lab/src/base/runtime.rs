//! The threads on which the lab's own work runs.

/// The threads of the lab. From now on a signal ends what runs in order.
///
/// # Errors
/// In words: the system has no thread left.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, String> {
    super::asked::listen();
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let threads = threads.worker_threads(2).thread_name("lab").enable_all();
    threads.build().map_err(|error| format!("threads cannot be started: {error}"))
}
