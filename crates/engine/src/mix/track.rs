//! One track that may be heard: its packets, its level, and its frame of each tick.

use super::claim::Claim;
use super::message::{MixFrame, TICK_SAMPLES};
use super::rank::{self, Level};
use super::stats::MixStats;
use crate::command::PersonKey;
use audio::opus::Decoder;
use audio::{Channels, Gain, JitterBuffer, Taken, level_dbov};
use std::time::{Duration, Instant};

/// Samples over which a track that becomes heard rises: 5 ms.
const FADE_IN: usize = 240;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Not heard.
    None,
    /// Heard.
    Heard,
    /// Heard until now: one more tick, falling to silence.
    Leaving,
}

/// What only those need who were heard once.
#[derive(Debug)]
struct Sound {
    decoder: Decoder,
    gain: Gain,
    pcm: [f32; TICK_SAMPLES],
}

/// A track of this shard.
#[derive(Debug)]
pub(crate) struct Track {
    /// Whose.
    pub(crate) person: PersonKey,
    /// How loud it is, by what its sender claims or the shard measured.
    level: Level,
    /// Whether that can be believed.
    claim: Claim,
    buffer: JitterBuffer,
    sound: Option<Box<Sound>>,
    part: Part,
    /// It rises with its next sound.
    fade_in: bool,
    silenced: bool,
    /// Its level stays as it is.
    music: bool,
}

impl Track {
    /// A track of `person`, silent so far. If it is `music`, its level stays as it is.
    pub(crate) fn new(person: PersonKey, music: bool) -> Self {
        Self {
            person,
            level: Level::default(),
            claim: Claim::default(),
            buffer: JitterBuffer::new(),
            sound: None,
            part: Part::None,
            fade_in: false,
            silenced: false,
            music,
        }
    }

    /// A frame came.
    pub(crate) fn put(&mut self, frame: &MixFrame, stats: &mut MixStats) {
        if self.silenced {
            stats.silenced += 1;
            return;
        }
        let (index, timestamp, payload) = (frame.index, frame.timestamp, frame.payload.bytes());
        // What is refused is counted by the buffer, and tells no level.
        if self.buffer.put(index, timestamp, frame.arrival, payload, &mut stats.jitter).is_err() {
            return;
        }
        if self.level.rises_with(frame.level_dbov) {
            self.buffer.onset(timestamp);
        }
        self.level.frame(frame.level_dbov);
    }

    /// All frames before `tick` have come.
    pub(crate) fn tick(&mut self, tick: u64) {
        self.level.tick(tick);
        let decoded = self.part == Part::Heard && self.buffer.is_playing();
        self.claim.tick(tick, decoded, self.level.dbov());
    }

    /// The level in −dBov by which it is ranked, where it is loud enough to be heard.
    pub(crate) fn audible(&self) -> Option<u8> {
        rank::audible(self.claim.believed(self.level.dbov()))
    }

    /// Whether it may be heard at all changed.
    pub(crate) fn set_silenced(&mut self, on: bool, stats: &mut MixStats) {
        self.silenced = on;
        if on {
            self.end(stats);
            self.level.silence();
        }
    }

    /// It is silent from now on, and forgets what it holds.
    pub(crate) fn end(&mut self, stats: &mut MixStats) {
        self.part = Part::None;
        self.buffer.stop();
        self.buffer.clear(&mut stats.jitter);
    }

    /// The rank of this tick has it or not; one that leaves may fade out where `fade` says so.
    pub(crate) fn rank(&mut self, heard: bool, fade: bool) {
        let part = match (self.part, heard && !self.silenced) {
            (_, true) => Part::Heard,
            (Part::Heard, false) if fade => Part::Leaving,
            (_, false) => Part::None,
        };
        if part == Part::Heard && self.part == Part::None {
            self.fade_in = true;
        }
        self.part = part;
        self.play_or_not();
    }

    /// Starts or stops the buffer as somebody hears it.
    fn play_or_not(&mut self) {
        let play = self.part != Part::None;
        if play && !self.buffer.is_playing() {
            self.buffer.start();
            if let Some(sound) = &mut self.sound {
                sound.decoder.reset();
            }
        } else if !play && self.buffer.is_playing() {
            self.buffer.stop();
        }
    }

    /// The frame of the tick at `now`, where the track is heard.
    pub(crate) fn play(
        &mut self,
        now: Instant,
        stats: &mut MixStats,
    ) -> Option<&[f32; TICK_SAMPLES]> {
        if self.part == Part::None {
            return None;
        }
        if self.sound.is_none() {
            match Decoder::new(Channels::Mono) {
                Ok(decoder) => {
                    let (gain, pcm) = (Gain::new(), [0.0; TICK_SAMPLES]);
                    self.sound = Some(Box::new(Sound { decoder, gain, pcm }));
                }
                Err(_) => stats.codec_failed += 1,
            }
        }
        let Sound { decoder, gain, pcm } = &mut **self.sound.as_mut()?;
        let taken = self.buffer.take(now, decoder, pcm, &mut stats.jitter);
        if taken != Taken::Silence {
            stats.delays.add(self.buffer.delay_ms(), 1);
        }
        if taken != Taken::Silence {
            self.claim.decoded(level_dbov(pcm));
        }
        if !self.music {
            match taken {
                Taken::Sound | Taken::Recovered => gain.run(pcm),
                // What is made up tells nothing of the voice.
                Taken::Concealed | Taken::Silence => gain.hold(pcm),
            }
        }
        if self.fade_in && taken != Taken::Silence {
            self.fade_in = false;
            let rising = pcm[..FADE_IN].iter_mut().enumerate();
            rising.for_each(|(at, sample)| *sample *= at as f32 / FADE_IN as f32);
        }
        if self.part == Part::Leaving {
            let falling = pcm.iter_mut().rev().enumerate();
            falling.for_each(|(left, sample)| *sample *= left as f32 / TICK_SAMPLES as f32);
            self.part = Part::None;
            self.play_or_not();
        }
        self.sound.as_ref().map(|sound| &sound.pcm)
    }

    /// How long what it last gave had been here, at most.
    pub(crate) fn delay(&self) -> Duration {
        Duration::from_millis(self.buffer.delay_ms().into())
    }

    /// The frame that [`play`](Self::play) last gave.
    pub(crate) fn pcm(&self) -> Option<&[f32; TICK_SAMPLES]> {
        self.sound.as_ref().map(|sound| &sound.pcm)
    }
}
