//! How much is sent again (RFC 4588): each packet at most once in a round-trip time, and in all at most a share of the
//! pictures that flow to the receiver. [`crate::shard`] refuses the rest.

use crate::limits::{
    HISTORY_PACKETS, LEAST_RESEND_BYTES, RESEND_BURST, RESEND_INTERVAL, RESEND_LOOKUPS_PER_S,
    RESEND_PCT, RESEND_RATE_WINDOW, RTT_UNKNOWN,
};
use std::time::{Duration, Instant};

/// How much one receiver may be sent again. The media that flows to the receiver fills it, not time:
/// over any span, at most the share of that span's media and what was saved up before.
#[derive(Debug)]
pub(super) struct Resends {
    /// Bytes that may be sent again now.
    credit: u64,
    /// Most bytes that may be saved up.
    most: u64,
    /// Bytes of media that were counted into the credit.
    counted: u64,
    /// So much of the media may be sent again, in percent.
    share_pct: u64,
    /// Since when the media's rate is measured, and the media's bytes then.
    since: (Instant, u64),
    /// How many requested numbers may be looked up, in units of 1/1000, and when that was counted.
    lookups: u64,
    looked: Instant,
}

impl Resends {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            credit: LEAST_RESEND_BYTES,
            most: LEAST_RESEND_BYTES,
            counted: 0,
            share_pct: RESEND_PCT.0,
            since: (now, 0),
            lookups: HISTORY_PACKETS as u64 * 1000,
            looked: now,
        }
    }

    /// How many of the `asked` sequence numbers may be looked up.
    pub(super) fn look(&mut self, asked: usize, now: Instant) -> usize {
        let passed_ms = now.saturating_duration_since(self.looked).as_millis() as u64;
        self.looked += Duration::from_millis(passed_ms);
        let most = HISTORY_PACKETS as u64 * 1000;
        self.lookups =
            most.min(self.lookups.saturating_add(passed_ms.saturating_mul(RESEND_LOOKUPS_PER_S)));
        let allowed = asked.min((self.lookups / 1000) as usize);
        self.lookups -= allowed as u64 * 1000;
        allowed
    }

    /// `media` bytes of pictures have left to the receiver in all.
    pub(super) fn fill(&mut self, media: u64, now: Instant) {
        let passed = now.saturating_duration_since(self.since.0);
        if passed >= RESEND_RATE_WINDOW {
            let bytes_per_s = (media - self.since.1) as f64 / passed.as_secs_f64();
            self.most = LEAST_RESEND_BYTES.max((bytes_per_s * RESEND_BURST.as_secs_f64()) as u64);
            self.since = (now, media);
        }
        let share = (media - self.counted) * self.share_pct / 100;
        self.counted = media;
        self.credit = self.most.min(self.credit + share);
    }

    /// This much flows, with sound, on a path that carries `estimate`, both in bits a second; None if nothing is known of it. What
    /// is left of it may be used to send again, within [`RESEND_PCT`] of the pictures.
    pub(super) fn limit(&mut self, flow: u64, estimate: Option<u64>) {
        let pct = estimate
            .map_or(0, |estimate| estimate.saturating_sub(flow).saturating_mul(100) / flow.max(1));
        self.share_pct = pct.clamp(RESEND_PCT.0, RESEND_PCT.1);
    }

    /// Takes the bytes of a packet, if more than half of the credit is left after that: for what may be left out.
    pub(super) fn take_spare(&mut self, len: usize) -> bool {
        2 * self.credit > self.most + 2 * len as u64 && self.take(len)
    }

    /// Takes the bytes of a packet, if there is credit for it.
    pub(super) fn take(&mut self, len: usize) -> bool {
        let rest = self.credit.checked_sub(len as u64);
        self.credit = rest.unwrap_or(self.credit);
        rest.is_some()
    }
}

/// When each sequence number of a slot may be sent again, for as many numbers as packets are kept.
#[derive(Debug, Default)]
pub(crate) struct SentAgain {
    /// By sequence number: which one, and from when on it may be sent again, in milliseconds
    /// since `began`. Empty before the first request.
    ring: Vec<(u16, u32)>,
    began: Option<Instant>,
}

impl SentAgain {
    fn ms(&self, now: Instant) -> u32 {
        self.began.map_or(0, |began| now.saturating_duration_since(began).as_millis() as u32)
    }

    /// Whether a number was sent again less than a round trip ago.
    pub(crate) fn is_too_soon(&self, sequence: u16, now: Instant) -> bool {
        let place = self.ring.get(usize::from(sequence) % HISTORY_PACKETS);
        place.is_some_and(|(known, from_ms)| *known == sequence && self.ms(now) < *from_ms)
    }

