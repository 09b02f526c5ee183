//! Packets of 20 ms that leave as one longer packet, for listeners who are not heard themselves: fewer packets, later.

use super::message::{MAX_PACKET_TICKS, MAX_PAYLOAD, Payload};
use super::stream::Encoded;
use audio::level::SILENCE_DBOV;
use audio::opus::{OpusError, Repacketizer};
use std::time::Instant;

/// Bytes that joining adds at most: a count, and the length of each frame but the last (RFC 6716, section 3.2.5).
const JOINING: usize = 2 * MAX_PACKET_TICKS;
/// The bits of an Opus packet's first byte that tell its configuration (RFC 6716, section 3.1).
const CONFIGURATION: u8 = 0xFC;

/// Ticks of a stream that wait to leave together.
#[derive(Debug)]
pub(crate) struct Gather {
    from_tick: u64,
    waiting: Vec<Payload>,
    level_dbov: u8,
    since: Option<Instant>,
    repacketizer: Option<Repacketizer>,
}

/// A packet of one or more ticks.
pub(crate) struct Longer {
    pub(crate) from_tick: u64,
    pub(crate) ticks: u8,
    pub(crate) level_dbov: u8,
    pub(crate) since: Option<Instant>,
    pub(crate) payload: Payload,
}

impl Gather {
    pub(crate) fn new() -> Self {
        let waiting = Vec::with_capacity(MAX_PACKET_TICKS);
        Self { from_tick: 0, waiting, level_dbov: SILENCE_DBOV, since: None, repacketizer: None }
    }

    /// How many ticks wait.
    pub(crate) fn ticks(&self) -> usize {
        self.waiting.len()
    }

    /// Whether the packet of a tick can leave with those that wait.
    pub(crate) fn fits(&self, tick: u64, encoded: &Encoded) -> bool {
        let Some(first) = self.waiting.first() else { return true };
        let configuration =
            |payload: &Payload| payload.bytes().first().map(|toc| toc & CONFIGURATION);
        let bytes: usize = self.waiting.iter().map(|payload| payload.bytes().len()).sum();
        self.waiting.len() < MAX_PACKET_TICKS
            && tick == self.from_tick + self.waiting.len() as u64
            && configuration(first) == configuration(&encoded.payload)
            && bytes + encoded.payload.bytes().len() + JOINING <= MAX_PAYLOAD
    }

    /// The packet of a tick waits; it must fit. What is in it had been here `since` then.
    pub(crate) fn add(&mut self, tick: u64, encoded: &Encoded, since: Option<Instant>) {
        if self.waiting.is_empty() {
            (self.from_tick, self.level_dbov, self.since) = (tick, SILENCE_DBOV, None);
        }
        self.since = self.since.or(since);
        self.level_dbov = self.level_dbov.min(encoded.level_dbov);
        self.waiting.push(encoded.payload);
    }

    /// Nobody is left who would get what waits.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// What waits, as one packet. None if nothing does.
    pub(crate) fn take(&mut self) -> Option<Result<Longer, OpusError>> {
        let ticks = self.waiting.len() as u8;
        let payload = match self.waiting.as_slice() {
            [] => return None,
            [one] => Ok(*one),
            several => join(&mut self.repacketizer, several),
        };
        self.waiting.clear();
        let Self { from_tick, level_dbov, since, .. } = *self;
        Some(payload.map(|payload| Longer { from_tick, ticks, level_dbov, since, payload }))
    }
}

fn join(kept: &mut Option<Repacketizer>, payloads: &[Payload]) -> Result<Payload, OpusError> {
    let repacketizer = match kept {
        Some(known) => known,
        None => kept.insert(Repacketizer::new()?),
    };
    let mut packets = [&[][..]; MAX_PACKET_TICKS];
    let given =
        packets.iter_mut().zip(payloads).map(|(place, payload)| *place = payload.bytes()).count();
    let mut bytes = [0; MAX_PAYLOAD];
    let len = repacketizer.join(&packets[..given], &mut bytes)?;
    Payload::new(&bytes[..len]).ok_or(OpusError::BufferTooSmall)
}

#[cfg(test)]
mod tests {
    use super::super::message::TICK_SAMPLES;
    use super::super::stream::Stream;
    use super::*;
    use std::time::Duration;

    /// The packets of a voice of this peak.
    fn encoded(stream: &mut Stream, peak: f32) -> Encoded {
        let mut pcm = [0.0; TICK_SAMPLES];
        pcm.iter_mut().enumerate().for_each(|(at, x)| *x = peak * (at as f32 * 0.05).sin());
        stream.next(&mut pcm).unwrap()
    }

    #[test]
    fn ticks_in_a_row_leave_as_one_packet_and_others_do_not() {
        let (mut gather, mut stream) = (Gather::new(), Stream::new().unwrap());
        let mut packets: Vec<_> = (0..14).map(|_| encoded(&mut stream, 0.1)).collect();
        // An encoder settles.
        packets.drain(..10);
        assert!(gather.take().is_none());
        for (tick, packet) in (7..).zip(&packets[..3]) {
            assert!(gather.fits(tick, packet) && !(tick > 7 && gather.fits(tick + 1, packet)));
            gather.add(tick, packet, None);
        }
        assert!(!gather.fits(10, &packets[3]), "60 ms is the most");
        let Longer { from_tick, ticks, level_dbov, payload, .. } = gather.take().unwrap().unwrap();
        assert_eq!((from_tick, ticks), (7, 3));
        assert!((20..30).contains(&level_dbov), "{level_dbov}");
        let lasts = audio::opus::packet_duration(payload.bytes());
        assert_eq!(lasts, Some(Duration::from_millis(60)));
        // Another configuration does not join.
        let mut other = encoded(&mut stream, 0.1);
        let mut bytes = other.payload.bytes().to_vec();
        bytes[0] ^= 0x08;
        other.payload = Payload::new(&bytes).unwrap();
        gather.add(20, &packets[0], None);
        assert!(!gather.fits(21, &other) && gather.fits(21, &packets[1]));
        // Nor what would become too long.
        let mut long = encoded(&mut stream, 0.1);
        let mut bytes = long.payload.bytes().to_vec();
        bytes.resize(MAX_PAYLOAD - packets[0].payload.bytes().len(), 0);
        long.payload = Payload::new(&bytes).unwrap();
        assert!(!gather.fits(21, &long));
    }
}
