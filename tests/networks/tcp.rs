//! A TCP sender (NewReno, RFC 5681 and RFC 6582, without timers finer than a second) for links that media share with it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Bytes of a segment with its headers.
pub const SEGMENT: usize = 1500;

/// Sender and receiver of one connection.
pub struct Tcp {
    pub delay: Duration,
    begins: Instant,
    /// Segments to send in all; more than there is time for, where it sends without end.
    segments: u64,
    window: f64,
    threshold: f64,
    /// The next new segment, and the first not acknowledged.
    next: u64,
    acknowledged: u64,
    duplicates: u32,
    /// Lost segments are sent again until this one is acknowledged.
    recovers: Option<u64>,
    again: Option<u64>,
    heard_at: Instant,
    received: BTreeSet<u64>,
    expected: u64,
}

impl Tcp {
    pub fn new(begins: Instant, delay: Duration, segments: u64) -> Self {
        Self {
            delay,
            begins,
            segments,
            window: 10.0,
            threshold: f64::MAX,
            next: 0,
            acknowledged: 0,
            duplicates: 0,
            recovers: None,
            again: None,
            heard_at: begins,
            received: BTreeSet::new(),
            expected: 0,
        }
    }

    /// Everything arrived.
    pub fn is_done(&self) -> bool {
        self.acknowledged >= self.segments
    }

    /// The next segment to leave now.
    pub fn next(&mut self, now: Instant) -> Option<u64> {
        if now < self.begins || self.is_done() {
            return None;
        }
        if let Some(again) = self.again.take() {
            return Some(again);
        }
        let silent = now.saturating_duration_since(self.heard_at) > Duration::from_secs(1);
        if silent && self.next > self.acknowledged {
            // Nothing was heard for a second: it begins anew with the first that is missing.
            self.threshold = (self.window / 2.0).max(2.0);
            self.window = 1.0;
            self.recovers = None;
            self.duplicates = 0;
            self.heard_at = now;
            self.next = self.acknowledged;
        }
        let flying = self.next - self.acknowledged;
        let inflated = f64::from(self.duplicates);
        if self.next < self.segments && (flying as f64) < self.window + inflated {
            self.next += 1;
            return Some(self.next - 1);
        }
        None
    }

    /// A segment arrives: how long its acknowledgement takes, and what it says.
    pub fn receive(&mut self, sequence: u64) -> (Duration, u64) {
        if sequence >= self.expected {
            self.received.insert(sequence);
        }
        while self.received.remove(&self.expected) {
            self.expected += 1;
        }
        (self.delay, self.expected)
    }

    /// All below `sequence` arrived.
    pub fn acknowledged(&mut self, now: Instant, sequence: u64) {
        self.heard_at = now;
        if sequence <= self.acknowledged {
            self.duplicates += 1;
            if self.duplicates == 3 && self.recovers.is_none() {
                self.threshold = (self.window / 2.0).max(2.0);
                self.window = self.threshold;
                self.recovers = Some(self.next);
                self.again = Some(self.acknowledged);
            }
            return;
        }
        let newly = (sequence - self.acknowledged) as f64;
        self.acknowledged = sequence;
        self.next = self.next.max(sequence);
        match self.recovers {
            Some(until) if sequence < until => self.again = Some(sequence),
            Some(_) => (self.recovers, self.duplicates) = (None, 0),
            None => {
                self.duplicates = 0;
                let slow_start = self.window < self.threshold;
                self.window += if slow_start { newly } else { newly / self.window };
            }
        }
    }
}
