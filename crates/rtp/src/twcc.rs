//! Transport-wide congestion control feedback
//! (draft-holmer-rmcat-transport-wide-cc-extensions-01 §3.1): built by the receiver, read by the
//! sender.

use crate::error::ParseError;
use crate::extended::SequenceUnwrapper;
use crate::rtcp::{packet, packet_type, put};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Microseconds of one tick of a receive delta.
const TICK_US: i64 = 250;
/// Ticks of one unit of the reference time, 64 ms.
const REFERENCE_TICKS: i32 = 64_000 / TICK_US as i32;
/// Most sequence numbers that are kept, reported or not.
const MAX_SPAN: usize = 8192;
/// Most numbers that may be missing in a row: after a longer gap, counting begins anew. Each missing one costs as much
/// memory and time as one that came.
const MAX_GAP: usize = 1024;
/// Sequence numbers kept after they were reported, so that a late packet can be told as well. With those that wait to be told they
/// are fewer than 512: the next power of two is twice the memory for each participant.
const HISTORY: u64 = 380;
/// A number that nobody authenticated counts if it is at most so far ahead of those that came.
const NEAR: i16 = 16;
/// In place of arrival ticks: nothing arrived.
const NOTHING: i32 = i32::MIN;
/// Most received packets in one feedback: with its worst chunks it stays below 1300 bytes.
const MAX_RECEIVED: usize = 200;
/// Most packets that one chunk of the run-length form counts.
const MAX_RUN: usize = 8191;

/// With so many packets to tell of, feedback goes out at the next occasion.
pub const FEEDBACK_PACKETS: u64 = 10;
/// Fewer wait so long: sound alone would else cost as many packets of feedback as of sound. (libwebrtc spends
/// 5 % of the rate and waits 50 to 250 ms.)
pub const FEEDBACK_LONGEST: Duration = Duration::from_millis(250);

const MISSING: u8 = 0;
const SMALL: u8 = 1;
const LARGE: u8 = 2;

/// Records arrivals and builds feedback: the receiver's side.
#[derive(Debug, Default)]
pub struct FeedbackBuilder {
    unwrapper: SequenceUnwrapper,
    origin: Option<Instant>,
    /// Arrival ticks from `front` on, or [`NOTHING`]. They wrap as what feedback tells does: a reference time of 24 bits, in
    /// units of 256 ticks.
    arrivals: VecDeque<i32>,
    front: u64,
    /// The first sequence number that the next feedback tells of.
    next: u64,
    feedback_count: u8,
}

impl FeedbackBuilder {
    /// A builder that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that a packet arrived. A late one is told together with all that came after it;
    /// one from before the kept span, and a copy, change nothing.
    pub fn record(&mut self, transport_sequence: u16, arrival: Instant) {
        let sequence = self.unwrapper.unwrap(transport_sequence);
        let origin = *self.origin.get_or_insert(arrival);
        let micros = match arrival.checked_duration_since(origin) {
            Some(after) => after.as_micros() as i64,
            None => -(origin.duration_since(arrival).as_micros() as i64),
        };
        let ticks = (micros.div_euclid(TICK_US) as i32).max(NOTHING + 1);
        if self.arrivals.is_empty() {
            (self.front, self.next) = (sequence, sequence);
        }
        let Some(at) = sequence.checked_sub(self.front).map(|at| at as usize) else { return };
        if at > self.arrivals.len() + MAX_GAP {
            // What was not reported is of no use any more.
            self.arrivals.clear();
            (self.front, self.next) = (sequence, sequence);
            self.arrivals.push_back(ticks);
            return;
        }
        if at >= self.arrivals.len() {
            self.arrivals.resize(at + 1, NOTHING);
        }
        if self.arrivals[at] != NOTHING {
            return;
        }
        self.arrivals[at] = ticks;
        self.next = self.next.min(sequence);
        let excess = self.arrivals.len().saturating_sub(MAX_SPAN);
        self.drop_front(excess);
    }

    /// Whether a number fits to those that came: not far ahead of them, nor far behind. Whoever cannot tell whether a number
    /// is true asks this before [`record`](Self::record).
    pub fn is_near(&self, transport_sequence: u16) -> bool {
        let newest = (self.end() as u16).wrapping_sub(1);
        let ahead = transport_sequence.wrapping_sub(newest) as i16;
        !self.arrivals.is_empty() && (-NEAR..=NEAR).contains(&ahead)
    }

    /// Reads what the next record will change: see [`Opener::warm`](crate::srtp::Opener::warm).
    #[inline]
    pub fn warm(&self) -> u64 {
        self.arrivals.back().map_or(0, |last| u64::from(*last != NOTHING))
    }

    /// Whether there is anything to tell.
    pub fn is_pending(&self) -> bool {
        self.pending() > 0
    }

    /// How many sequence numbers there are to tell of, missing ones included.
    pub fn pending(&self) -> u64 {
        self.end().saturating_sub(self.next)
    }

