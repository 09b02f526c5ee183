//! Measures how loud voices are that do not tell it: their packets are decoded. Who speaks is known of them, too, and they are
//! heard where slots are short or sound is mixed.
//!
//! The work is bounded for all voices of a shard together ([`MEASURED_SOUND`]). If they send more, they take turns of
//! 200 ms each, and count as they were measured last meanwhile.

use crate::command::TrackKey;
use crate::limits::MEASURED_SOUND;
use audio::level::SILENCE_DBOV;
use audio::opus::{Decoder, MAX_PACKET_SAMPLES, packet_duration};
use audio::{Channels, level_dbov};
use std::time::{Duration, Instant};

/// How long a turn lasts.
const TURN: Duration = Duration::from_millis(200);

/// One voice.
#[derive(Debug)]
pub(crate) struct Meter {
    /// None if libopus had no memory for one: then the voice counts as silent.
    decoder: Option<Decoder>,
    /// As it was measured last, in −dBov.
    level_dbov: u8,
}

impl Meter {
    fn new() -> Box<Self> {
        Box::new(Self { decoder: Decoder::new(Channels::Mono).ok(), level_dbov: SILENCE_DBOV })
    }
}

/// What all voices of a shard share.
pub(crate) struct Meters {
    pcm: Box<[f32]>,
    began: Option<Instant>,
    /// Turns so far, and how many voices share one place.
    turn: u64,
    sharing: u64,
    /// How much sound came in the present turn, and how much of it was measured.
    came: Duration,
    measured: Duration,
}

impl Default for Meters {
    fn default() -> Self {
        let pcm = vec![0.0; MAX_PACKET_SAMPLES].into_boxed_slice();
        let (came, measured) = (Duration::ZERO, Duration::ZERO);
        Self { pcm, began: None, turn: 0, sharing: 1, came, measured }
    }
}

impl Meters {
    /// How loud an Opus packet of a voice is, in −dBov. What cannot be decoded is silent: nobody hears it.
    pub(crate) fn measure(
        &mut self,
        at: Instant,
        track: TrackKey,
        meter: &mut Option<Box<Meter>>,
        opus: &[u8],
    ) -> u8 {
        let meter = meter.get_or_insert_with(Meter::new);
        let Some(lasts) = packet_duration(opus) else { return SILENCE_DBOV };
        if self.is_turn(at, track, lasts)
            && let Some(decoder) = &mut meter.decoder
        {
            let samples = decoder.decode(Some(opus), &mut self.pcm).unwrap_or(0);
            meter.level_dbov = level_dbov(&self.pcm[..samples]);
        }
        meter.level_dbov
    }

    /// Whether so much sound of a track is measured now.
    fn is_turn(&mut self, at: Instant, track: TrackKey, lasts: Duration) -> bool {
        let most = MEASURED_SOUND * TURN.as_millis() as u32 / 1000;
        if self.began.is_none_or(|began| at.saturating_duration_since(began) >= TURN) {
            self.sharing = self.came.as_micros().div_ceil(most.as_micros()).max(1) as u64;
            self.turn += 1;
            (self.began, self.came, self.measured) = (Some(at), Duration::ZERO, Duration::ZERO);
        }
        self.came += lasts;
        let is_turn = track.0.wrapping_add(self.turn).is_multiple_of(self.sharing)
            && self.measured + lasts <= 2 * most;
        if is_turn {
            self.measured += lasts;
        }
        is_turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of so many voices, how often each was measured in a time, and how much of all of them in a second at most.
    fn run(voices: u64, seconds: u32) -> (Vec<u32>, Duration) {
        let (mut meters, began, packet) =
            (Meters::default(), Instant::now(), Duration::from_millis(20));
        let mut times = vec![0; voices as usize];
        let (mut most, mut second) = (Duration::ZERO, Duration::ZERO);
        for nth in 0..seconds * 50 {
            if nth % 50 == 0 {
                most = most.max(std::mem::take(&mut second));
            }
            for voice in 0..voices {
                if meters.is_turn(began + packet * nth, TrackKey(voice), packet) {
                    times[voice as usize] += 1;
                    second += packet;
                }
            }
        }
        (times, most)
    }

    #[test]
    fn all_are_measured_if_they_are_few_and_take_turns_if_they_are_many() {
        let few = u64::from(MEASURED_SOUND.as_secs() as u32);
        assert_eq!(run(few, 2).0, vec![100; few as usize]);
        for voices in [few + 1, 10 * few, 10 * few + 3] {
            let (times, most) = run(voices, 60);
            let (least, often) = (times.iter().min().unwrap(), times.iter().max().unwrap());
            assert!(*least > 0 && often <= &(2 * least + 20), "{voices}: {least} to {often}");
            // The first turn is taken by who comes first.
            assert!(most <= MEASURED_SOUND * 6 / 5 + MEASURED_SOUND / 5, "{voices}: {most:?}");
        }
    }
}
