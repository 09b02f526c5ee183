//! Compares claimed levels with measured ones: some packets of each voice are decoded now and then.
//!
//! A participant may write any level into their packets. One who claims to be loud would keep the slots that follow speakers.
//! One whose client always claims silence would never be heard where slots are short or sound is mixed. Once that is
//! found, they are measured instead ([`super::meter`]), until they claim to be loud.

use super::meter::Meters;
use super::speaker::{Doubt, Voice};
use crate::command::StreamKey;
use crate::limits::{CLAIM_DOUBTED, CLAIM_TOLERANCE_DB};
use audio::opus::{Decoder, MAX_PACKET_SAMPLES, packet_duration};
use audio::{Channels, SAMPLE_RATE, level_dbov};
use std::time::{Duration, Instant};

/// How much sound a sample has. The first packets of a decoder that was reset come out too quiet, or noise too loud.
const SAMPLE_LASTS: usize = SAMPLE_RATE as usize / 5;
/// A sample that is not whole after this time is given up: the track fell silent.
const LONGEST: Duration = Duration::from_secs(1);
/// Sound of fewer bits a second is no speech: whether it is silent is not asked.
const SPEECH_BPS: f64 = 10_000.0;

/// Measures one voice after the other, of those who claim to be loud and of those who claim to be silent.
#[derive(Default)]
pub(crate) struct Sampler {
    loud: Place,
    silent: Place,
    /// Measures those who tell nothing.
    pub(super) meters: Meters,
}

/// Where one sample after the other is taken. All its memory is allocated at the start.
struct Place {
    /// None if libopus had no memory for one: then all claims are believed.
    decoder: Option<Decoder>,
    pcm: Box<[f32]>,
    sample: Option<Sample>,
}

/// A sample under way.
struct Sample {
    track: StreamKey,
    began: Instant,
    /// Decoded so far.
    samples: usize,
    /// The loudest claim, in −dBov.
    claimed: u8,
    /// The loudest packet as it was measured, in −dBov, of all and of the second half.
    measured: u8,
    measured_later: u8,
}

impl Default for Place {
    fn default() -> Self {
        let pcm = vec![0.0; MAX_PACKET_SAMPLES].into_boxed_slice();
        Self { decoder: Decoder::new(Channels::Mono).ok(), pcm, sample: None }
    }
}

impl Sampler {
    /// An Opus packet of a voice came, with this level. `short`: few of many are heard, so that silence is to be true.
    pub(crate) fn hear(
        &mut self,
        at: Instant,
        track: StreamKey,
        (voice, short): (&mut Voice, bool),
        (claimed, opus): (u8, &[u8]),
    ) {
        if let Some(Sample { claimed, measured, .. }) =
            self.loud.hear(at, track, (claimed, opus), || voice.begin_sample(at, Doubt::Loud))
        {
            let excess = measured.saturating_sub(claimed);
            if excess > CLAIM_TOLERANCE_DB {
                voice.doubt(excess, at + CLAIM_DOUBTED);
            }
        }
        let begins = || short && may_be_speech(opus) && voice.begin_sample(at, Doubt::Silent);
        if let Some(Sample { claimed, measured_later, .. }) =
            self.silent.hear(at, track, (claimed, opus), begins)
            && claimed.saturating_sub(measured_later) > CLAIM_TOLERANCE_DB
        {
            voice.deny(measured_later);
        }
    }

    /// Whether a sample of a voice that claims to be silent is under way.
    pub(super) fn doubts_silence(&self, track: StreamKey) -> bool {
        self.silent.sample.as_ref().is_some_and(|sample| sample.track == track)
    }
}

impl Place {
    /// A packet of a voice came; gives the sample that is whole with it.
    fn hear(
        &mut self,
        at: Instant,
        track: StreamKey,
        (claimed, opus): (u8, &[u8]),
        begins: impl FnOnce() -> bool,
    ) -> Option<Sample> {
        let Self { decoder, pcm, sample: place } = self;
        let decoder = decoder.as_mut()?;
        place.take_if(|sample| at > sample.began + LONGEST);
        if place.is_none() {
            if !begins() {
                return None;
            }
            decoder.reset();
            let (claimed, measured, measured_later) = (u8::MAX, u8::MAX, u8::MAX);
            let began = at;
            *place = Some(Sample { track, began, samples: 0, claimed, measured, measured_later });
        }
        let sample = place.as_mut().filter(|sample| sample.track == track)?;
        // A packet that cannot be decoded counts as silent: nobody hears it.
        let samples = decoder.decode(Some(opus), pcm).unwrap_or(0);
        let measured = level_dbov(&pcm[..samples]);
        if 2 * sample.samples >= SAMPLE_LASTS {
            sample.measured_later = sample.measured_later.min(measured);
        }
        sample.measured = sample.measured.min(measured);
        sample.claimed = sample.claimed.min(claimed);
        sample.samples += samples.max(SAMPLE_LASTS / 100);
        place.take_if(|sample| sample.samples >= SAMPLE_LASTS)
    }
}

/// Whether a packet has as many bits as speech has at least.
fn may_be_speech(opus: &[u8]) -> bool {
    let lasts = packet_duration(opus).unwrap_or(Duration::MAX);
    8.0 * opus.len() as f64 >= SPEECH_BPS * lasts.as_secs_f64()
}