    /// Whether it is worth a packet, so long after the last one.
    pub fn is_due(&self, since_last: Duration) -> bool {
        self.pending() >= FEEDBACK_PACKETS || (self.is_pending() && since_last >= FEEDBACK_LONGEST)
    }

    /// Appends one feedback packet to `out`, and says whether there was anything to tell. Call it
    /// until it says no; each packet fits a datagram.
    pub fn build(&mut self, sender: u32, media: u32, out: &mut Vec<u8>) -> bool {
        let Some(statuses) = self.statuses() else { return false };
        let base = self.next;
        let Statuses { symbols, deltas, reference } = statuses;
        packet(out, packet_type::RTPFB, 15, |out| {
            put(out, sender);
            put(out, media);
            out.extend((base as u16).to_be_bytes());
            out.extend((symbols.len() as u16).to_be_bytes());
            put(out, ((reference as u32) << 8) | u32::from(self.feedback_count));
            put_chunks(&symbols, out);
            for delta in deltas {
                match u8::try_from(delta) {
                    Ok(small) => out.push(small),
                    Err(_) => out.extend(delta.to_be_bytes()),
                }
            }
        });
        self.feedback_count = self.feedback_count.wrapping_add(1);
        self.next = base + symbols.len() as u64;
        let old = self.next.saturating_sub(self.front + HISTORY);
        // One entry stays, so that the place in the sequence is kept.
        self.drop_front((old as usize).min(self.arrivals.len() - 1));
        true
    }

    fn end(&self) -> u64 {
        self.front + self.arrivals.len() as u64
    }

    fn drop_front(&mut self, count: usize) {
        self.arrivals.drain(..count);
        self.front += count as u64;
        self.next = self.next.max(self.front);
    }

    /// What the next packet tells: from `next` to the end, or to where a delta does not fit.
    fn statuses(&self) -> Option<Statuses> {
        let pending = self.arrivals.range((self.next - self.front) as usize..);
        let first = pending.clone().copied().find(|ticks| *ticks != NOTHING)?;
        let reference = first.div_euclid(REFERENCE_TICKS);
        let mut last = reference * REFERENCE_TICKS;
        let mut statuses = Statuses { symbols: Vec::new(), deltas: Vec::new(), reference };
        for &ticks in pending {
            if ticks == NOTHING {
                statuses.symbols.push(MISSING);
                continue;
            }
            let Ok(delta) = i16::try_from(ticks.wrapping_sub(last)) else { break };
            if statuses.deltas.len() == MAX_RECEIVED {
                break;
            }
            last = ticks;
            statuses.deltas.push(delta);
            statuses.symbols.push(if (0..256).contains(&delta) { SMALL } else { LARGE });
        }
        Some(statuses)
    }
}

struct Statuses {
    symbols: Vec<u8>,
    deltas: Vec<i16>,
    /// In units of 64 ms, 24 bits.
    reference: i32,
}

/// Packet status chunks (§3.1.1 to §3.1.4).
fn put_chunks(mut symbols: &[u8], out: &mut Vec<u8>) {
    while let Some(&symbol) = symbols.first() {
        let run = symbols.iter().take(MAX_RUN).take_while(|s| **s == symbol).count();
        let one_bit = symbols.iter().take(14).all(|s| *s != LARGE);
        let vector_len = symbols.len().min(if one_bit { 14 } else { 7 });
        let (chunk, taken) = if run >= vector_len {
            ((u16::from(symbol) << 13) | run as u16, run)
        } else if one_bit {
            let bits =
                (0..vector_len).fold(0, |bits, i| bits | (u16::from(symbols[i]) << (13 - i)));
            (0x8000 | bits, vector_len)
        } else {
            let bits =
                (0..vector_len).fold(0, |bits, i| bits | (u16::from(symbols[i]) << (12 - 2 * i)));
            (0xC000 | bits, vector_len)
        };
        out.extend(chunk.to_be_bytes());
        symbols = &symbols[taken..];
    }
}

/// A feedback message, read and found whole: the sender's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feedback<'a> {
    /// Transport-wide sequence number of the first packet.
    pub base_sequence: u16,
    /// Number of packets that the message tells of.
    pub status_count: u16,
    /// Reference time on the receiver's own clock in units of 64 ms; 24 bits signed.
    pub reference_time: i32,
    /// Counts feedback messages.
    pub feedback_count: u8,
    chunks: &'a [u8],
    deltas: &'a [u8],
}

impl<'a> Feedback<'a> {
    /// Reads the feedback control information of a
    /// [`TransportFeedback`](crate::rtcp::Packet::TransportFeedback).
    ///
    /// # Errors
    /// [`ParseError::TooShort`], and [`ParseError::BadValue`] for the reserved symbol.
    pub fn parse(fci: &'a [u8]) -> Result<Self, ParseError> {
        let (head, body) = fci.split_first_chunk::<8>().ok_or(ParseError::TooShort)?;
        let status_count = u16::from_be_bytes([head[2], head[3]]);
        let (mut covered, mut deltas_len, mut chunks_len) = (0, 0, 0);
        while covered < usize::from(status_count) {
            let chunk = body[chunks_len..].first_chunk::<2>().ok_or(ParseError::TooShort)?;
            chunks_len += 2;
            let chunk = Chunk::read(*chunk);
            let len = chunk.len().min(usize::from(status_count) - covered);
            covered += len;
            deltas_len += chunk.deltas_len(len).ok_or(ParseError::BadValue)?;
        }
        let (chunks, deltas) = body.split_at(chunks_len);
        let deltas = deltas.get(..deltas_len).ok_or(ParseError::TooShort)?;
        Ok(Self {
            base_sequence: u16::from_be_bytes([head[0], head[1]]),
            status_count,
            reference_time: i32::from_be_bytes([head[4], head[5], head[6], 0]) >> 8,
            feedback_count: head[7],
            chunks,
            deltas,
        })
    }

