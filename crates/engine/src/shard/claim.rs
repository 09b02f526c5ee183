//! Compares claimed levels with measured ones if nothing is mixed: some packets of each voice that speaks are decoded now
//! and then. A participant may write any level into their packets, and would otherwise keep the slots that follow
//! speakers.

use super::speaker::Voice;
use crate::command::StreamKey;
use crate::limits::{CLAIM_DOUBTED, CLAIM_TOLERANCE_DB};
use audio::opus::{Decoder, MAX_PACKET_SAMPLES};
use audio::{Channels, level_dbov};
use std::time::{Duration, Instant};

/// Packets of a sample. The first ones of a decoder that was reset come out too quiet.
const PACKETS: u32 = 10;
/// A sample that is not whole after this time is given up: the track fell silent.
const LONGEST: Duration = Duration::from_secs(1);
/// Time between two samples of one voice.
const INTERVAL: Duration = Duration::from_secs(2);

/// Measures one voice after the other. All its memory is allocated at the start.
pub(crate) struct Sampler {
    /// None if libopus had no memory for one: then all claims are believed.
    decoder: Option<Decoder>,
    pcm: Box<[f32]>,
    sample: Option<Sample>,
}

/// A sample under way.
struct Sample {
    track: StreamKey,
    began: Instant,
    packets: u32,
    /// The loudest claim, in −dBov.
    claimed: u8,
    /// The loudest packet as it was measured, in −dBov.
    measured: u8,
}

impl Default for Sampler {
    fn default() -> Self {
        let pcm = vec![0.0; MAX_PACKET_SAMPLES].into_boxed_slice();
        Self { decoder: Decoder::new(Channels::Mono).ok(), pcm, sample: None }
    }
}

impl Sampler {
    /// An Opus packet of a voice came, with this level.
    pub(crate) fn hear(
        &mut self,
        at: Instant,
        track: StreamKey,
        voice: &mut Voice,
        claimed: u8,
        opus: &[u8],
    ) {
        let Some(decoder) = &mut self.decoder else { return };
        if self.sample.as_ref().is_some_and(|sample| at > sample.began + LONGEST) {
            self.sample = None;
        }
        if self.sample.is_none() {
            if !voice.begin_sample(at, INTERVAL) {
                return;
            }
            decoder.reset();
            let (claimed, measured) = (u8::MAX, u8::MAX);
            self.sample = Some(Sample { track, began: at, packets: 0, claimed, measured });
        }
        let Some(sample) = self.sample.as_mut().filter(|sample| sample.track == track) else {
            return;
        };
        // A packet that cannot be decoded counts as silent: nobody hears it.
        let samples = decoder.decode(Some(opus), &mut self.pcm).unwrap_or(0);
        sample.measured = sample.measured.min(level_dbov(&self.pcm[..samples]));
        sample.claimed = sample.claimed.min(claimed);
        sample.packets += 1;
        if sample.packets == PACKETS {
            let excess = sample.measured.saturating_sub(sample.claimed);
            self.sample = None;
            if excess > CLAIM_TOLERANCE_DB {
                voice.doubt(excess, at + CLAIM_DOUBTED);
            }
        }
    }
}
