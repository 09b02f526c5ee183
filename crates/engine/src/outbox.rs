//! State on its way to another thread, which may be behind.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Keeps the latest value of each subject until the other thread takes it: state is never lost, however late it comes.
///
/// Values leave in the order in which their subjects came. A value that a later one of its subject replaced is never seen:
/// this is for state, not for events.
#[derive(Debug)]
pub struct Outbox<K, V> {
    order: VecDeque<K>,
    values: HashMap<K, V>,
    most: usize,
}

impl<K: Clone + Eq + Hash, V> Outbox<K, V> {
    /// One that keeps values of at most so many subjects.
    pub fn new(most: usize) -> Self {
        Self { order: VecDeque::new(), values: HashMap::new(), most }
    }

    /// Puts a value, which replaces the one of the same subject that still waits.
    ///
    /// # Errors
    /// Values of so many other subjects wait already: this one comes back.
    pub fn put(&mut self, subject: K, value: V) -> Result<(), V> {
        if let Some(waits) = self.values.get_mut(&subject) {
            *waits = value;
            return Ok(());
        }
        if self.values.len() >= self.most {
            return Err(value);
        }
        self.order.push_back(subject.clone());
        self.values.insert(subject, value);
        Ok(())
    }

    /// Hands values over until `take` gives one back, which then waits on at the head.
    pub fn hand_over(&mut self, mut take: impl FnMut(V) -> Result<(), V>) {
        while let Some(subject) = self.order.pop_front() {
            let Some(value) = self.values.remove(&subject) else { continue };
            if let Err(value) = take(value) {
                self.values.insert(subject.clone(), value);
                self.order.push_front(subject);
                return;
            }
        }
    }

    /// Drops what waits of subjects that concern nobody any more.
    pub fn forget(&mut self, gone: impl Fn(&K) -> bool) {
        self.order.retain(|subject| !gone(subject));
        self.values.retain(|subject, _| !gone(subject));
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What leaves while `room` values are taken.
    fn taken(outbox: &mut Outbox<u8, u32>, room: usize) -> Vec<u32> {
        let mut taken = Vec::new();
        outbox.hand_over(|value| {
            if taken.len() == room {
                return Err(value);
            }
            taken.push(value);
            Ok(())
        });
        taken
    }

    #[test]
    fn the_latest_of_each_subject_arrives_however_late() {
        let mut outbox = Outbox::new(3);
        for (subject, value) in [(1, 10), (2, 20), (1, 11), (3, 30)] {
            outbox.put(subject, value).unwrap();
        }
        assert_eq!(taken(&mut outbox, 0), []);
        assert_eq!(taken(&mut outbox, 1), [11], "in the order of the subjects");
        outbox.put(2, 21).unwrap();
        outbox.put(1, 12).unwrap();
        assert_eq!(taken(&mut outbox, 9), [21, 30, 12]);
        assert!(outbox.is_empty());
        assert_eq!(taken(&mut outbox, 9), []);
    }

    #[test]
    fn it_holds_so_much_and_says_what_it_does_not_take() {
        let mut outbox = Outbox::new(2);
        outbox.put(1, 0).unwrap();
        outbox.put(2, 0).unwrap();
        assert_eq!(outbox.put(3, 30), Err(30));
        assert_eq!(outbox.put(2, 1), Ok(()), "of a subject that waits already");
        outbox.forget(|subject| *subject == 1);
        assert_eq!(outbox.put(3, 30), Ok(()));
        assert_eq!(taken(&mut outbox, 9), [1, 30]);
    }
}