    /// The reference time in µs on the receiver's own clock.
    pub fn reference_us(&self) -> i64 {
        i64::from(self.reference_time) * i64::from(REFERENCE_TICKS) * TICK_US
    }

    /// Each packet's transport-wide sequence number and its arrival in µs on the receiver's own
    /// clock, None where it did not arrive. That clock wraps with the reference time, after 2^24
    /// units of 64 ms.
    pub fn packets(&self) -> impl Iterator<Item = (u16, Option<i64>)> + use<'a> {
        self.packets_within(0, 1 << 16)
    }

    /// The same without those that did not arrive and lie outside of the `count` numbers from `first` on. A run of such numbers
    /// costs nothing, however long it claims to be. The bytes of the packet and `count` bound what is left.
    pub fn packets_within(
        &self,
        first: u16,
        count: usize,
    ) -> impl Iterator<Item = (u16, Option<i64>)> + use<'a> {
        let (base, mut deltas) = (self.base_sequence, self.deltas);
        let mut at_us = self.reference_us();
        let (mut begin, end) = (0, usize::from(self.status_count));
        let symbols = self.chunks.as_chunks().0.iter().flat_map(move |bytes| {
            let chunk = Chunk::read(*bytes);
            let (at, len) = (begin, chunk.len().min(end - begin));
            begin += len;
            let within = match chunk {
                Chunk::Run { symbol, .. } if !matches!(symbol, SMALL | LARGE) => {
                    overlap(base.wrapping_add(at as u16).wrapping_sub(first), len, count)
                }
                _ => 0..len,
            };
            within.map(move |i| (base.wrapping_add((at + i) as u16), chunk.symbol(i)))
        });
        symbols.map(move |(number, symbol)| {
            let delta = match (symbol, deltas) {
                (SMALL, [small, rest @ ..]) => {
                    deltas = rest;
                    Some(i64::from(*small))
                }
                (LARGE, [high, low, rest @ ..]) => {
                    deltas = rest;
                    Some(i64::from(i16::from_be_bytes([*high, *low])))
                }
                _ => None,
            };
            at_us += delta.unwrap_or(0) * TICK_US;
            (number, delta.map(|_| at_us))
        })
    }
}

/// Which of `len` numbers lie within a window of `count`, if the first lies `ahead` of its beginning, modulo 2^16. A run and a window
/// that is not everything meet once: a window is at most 2^15 long, a run 2^13.
fn overlap(ahead: u16, len: usize, count: usize) -> std::ops::Range<usize> {
    let ahead = usize::from(ahead);
    if count >= 1 << 16 {
        return 0..len;
    }
    if ahead < count {
        return 0..len.min(count - ahead);
    }
    let skip = (1 << 16) - ahead;
    skip.min(len)..len.min(skip + count)
}

#[derive(Clone, Copy)]
enum Chunk {
    Run { symbol: u8, len: usize },
    OneBit(u16),
    TwoBit(u16),
}

impl Chunk {
    fn read(bytes: [u8; 2]) -> Self {
        let word = u16::from_be_bytes(bytes);
        match word >> 14 {
            0 | 1 => Self::Run { symbol: (word >> 13) as u8 & 3, len: usize::from(word & 0x1FFF) },
            2 => Self::OneBit(word),
            _ => Self::TwoBit(word),
        }
    }

    fn len(self) -> usize {
        match self {
            Self::Run { len, .. } => len,
            Self::OneBit(_) => 14,
            Self::TwoBit(_) => 7,
        }
    }

    fn symbol(self, at: usize) -> u8 {
        match self {
            Self::Run { symbol, .. } => symbol,
            Self::OneBit(word) => (word >> (13 - at)) as u8 & 1,
            Self::TwoBit(word) => (word >> (12 - 2 * at)) as u8 & 3,
        }
    }

    /// Bytes of the deltas of the first `len` symbols; None for the reserved symbol.
    fn deltas_len(self, len: usize) -> Option<usize> {
        match self {
            Self::Run { symbol: 3, .. } if len > 0 => None,
            Self::Run { symbol, .. } => Some(usize::from(symbol) * len),
            _ => (0..len).try_fold(0, |sum, at| match self.symbol(at) {
                3 => None,
                symbol => Some(sum + usize::from(symbol)),
            }),
        }
    }
}

#[cfg(test)]
mod tests;
