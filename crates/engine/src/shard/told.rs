//! What feedback tells of the packets of pictures that left with transport-wide numbers: those that did not come can be sent
//! again before anybody asks ([`super::resend`] does). A receiver asks later: it waits for packets that overtake each other, and
//! does not see that the end of a frame is missing until the next frame comes.
//!
//! A packet is taken for lost if feedback said that it did not come, and that one came which was sent long enough after it.
//! What feedback did not tell of is not lost: the feedback may be.

use crate::limits::{OVERTAKEN, TOLD_PLACES};
use std::time::Instant;

/// The wait grows by so much with each packet that came after it was taken for lost, in ms…
const LATE_MS: f32 = 2.0;
/// …and so much is left of it with each other one.
const WAIT_MEMORY: f32 = 0.98;

/// A packet of a picture, as it left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Picture {
    pub slot: u16,
    /// Its sequence number when it left first.
    pub sequence: u16,
    /// How often it had been sent again by then, this time included.
    pub times: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Untold,
    Missing,
    Came,
    Lost,
}

/// What is known of a number. Sound and padding have no picture.
#[derive(Debug, Clone, Copy)]
struct Place {
    number: u16,
    fate: Fate,
    at_ms: u32,
    picture: Option<Picture>,
}

/// The last numbers of one receiver.
#[derive(Debug)]
pub(super) struct Told {
    /// By number.
    ring: Vec<Place>,
    began: Instant,
    /// The first number that is not judged yet.
    next: u16,
    /// The number after the newest one that came, and when that one left.
    end: u16,
    newest_ms: u32,
    /// A packet that left so long before one that came is lost, if it did not come.
    wait_ms: f32,
}

impl Told {
    /// From this number on.
    pub(super) fn new(now: Instant, next: u16) -> Self {
        let none = Place { number: 0, fate: Fate::Came, at_ms: 0, picture: None };
        let wait_ms = OVERTAKEN.0.as_millis() as f32;
        let ring = vec![none; TOLD_PLACES];
        Self { ring, began: now, next, end: next, newest_ms: 0, wait_ms }
    }

    /// A packet left with this number.
    #[inline]
    pub(super) fn sent(&mut self, now: Instant, number: u16, picture: Option<Picture>) {
        let at_ms = now.saturating_duration_since(self.began).as_millis() as u32;
        let place = Place { number, fate: Fate::Untold, at_ms, picture };
        self.ring[usize::from(number) % TOLD_PLACES] = place;
    }

    /// Feedback tells whether the packet with this number came. Returns the packet of a picture that did.
    pub(super) fn tell(&mut self, number: u16, came: bool) -> Option<Picture> {
        let place = &mut self.ring[usize::from(number) % TOLD_PLACES];
        if place.number != number || place.fate == Fate::Came {
            return None;
        }
        if !came {
            if place.fate == Fate::Untold {
                place.fate = Fate::Missing;
                // Feedback is overtaken as well.
                self.next = if is_before(number, self.next) { number } else { self.next };
            }
            return None;
        }
        if place.fate == Fate::Lost {
            self.wait_ms = (self.wait_ms + LATE_MS).min(OVERTAKEN.1.as_millis() as f32);
        }
        place.fate = Fate::Came;
        if !is_before(number, self.end) {
            (self.end, self.newest_ms) = (number.wrapping_add(1), place.at_ms);
        }
        place.picture
    }

    /// The next packet of a picture that is taken for lost, each once.
    pub(super) fn next_lost(&mut self) -> Option<Picture> {
        let least = self.end.wrapping_sub(TOLD_PLACES as u16);
        if is_before(self.next, least) {
            self.next = least;
        }
        while is_before(self.next, self.end) {
            let place = &mut self.ring[usize::from(self.next) % TOLD_PLACES];
            let since = self.newest_ms.saturating_sub(place.at_ms);
            let known = place.number == self.next;
            if known && (since as f32) < self.wait_ms {
                return None;
            }
            self.next = self.next.wrapping_add(1);
            if known && place.fate == Fate::Missing {
                place.fate = Fate::Lost;
                self.wait_ms = (self.wait_ms * WAIT_MEMORY).max(OVERTAKEN.0.as_millis() as f32);
                if place.picture.is_some() {
                    return place.picture;
                }
            }
        }
        None
    }
}

