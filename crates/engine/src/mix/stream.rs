//! The sound that a listener gets: limited, encoded, and repeated while it is silent.
//!
//! No comfort noise is added in silence: whoever was heard has fallen under −60 dBov by then and fades
//! over a tick, and noise of −65 dBov takes 62 bytes for each listener and tick in place of 21.

use super::message::{MAX_PAYLOAD, Payload, TICK_SAMPLES};
use audio::level::SILENCE_DBOV;
use audio::opus::{Application, Encoder, EncoderOptions, OpusError};
use audio::{Channels, Limiter, level_dbov};

/// Peak under which nothing can be heard: -90 dB, half a step of 16 bits.
const INAUDIBLE: f32 = 3e-5;
/// Silent ticks that are encoded before the last one's packet is repeated.
const RUN_OUT: u32 = 5;

/// The mix that is sent: FEC at 8 % keeps the speech layer under the losses people meet.
const OPTIONS: EncoderOptions = EncoderOptions {
    channels: Channels::Mono,
    application: Application::Voip,
    bitrate_bps: 32_000,
    complexity: 5,
    fec: true,
    expected_loss_percent: 8,
    dtx: false,
};

/// One packet of a stream.
pub(crate) struct Encoded {
    pub(crate) payload: Payload,
    pub(crate) level_dbov: u8,
    /// Not for nothing: the encoder ran.
    pub(crate) fresh: bool,
}

/// An encoder with its limiter.
#[derive(Debug)]
pub(crate) struct Stream {
    encoder: Encoder,
    limiter: Limiter,
    silent_ticks: u32,
    last: Option<Payload>,
}

impl Stream {
    pub(crate) fn new() -> Result<Self, OpusError> {
        let encoder = Encoder::new(OPTIONS)?;
        Ok(Self { encoder, limiter: Limiter::new(), silent_ticks: 0, last: None })
    }

    /// Goes on as `other` would.
    pub(crate) fn continue_from(&mut self, other: &Self) -> Result<(), OpusError> {
        self.encoder.copy_state_from(&other.encoder)?;
        self.limiter = other.limiter.clone();
        (self.silent_ticks, self.last) = (other.silent_ticks, other.last);
        Ok(())
    }

    /// The packet of one tick; `pcm` is limited in place.
    pub(crate) fn next(&mut self, pcm: &mut [f32; TICK_SAMPLES]) -> Result<Encoded, OpusError> {
        let silent = pcm.iter().all(|x| x.abs() < INAUDIBLE);
        self.silent_ticks = if silent { self.silent_ticks + 1 } else { 0 };
        if let (true, Some(payload)) = (self.silent_ticks > RUN_OUT, self.last) {
            // Not a count that overflows after two years.
            self.silent_ticks = RUN_OUT + 1;
            return Ok(Encoded { payload, level_dbov: SILENCE_DBOV, fresh: false });
        }
        if silent {
            pcm.fill(0.0);
        }
        self.limiter.run(pcm);
        let mut bytes = [0; MAX_PAYLOAD];
        let len = self.encoder.encode(pcm, &mut bytes)?;
        let payload = Payload::new(&bytes[..len]).ok_or(OpusError::BufferTooSmall)?;
        self.last = Some(payload);
        Ok(Encoded { payload, level_dbov: level_dbov(pcm), fresh: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_encoded_five_times_and_then_repeated() {
        let mut stream = Stream::new().unwrap();
        let mut pcm = [0.5; TICK_SAMPLES];
        assert!(stream.next(&mut pcm).unwrap().fresh);
        let silence = |stream: &mut Stream| stream.next(&mut [1e-6; TICK_SAMPLES]).unwrap();
        let fresh: Vec<bool> = (0..8).map(|_| silence(&mut stream).fresh).collect();
        assert_eq!(fresh, [true, true, true, true, true, false, false, false]);
        let (one, other) = (silence(&mut stream), silence(&mut stream));
        assert_eq!(one.payload.bytes(), other.payload.bytes());
        assert_eq!(one.level_dbov, SILENCE_DBOV);
        let mut copy = Stream::new().unwrap();
        copy.continue_from(&stream).unwrap();
        assert_eq!(silence(&mut copy).payload.bytes(), one.payload.bytes());
        assert!(copy.next(&mut [0.1; TICK_SAMPLES]).unwrap().fresh);
    }
}
