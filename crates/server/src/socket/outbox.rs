//! What waits to be written to one socket, bounded in bytes.

use axum::extract::ws::Utf8Bytes;
use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use wire::frame::close;

/// What a queued frame costs besides its text.
const FRAME_OVERHEAD: usize = 64;

/// Why a socket is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Close {
    pub code: u16,
    pub reason: Cow<'static, str>,
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    Queued,
    /// The socket is closing: nothing more is taken.
    Closed,
    /// The bound was reached just now: this many frames were discarded, including this one.
    Overflow {
        discarded: u64,
    },
}

/// What is to be written next.
#[derive(Debug)]
pub(crate) struct Batch {
    pub frames: Vec<Utf8Bytes>,
    /// What these frames cost of the bound, until [`Outbox::written`].
    pub bytes: usize,
    /// Close after these frames.
    pub close: Option<Close>,
}

#[derive(Debug, Default)]
struct State {
    queue: Vec<Utf8Bytes>,
    /// Bytes queued, and those taken and not yet written.
    bytes: usize,
    close: Option<Close>,
    overflowed: bool,
}

#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    /// There is something to do. One writer waits for it.
    wake: Notify,
    /// The writer must stop in the middle of a write.
    abort: Notify,
    bound_bytes: usize,
}

impl Outbox {
    pub fn new(bound_bytes: usize) -> Self {
        Self { state: Mutex::default(), wake: Notify::new(), abort: Notify::new(), bound_bytes }
    }

    /// Queues a frame. If it exceeds the bound, the client reads too slowly: all that is queued is discarded, and the
    /// socket closes.
    pub fn push(&self, frame: Utf8Bytes) -> Pushed {
        let mut state = self.lock();
        if state.close.is_some() {
            return Pushed::Closed;
        }
        let cost = frame.len() + FRAME_OVERHEAD;
        if state.bytes + cost > self.bound_bytes {
            let discarded = state.queue.len() as u64 + 1;
            state.queue = Vec::new();
            state.overflowed = true;
            state.close = Some(Close {
                code: close::SLOW_CONSUMER,
                reason: "the client reads too slowly".into(),
            });
            drop(state);
            self.wake.notify_one();
            self.abort.notify_one();
            return Pushed::Overflow { discarded };
        }
        state.bytes += cost;
        state.queue.push(frame);
        drop(state);
        self.wake.notify_one();
        Pushed::Queued
    }

    /// Whether at most half of the bound is used with a further frame of so many bytes.
    pub fn is_half_free_with(&self, bytes: usize) -> bool {
        self.lock().bytes + bytes + FRAME_OVERHEAD <= self.bound_bytes / 2
    }

    /// Closes once what is queued is written. The first reason stands.
    pub fn close(&self, code: u16, reason: impl Into<Cow<'static, str>>) {
        let mut state = self.lock();
        if state.close.is_none() {
            state.close = Some(Close { code, reason: reason.into() });
        }
        drop(state);
        self.wake.notify_one();
        self.abort.notify_one();
    }

    /// Takes all that is queued; waits until there is something. Dropping the future loses nothing.
    pub async fn take(&self) -> Batch {
        loop {
            {
                let mut state = self.lock();
                if !state.queue.is_empty() || state.close.is_some() {
                    let frames = std::mem::take(&mut state.queue);
                    let bytes = frames.iter().map(|frame| frame.len() + FRAME_OVERHEAD).sum();
                    return Batch { frames, bytes, close: state.close.clone() };
                }
            }
            self.wake.notified().await;
        }
    }

    /// A batch is written: its bytes make room.
    pub fn written(&self, bytes: usize) {
        let mut state = self.lock();
        state.bytes = state.bytes.saturating_sub(bytes);
    }

    /// Discards what is queued, when nobody writes any more. Returns how many frames it was.
    pub fn abandon(&self) -> u64 {
        std::mem::take(&mut self.lock().queue).len() as u64
    }

    /// Waits until a write that is under way must stop: at once where the bound is reached, and a `grace` after any
    /// other close. Says whether the bound was reached.
    pub async fn given_up(&self, grace: Duration) -> bool {
        loop {
            let (closes, overflowed) = {
                let state = self.lock();
                (state.close.is_some(), state.overflowed)
            };
            match (closes, overflowed) {
                (_, true) => return true,
                (true, false) => {
                    tokio::time::sleep(grace).await;
                    return false;
                }
                (false, false) => self.abort.notified().await,
            }
        }
    }

    /// Whether it closes, or has closed.
    pub fn is_closing(&self) -> bool {
        self.lock().close.is_some()
    }

    pub fn closing(&self) -> Option<Close> {
        self.lock().close.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(length: usize) -> Utf8Bytes {
        "x".repeat(length).into()
    }

    #[tokio::test]
    async fn the_bound_counts_what_is_not_yet_written() {
        let outbox = Outbox::new(3 * (36 + FRAME_OVERHEAD));
        assert_eq!(outbox.push(frame(36)), Pushed::Queued);
        assert_eq!(outbox.push(frame(36)), Pushed::Queued);
        let batch = outbox.take().await;
        assert_eq!((batch.frames.len(), batch.close), (2, None));
        assert_eq!(outbox.push(frame(36)), Pushed::Queued);
        outbox.written(batch.bytes);
        assert_eq!(outbox.push(frame(36)), Pushed::Queued);
        assert_eq!(outbox.push(frame(36)), Pushed::Queued);
        assert_eq!(outbox.push(frame(1)), Pushed::Overflow { discarded: 4 });
        assert!(outbox.given_up(Duration::from_secs(100)).await, "at once");
        assert_eq!(outbox.push(frame(1)), Pushed::Closed);
        let batch = outbox.take().await;
        assert!(batch.frames.is_empty());
        assert_eq!(batch.close.unwrap().code, close::SLOW_CONSUMER);
    }

    #[tokio::test]
    async fn what_others_pass_on_has_half_of_it() {
        let outbox = Outbox::new(4 * (36 + FRAME_OVERHEAD));
        assert!(!outbox.is_half_free_with(2 * 100 + 1));
        assert!(outbox.is_half_free_with(36));
        outbox.push(frame(36));
        assert!(outbox.is_half_free_with(36));
        outbox.push(frame(36));
        assert!(!outbox.is_half_free_with(0));
        let batch = outbox.take().await;
        assert!(!outbox.is_half_free_with(0), "not yet written");
        outbox.written(batch.bytes);
        assert!(outbox.is_half_free_with(36));
    }

    #[tokio::test]
    async fn closing_writes_what_is_queued_first() {
        let outbox = Outbox::new(1000);
        outbox.push(frame(1));
        outbox.close(4102, "ends");
        outbox.close(4001, "too late");
        assert!(!outbox.given_up(Duration::ZERO).await);
        assert_eq!(outbox.push(frame(1)), Pushed::Closed);
        let batch = outbox.take().await;
        assert_eq!(batch.frames.len(), 1);
        assert_eq!(batch.close, Some(Close { code: 4102, reason: "ends".into() }));
        assert_eq!(outbox.closing().unwrap().code, 4102);
    }
}