/// Whether a number is before another one that is less than half of all numbers away.
fn is_before(one: u16, other: u16) -> bool {
    (one.wrapping_sub(other) as i16) < 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const PICTURE: fn(u16) -> Picture = |sequence| Picture { slot: 3, sequence, times: 0 };

    /// Packets that leave each 4 ms from this number on, every fifth of sound.
    fn told(first: u16, packets: u16) -> Told {
        let start = Instant::now();
        let mut told = Told::new(start, first);
        for n in 0..packets {
            let picture = (n % 5 != 4).then(|| PICTURE(n));
            let at = start + Duration::from_millis(4 * u64::from(n));
            told.sent(at, first.wrapping_add(n), picture);
        }
        told
    }

    /// Feedback on these packets, of which some did not come. Returns which are lost.
    fn hear(told: &mut Told, first: u16, range: std::ops::Range<u16>, missing: &[u16]) -> Vec<u16> {
        for n in range {
            let came = told.tell(first.wrapping_add(n), !missing.contains(&n));
            assert!(came.is_none_or(|came| came == PICTURE(n) && !missing.contains(&n)));
        }
        std::iter::from_fn(|| told.next_lost()).map(|lost| lost.sequence).collect()
    }

    #[test]
    fn a_picture_that_did_not_come_is_lost_once_something_later_came() {
        for first in [1, 65_530] {
            let mut told = told(first, 100);
            // The fifth is sound; what left less than 10 ms before the newest one may come yet.
            assert_eq!(hear(&mut told, first, 0..10, &[2, 4, 6, 7, 8]), [2, 6], "{first}");
            assert_eq!(hear(&mut told, first, 8..11, &[]), [7]);
            assert_eq!(hear(&mut told, first, 2..12, &[2, 6, 7]), [], "each once");
            assert_eq!(hear(&mut told, first, 300..400, &[]), [], "they never left");
        }
    }

    #[test]
    fn feedback_that_is_lost_or_overtaken_makes_no_packet_lost() {
        let mut told = told(1, 100);
        assert_eq!(hear(&mut told, 1, 20..30, &[22]), [22], "nothing was told of the first 20");
        assert_eq!(hear(&mut told, 1, 10..20, &[11, 12]), [11, 12], "it was overtaken");
        assert_eq!(hear(&mut told, 1, 0..40, &[11, 12, 22]), []);
    }

    #[test]
    fn where_packets_come_late_they_are_waited_for() {
        let mut told = told(1, 1000);
        let mut waits = Vec::new();
        for begin in (0..900).step_by(20) {
            let lost = hear(&mut told, 1, begin..begin + 20, &[begin + 10]);
            assert!(lost == [begin + 10] || told.wait_ms > 35.0, "{lost:?}");
            told.tell(1 + begin + 10, true);
            waits.push(told.wait_ms);
        }
        assert!(waits[0] > 11.0 && waits[44] > 35.0 && waits[44] <= 40.0, "{waits:?}");
        for begin in (900..980).step_by(2) {
            hear(&mut told, 1, begin..begin + 2, &[begin]);
        }
        assert!(told.wait_ms < 30.0, "{}", told.wait_ms);
    }

    #[test]
    fn what_is_forgotten_is_not_lost() {
        let mut told = told(1, 3 * TOLD_PLACES as u16);
        let last = 3 * TOLD_PLACES as u16 - 1;
        assert_eq!(hear(&mut told, 1, 0..20, &[3]), [], "other packets have their places");
        assert_eq!(hear(&mut told, 1, last - 10..last + 1, &[last - 8]), [last - 8]);
        assert_eq!(told.next, told.end.wrapping_sub(3), "the newest are not judged");
    }
}
