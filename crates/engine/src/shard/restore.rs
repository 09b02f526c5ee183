//! Sound that did not come is taken from its copy in a packet after it (RED, RFC 2198), and goes on before that packet.

use super::claim::Sampler;
use super::encoding::{Arrival, Arrived};
use super::forward::flush;
use super::index::TrackIndex;
use super::model::Model;
use super::packet::Passed;
use super::relay::pass_on;
use super::track::Track;
use super::turn::Turn;
use crate::limits::MAX_PACKET;
use crate::sink::Sink;
use rtp::RtpHeader;
use rtp::header::HeaderWriter;
use rtp::negotiated::Line;
use rtp::red::{Block, MOST_BYTES};
use std::ops::Range;
use std::time::Instant;

/// A packet of RED that came: a copy of it, while what it repeats takes its place.
pub(super) struct Carrier {
    number: u64,
    header: RtpHeader,
    passed: Passed,
    at: Instant,
    payload: Range<usize>,
    packet: [u8; MAX_PACKET],
}

/// The number of the packet that a block of packet `number` repeats, if that did not come. A packet that stayed closed came.
fn repeats_missing(number: u64, block: &Block, track: &Track) -> Option<u64> {
    let reception = track.encoding.reception.as_ref()?;
    let fits = (1..=MOST_BYTES).contains(&block.bytes.len()) && block.offset > 0;
    let repeated = number.checked_sub(block.packets_back).filter(|_| fits)?;
    (reception.lacks(repeated) && !track.glances.noted(repeated)).then_some(repeated)
}

/// Restores the packets that a packet of RED repeats, as far as they are missing.
pub(super) fn restore<S: Sink>(
    model: &mut Model,
    turn: &mut Turn<'_, S>,
    (index, carrier): (TrackIndex, &Carrier),
    sampler: &mut Sampler,
) {
    let payload = &carrier.packet[carrier.payload.clone()];
    for block in rtp::red::redundant(payload) {
        let track = model.tracks[index].as_ref();
        let Some(number) = track.and_then(|it| repeats_missing(carrier.number, &block, it)) else {
            continue;
        };
        if model.queue.is_full() {
            flush(model, turn);
        }
        let Model { tracks, queue, .. } = &mut *model;
        let (Some(track), Some(place)) = (tracks[index].as_mut(), queue.lend()) else { return };
        let Some((header, len)) = carrier.write(&block, &track.encoding.line, payload, place)
        else {
            continue;
        };
        let plain = &place[..len];
        let restored = Arrival {
            number,
            header,
            payload: header.header_len..len,
            passed: Passed::of(&track.encoding.line.extensions, plain, &header),
            repaired: true,
            at: carrier.at,
        };
        let arrived = track.encoding.arrive(restored, plain, track.fate(), turn.now, sampler);
        let Ok(Arrived::Media(opened, _)) = arrived else { continue };
        turn.stats.restored += 1;
        if pass_on(track, turn, &opened, plain, carrier.at).is_ok() && !track.mixed {
            queue.push(index, opened);
        }
    }
}

impl Carrier {
    /// A packet that arrives, if it is RED and repeats one that did not come.
    pub(super) fn of(track: &Track, arrival: &Arrival, plain: &[u8]) -> Option<Self> {
        let Arrival { number, header, passed, at, .. } = *arrival;
        let encoding = &track.encoding;
        // Nobody would hear what a quiet packet of a mixed room repeats.
        let unheard = track.mixed && !track.glances.is_open(at);
        if unheard || encoding.opaque || Some(header.payload_type) != encoding.line.red_payload_type
        {
            return None;
        }
        let payload = arrival.payload.clone();
        let mut blocks = rtp::red::redundant(plain.get(payload.clone())?);
        if !blocks.any(|block| repeats_missing(number, &block, track).is_some()) {
            return None;
        }
        let mut packet = [0; MAX_PACKET];
        packet[..payload.end].copy_from_slice(plain.get(..payload.end)?);
        Some(Self { number, header, passed, at, payload, packet })
    }

    /// The packet itself is next.
    pub(super) fn put_back(&self, place: &mut [u8]) {
        place[..self.payload.end].copy_from_slice(&self.packet[..self.payload.end]);
    }

    /// Writes the packet that a block is a copy of; returns its header and its length.
    fn write(
        &self,
        block: &Block,
        line: &Line,
        payload: &[u8],
        place: &mut [u8],
    ) -> Option<(RtpHeader, usize)> {
        let passed = self.passed.earlier(block.offset, line.codec.clock_rate());
        let mut extensions: [(u8, &[u8]); 4] = [(0, &[]); 4];
        let count = passed.write(&line.extensions, &mut extensions);
        let writer = HeaderWriter {
            marker: false,
            payload_type: line.payload_type,
            sequence: self.header.sequence.wrapping_sub(block.packets_back as u16),
            timestamp: self.header.timestamp.wrapping_sub(block.offset),
            ssrc: self.header.ssrc,
            extensions: &extensions[..count],
        };
        let header_len = writer.write(place).ok()?;
        let len = header_len + block.bytes.len();
        place.get_mut(header_len..len)?.copy_from_slice(&payload[block.bytes.clone()]);
        Some((RtpHeader::parse(&place[..len]).ok()?, len))
    }
}