    /// A number is sent again. It will not be sent once more within `interval`.
    pub(crate) fn note(&mut self, sequence: u16, now: Instant, interval: Duration) {
        if self.ring.is_empty() {
            self.ring.resize(HISTORY_PACKETS, (0, 0));
            self.began = Some(now);
        }
        let from_ms = self.ms(now).saturating_add(interval.as_millis() as u32);
        self.ring[usize::from(sequence) % HISTORY_PACKETS] = (sequence, from_ms);
    }
}

/// A round-trip time to a participant, in bounds: the longest lately between two requests for a packet, the least between
/// two resends of it.
pub(crate) fn round_trip(rtt_ms: Option<f64>) -> Duration {
    let known = rtt_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
    known.unwrap_or(RTT_UNKNOWN).clamp(RESEND_INTERVAL.0, RESEND_INTERVAL.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_a_share_of_what_flows_is_sent_again_and_little_is_saved_up() {
        let start = Instant::now();
        let mut resends = Resends::new(start);
        // 10 kB every 20 ms, and as much as possible again, for 10 s; before that nothing for long.
        let (mut media, mut again, mut by_second) = (0, 0, Vec::new());
        for n in 0..500 {
            media += 10_000;
            resends.fill(media, start + Duration::from_secs(60) + Duration::from_millis(20 * n));
            while resends.take(1000) {
                again += 1000;
            }
            if n % 50 == 49 {
                by_second.push(std::mem::take(&mut again));
            }
        }
        let share = 500_000 * RESEND_PCT.0 / 100;
        assert!(
            by_second.iter().all(|bytes| *bytes <= share + LEAST_RESEND_BYTES),
            "{by_second:?}"
        );
        assert!(by_second[1..].iter().all(|bytes| *bytes + 1000 >= share), "{by_second:?}");
        // Credit that nobody used in a minute was not all saved up.
        media += 30_000_000;
        resends.fill(media, start + Duration::from_secs(130));
        let mut saved = 0;
        while resends.take(1000) {
            saved += 1000;
        }
        assert!((115_000..=125_000).contains(&saved), "a quarter of a second: {saved}");
        assert!(!resends.take_spare(1000));
        resends.fill(media + 60_000_000, start + Duration::from_secs(130));
        let spare = (0..100).take_while(|_| resends.take_spare(1000)).count();
        assert!((57..=63).contains(&spare) && resends.take(1000), "a half is kept: {spare}");
    }

    #[test]
    fn what_is_left_of_the_path_may_be_used_to_send_again() {
        let mut resends = Resends::new(Instant::now());
        for (estimate, pct) in [
            (None, 25),
            (Some(0), 25),
            (Some(1000), 25),
            (Some(1300), 30),
            (Some(1500), 50),
            (Some(2000), 65),
            (Some(400_000), 65),
        ] {
            resends.limit(1000, estimate);
            assert_eq!(resends.share_pct, pct, "{estimate:?}");
        }
    }

    #[test]
    fn only_so_many_numbers_are_looked_at_in_a_packet_and_in_a_second() {
        let start = Instant::now();
        let mut resends = Resends::new(start);
        assert_eq!(resends.look(4760, start), HISTORY_PACKETS);
        assert_eq!(resends.look(1, start), 0);
        let looked: usize =
            (1..=1000).map(|ms| resends.look(4760, start + Duration::from_millis(ms))).sum();
        assert!(looked.abs_diff(RESEND_LOOKUPS_PER_S as usize) <= 3, "{looked}");
        assert_eq!(resends.look(4760, start + Duration::from_secs(100)), HISTORY_PACKETS);
    }

    #[test]
    fn a_number_is_sent_again_once_a_round_trip_however_many_others_are() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut again = SentAgain::default();
        assert!(!again.is_too_soon(0, at(0)));
        for sequence in 65_400..=65_535_u16 {
            again.note(sequence, at(0), Duration::from_millis(50));
        }
        for sequence in 0..300_u16 {
            again.note(sequence, at(1), Duration::from_millis(50));
        }
        assert!((65_400..=65_535).all(|sequence| again.is_too_soon(sequence, at(49))));
        assert!((65_400..=65_535).all(|sequence| !again.is_too_soon(sequence, at(50))));
        assert!((0..300).all(|sequence| again.is_too_soon(sequence, at(50))));
        assert!(!again.is_too_soon(300, at(2)));
    }

    #[test]
    fn the_round_trip_has_a_default_and_bounds() {
        let ms = Duration::from_millis;
        for (rtt, wait) in [
            (None, ms(100)),
            (Some(0.1), ms(20)),
            (Some(340.0), ms(340)),
            (Some(30_000.0), ms(1000)),
            (Some(f64::NAN), ms(100)),
        ] {
            assert_eq!(round_trip(rtt), wait);
        }
    }
}
