//! Publications that were not taken and that nobody answers: a client that does not ask is told all the same.

use std::time::Duration;
use tokio::time::Instant;
use wire::RoomError;
use wire::frame::PublishLost;

/// A client is told once in this time.
const EVERY: Duration = Duration::from_secs(1);

/// What a socket is not told yet.
#[derive(Debug, Default)]
pub(super) struct Lost {
    count: u64,
    /// Of the last one.
    why: Option<RoomError>,
    /// When it may be told again.
    next: Option<Instant>,
}

impl Lost {
    /// One more was not taken.
    pub(super) fn add(&mut self, why: RoomError, now: Instant) {
        self.count += 1;
        self.why = Some(why);
        self.next = self.next.or(Some(now));
    }

    /// When there is something to tell, if there is.
    pub(super) fn due(&self) -> Option<Instant> {
        self.next.filter(|_| self.count > 0)
    }

    /// What is to be told now.
    pub(super) fn take(&mut self, now: Instant) -> Option<PublishLost> {
        self.due().filter(|due| *due <= now)?;
        self.next = Some(now + EVERY);
        let lost = std::mem::take(&mut self.count);
        Some(PublishLost { lost, error: self.why.take()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ErrorCode;

    #[test]
    fn the_first_is_told_at_once_and_all_others_once_a_second() {
        let (mut lost, begin) = (Lost::default(), Instant::now());
        assert_eq!((lost.due(), lost.take(begin)), (None, None));
        let why = |code| RoomError::new(code, "x");
        lost.add(why(ErrorCode::TooFast), begin);
        assert_eq!(lost.take(begin).map(|told| told.lost), Some(1));
        let later = begin + EVERY / 2;
        (0..9).for_each(|_| lost.add(why(ErrorCode::TooFast), later));
        lost.add(why(ErrorCode::NotAllowed), later);
        assert_eq!((lost.due(), lost.take(later)), (Some(begin + EVERY), None));
        let told = lost.take(begin + EVERY).expect("it is due");
        assert_eq!(
            (told.lost, told.error.code),
            (10, ErrorCode::NotAllowed),
            "the last one's reason"
        );
        assert_eq!(lost.due(), None);
    }
}
