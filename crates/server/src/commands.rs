//! The way from rooms to a media or a mixing thread: commands arrive in order, and none is lost.
//!
//! Rooms send under their lock, on the threads of the runtime, so sending never waits. The queue itself has no bound:
//! rooms refuse calls that add work while it [is behind](Sender::is_behind). Commands that still come then take people
//! out or follow reports. The number of people bounds them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;

/// How many commands may wait before calls are refused.
const BEHIND: usize = 16_384;

/// Where rooms put commands.
#[derive(Debug)]
pub(crate) struct Sender<T> {
    queue: mpsc::Sender<T>,
    waiting: Arc<AtomicUsize>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), waiting: self.waiting.clone() }
    }
}

/// Where a thread takes them.
#[derive(Debug)]
pub(crate) struct Receiver<T> {
    queue: mpsc::Receiver<T>,
    waiting: Arc<AtomicUsize>,
}

/// A queue of commands.
pub(crate) fn queue<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    (Sender { queue: sender, waiting: waiting.clone() }, Receiver { queue: receiver, waiting })
}

impl<T> Sender<T> {
    /// Sends a command; says whether a thread is there to take it.
    pub(crate) fn send(&self, command: T) -> bool {
        self.waiting.fetch_add(1, Relaxed);
        let taken = self.queue.send(command).is_ok();
        if !taken {
            self.waiting.fetch_sub(1, Relaxed);
        }
        taken
    }

    /// Whether the thread is so far behind that it gets no new work.
    pub(crate) fn is_behind(&self) -> bool {
        self.waiting.load(Relaxed) >= BEHIND
    }
}

impl<T> Receiver<T> {
    /// Takes the next command, if there is one.
    pub(crate) fn take(&self) -> Option<T> {
        let command = self.queue.try_recv().ok()?;
        self.waiting.fetch_sub(1, Relaxed);
        Some(command)
    }
}
