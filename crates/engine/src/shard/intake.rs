//! How much a participant may send. What is beyond that is dropped before it is opened, by what its header says in the clear.

use crate::limits::{
    CONTROL_A_SECOND, INTAKE_AT_ONCE, PICTURE_BYTES_A_SECOND, PICTURES_A_SECOND, SOUND_A_SECOND,
    SOUND_BYTES_A_SECOND, SOUND_IN_ALL, UNKNOWN_A_SECOND,
};
use std::time::{Duration, Instant};

/// So much a second in the long run, and what that is in [`INTAKE_AT_ONCE`] at once. It knows until when what came is earned.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    earned: Option<Instant>,
    /// What one of its units takes.
    each: Duration,
}

impl Allowance {
    fn new(a_second: u32) -> Self {
        Self { earned: None, each: Duration::from_secs(1) / a_second }
    }

    /// Whether so many may come. If not, they cost nothing.
    #[inline]
    fn take(&mut self, count: u32, now: Instant) -> bool {
        let from = self.earned.map_or(now, |earned| earned.max(now));
        let may = from.saturating_duration_since(now) <= INTAKE_AT_ONCE;
        if may {
            self.earned = Some(from + self.each * count);
        }
        may
    }
}

/// What one track of sound may bring, in packets and bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sound {
    packets: Allowance,
    bytes: Allowance,
}

impl Sound {
    pub(super) fn new() -> Self {
        Self {
            packets: Allowance::new(SOUND_A_SECOND),
            bytes: Allowance::new(SOUND_BYTES_A_SECOND),
        }
    }
}

/// What one participant may send.
#[derive(Debug, Clone, Copy)]
pub(super) struct Intake {
    /// Packets of all their tracks of sound.
    sound: Allowance,
    /// Packets and bytes of all their pictures, retransmissions too.
    pictures: Allowance,
    picture_bytes: Allowance,
    /// Packets of SSRCs that are not known.
    unknown: Allowance,
    /// Control packets.
    control: Allowance,
}

impl Intake {
    pub(super) fn new() -> Self {
        Self {
            sound: Allowance::new(SOUND_IN_ALL),
            pictures: Allowance::new(PICTURES_A_SECOND),
            picture_bytes: Allowance::new(PICTURE_BYTES_A_SECOND),
            unknown: Allowance::new(UNKNOWN_A_SECOND),
            control: Allowance::new(CONTROL_A_SECOND),
        }
    }

    /// Whether a packet of so many bytes may come of a track of sound.
    #[inline]
    pub(super) fn takes_sound(&mut self, track: &mut Sound, bytes: usize, now: Instant) -> bool {
        track.packets.take(1, now) && track.bytes.take(bytes as u32, now) && self.sound.take(1, now)
    }

    /// The same of a picture.
    #[inline]
    pub(super) fn takes_picture(&mut self, bytes: usize, now: Instant) -> bool {
        self.pictures.take(1, now) && self.picture_bytes.take(bytes as u32, now)
    }

    /// The same of an SSRC that is not known.
    pub(super) fn takes_unknown(&mut self, now: Instant) -> bool {
        self.unknown.take(1, now)
    }

    /// The same of a control packet.
    #[inline]
    pub(super) fn takes_control(&mut self, now: Instant) -> bool {
        self.control.take(1, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_much_comes_at_once_and_then_what_is_earned() {
        let start = Instant::now();
        let mut allowance = Allowance::new(100);
        let at_once = (0..1000).filter(|_| allowance.take(1, start)).count();
        assert_eq!(at_once, 1 + (100.0 * INTAKE_AT_ONCE.as_secs_f64()) as usize);
        let later = start + Duration::from_millis(500);
        let earned = (0..1000).filter(|_| allowance.take(1, later)).count();
        assert_eq!(earned, 50);
        let much_later = start + Duration::from_secs(60);
        assert!(allowance.take(150, much_later) && allowance.take(150, much_later));
        assert!(!allowance.take(1, much_later));
    }

    #[test]
    fn what_a_track_may_bring_is_more_than_any_client_sends() {
        let start = Instant::now();
        let (mut intake, mut sound) = (Intake::new(), Sound::new());
        // Opus in stereo with RED, in packets of 2.5 ms, and two pictures of 15 Mbit/s each.
        for nth in 0..60_000_u32 {
            let now = start + nth * Duration::from_micros(2500);
            assert!(intake.takes_sound(&mut sound, 400, now), "sound {nth}");
            for _ in 0..8 {
                assert!(intake.takes_picture(1170, now), "pictures {nth}");
            }
        }
    }
}
