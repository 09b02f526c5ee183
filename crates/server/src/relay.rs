//! The lanes between threads: rings of one writer and one reader, made once.
//!
//! Between each pair of media threads runs a media lane, which may drop (its writer counts), and a
//! control lane, which does not: what finds its ring full waits at the writer, in order.

use engine::limits::MAX_PACKET;
use engine::mix::{Bar, MixFrame, MixedPacket};
use engine::shard::{RelayContent, RelayControl, RelayPacket};
use engine::{ShardIndex, StreamKey, TrackKey};
use net::Waker;
use rtrb::{Consumer, Producer, RingBuffer};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a media lane: some 100 ms of thirty people's pictures, and small enough to stay in a cache.
const MEDIA_LANE: usize = 1 << 20;
/// Messages on a control lane.
const CONTROL_LANE: usize = 1024;
/// Packets taken from one lane before other work gets its turn.
const PACKETS_IN_A_ROW: usize = 512;

/// What a mixer tells the media thread of its shard.
#[expect(clippy::large_enum_variant, reason = "it lies in a ring, whose places are made once")]
pub(crate) enum FromMixer {
    Packet(MixedPacket),
    Bar(Bar),
}

/// A media thread's ends of the rings to and from its mixer.
pub(crate) struct MixEnds {
    /// Packets of sound into the mixer.
    pub frames: Producer<MixFrame>,
    /// Mixed packets out of it.
    pub mixed: Consumer<FromMixer>,
    /// The beginning of tick 0 of all mixers.
    pub epoch: Instant,
}

/// What goes before a packet's bytes on a media lane: track, number (8 bytes each), length (2),
/// content and layer (1 each).
const HEAD: usize = 20;

fn head(packet: &RelayPacket<'_>) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&packet.stream.track.0.to_le_bytes());
    head[8..16].copy_from_slice(&packet.index.to_le_bytes());
    head[16..18].copy_from_slice(&(packet.bytes.len() as u16).to_le_bytes());
    head[18] = packet.content as u8;
    head[19] = packet.stream.layer;
    head
}

/// The packet of a head and its bytes; none where the head is not one of ours.
fn packet<'a>(head: &[u8; HEAD], bytes: &'a [u8]) -> Option<RelayPacket<'a>> {
    let number = |from: usize| head[from..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let content = match head[18] {
        of if of == RelayContent::Original as u8 => RelayContent::Original,
        of if of == RelayContent::Repaired as u8 => RelayContent::Repaired,
        of if of == RelayContent::Padding as u8 => RelayContent::Padding,
        of if of == RelayContent::Silenced as u8 => RelayContent::Silenced,
        _ => return None,
    };
    let stream = StreamKey { track: TrackKey(number(0)?), layer: head[19] };
    Some(RelayPacket { stream, index: number(8)?, content, bytes })
}

/// Copies `from` to `at` of a ring's two pieces.
fn write(pieces: &mut (&mut [u8], &mut [u8]), at: usize, from: &[u8]) {
    let middle = pieces.0.len();
    let (before, after) = from.split_at(middle.saturating_sub(at).min(from.len()));
    if !before.is_empty() {
        pieces.0[at..at + before.len()].copy_from_slice(before);
    }
    if !after.is_empty() {
        let at = (at + before.len()) - middle;
        pieces.1[at..at + after.len()].copy_from_slice(after);
    }
}

/// Bytes `from` to `from + to.len()` of a ring's two pieces.
fn read(pieces: (&[u8], &[u8]), from: usize, to: &mut [u8]) {
    let middle = pieces.0.len();
    let (before, after) = to.split_at_mut(middle.saturating_sub(from).min(to.len()));
    if !before.is_empty() {
        before.copy_from_slice(&pieces.0[from..from + before.len()]);
    }
    if !after.is_empty() {
        let from = from + before.len() - middle;
        after.copy_from_slice(&pieces.1[from..from + after.len()]);
    }
}

/// The ends that a media thread writes to.
pub(crate) struct LanesOut(Vec<Option<Outgoing>>);

/// The ends that a media thread reads from.
pub(crate) struct LanesIn {
    lanes: Vec<(Consumer<u8>, Consumer<RelayControl>)>,
    /// A packet that lies around the end of its ring.
    around: [u8; MAX_PACKET],
}

struct Outgoing {
    media: Producer<u8>,
    control: Producer<RelayControl>,
    /// What found the control lane full.
    waiting: VecDeque<RelayControl>,
    /// The other thread's.
    waker: Arc<Waker>,
    written: bool,
}

/// The lanes between threads with these wakers.
pub(crate) fn lanes(wakers: &[Arc<Waker>]) -> Vec<(LanesOut, LanesIn)> {
    let count = wakers.len();
    let mut all: Vec<(LanesOut, LanesIn)> =
        (0..count).map(|_| (LanesOut(Vec::new()), LanesIn::none())).collect();
    for from in 0..count {
        for (to, waker) in wakers.iter().enumerate() {
            if from == to {
                all[from].0.0.push(None);
                continue;
            }
            let (media, media_in) = RingBuffer::new(MEDIA_LANE);
            let (control, control_in) = RingBuffer::new(CONTROL_LANE);
            let waiting = VecDeque::new();
            let waker = waker.clone();
            let lane = Outgoing { media, control, waiting, waker, written: false };
            all[from].0.0.push(Some(lane));
            all[to].1.lanes.push((media_in, control_in));
        }
    }
    all
}

impl LanesOut {
    /// Copies a packet onto the lane to a shard; says whether there was room.
    pub(crate) fn packet(&mut self, to: ShardIndex, packet: &RelayPacket<'_>) -> bool {
        let Some(lane) = self.0.get_mut(usize::from(to.0)).and_then(Option::as_mut) else {
            return false;
        };
        if packet.bytes.len() > MAX_PACKET {
            return false;
        }
        let Ok(mut room) = lane.media.write_chunk(HEAD + packet.bytes.len()) else { return false };
        let mut pieces = room.as_mut_slices();
        write(&mut pieces, 0, &head(packet));
        write(&mut pieces, HEAD, packet.bytes);
        room.commit_all();
        lane.written = true;
        true
    }

    /// Puts a message onto the control lane to a shard.
    pub(crate) fn control(&mut self, to: ShardIndex, message: RelayControl) {
        if let Some(Some(lane)) = self.0.get_mut(usize::from(to.0)) {
            lane.waiting.push_back(message);
            lane.written = true;
        }
    }

    /// Wakes the threads that were written to.
    pub(crate) fn flush(&mut self) {
        for lane in self.0.iter_mut().flatten() {
            while let Some(message) = lane.waiting.pop_front() {
                if let Err(rtrb::PushError::Full(message)) = lane.control.push(message) {
                    lane.waiting.push_front(message);
                    break;
                }
            }
            if std::mem::take(&mut lane.written) {
                lane.waker.wake();
            }
        }
    }
}

impl LanesIn {
    /// Takes what came: from each lane control first. Returns whether packets wait still.
    pub(crate) fn take(&mut self, mut come: impl FnMut(Come<'_>)) -> bool {
        let mut more = false;
        for (packets, messages) in &mut self.lanes {
            while let Ok(message) = messages.pop() {
                come(Come::Control(message));
            }
            for _ in 0..PACKETS_IN_A_ROW {
                if !take_packet(packets, &mut self.around, &mut come) {
                    break;
                }
            }
            more |= !packets.is_empty();
        }
        more
    }

    fn none() -> Self {
        Self { lanes: Vec::new(), around: [0; MAX_PACKET] }
    }
}

/// Takes the next packet of a lane; says whether there was one.
fn take_packet(
    lane: &mut Consumer<u8>,
    around: &mut [u8; MAX_PACKET],
    come: &mut impl FnMut(Come<'_>),
) -> bool {
    // Head and packet were written as one: where there is a head, all of it is there.
    let Ok(chunk) = lane.read_chunk(HEAD) else { return false };
    let mut head = [0; HEAD];
    read(chunk.as_slices(), 0, &mut head);
    let len = usize::from(u16::from_le_bytes([head[16], head[17]])).min(MAX_PACKET);
    let Ok(chunk) = lane.read_chunk(HEAD + len) else { return false };
    let (first, second) = chunk.as_slices();
    let bytes = match first.get(HEAD..HEAD + len) {
        Some(bytes) => bytes,
        None => {
            read((first, second), HEAD, &mut around[..len]);
            &around[..len]
        }
    };
    if let Some(packet) = packet(&head, bytes) {
        come(Come::Packet(packet));
    }
    chunk.commit_all();
    true
}

/// What came over a lane.
pub(crate) enum Come<'a> {
    Control(RelayControl),
    Packet(RelayPacket<'a>),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the first thread to the second.
    fn one_way() -> (LanesOut, LanesIn) {
        let wakers: Vec<_> = (0..2).map(|_| Arc::new(Waker::new().unwrap())).collect();
        let mut lanes = lanes(&wakers);
        let (_, to) = lanes.pop().unwrap();
        (lanes.pop().unwrap().0, to)
    }

    #[test]
    fn control_is_never_lost_and_keeps_its_order_and_media_is_refused_when_full() {
        let (mut first, mut second) = one_way();
        let message = |n| RelayControl::Keyframe { stream: TrackKey(n).stream() };
        let all = 3 * CONTROL_LANE as u64;
        (0..all).for_each(|n| first.control(ShardIndex(1), message(n)));
        let content = RelayContent::Original;
        let packet = RelayPacket { stream: TrackKey(1).stream(), index: 7, content, bytes: b"abc" };
        let fit = MEDIA_LANE / (HEAD + 3);
        let sent = (0..fit + 5).filter(|_| first.packet(ShardIndex(1), &packet)).count();
        assert_eq!(sent, fit);
        assert!(!first.packet(ShardIndex(0), &packet), "there is no lane to oneself");
        let (mut messages, mut packets) = (Vec::new(), 0);
        for _ in 0..fit / PACKETS_IN_A_ROW + 10 {
            first.flush();
            second.take(|come| match come {
                Come::Control(message) => messages.push(message),
                Come::Packet(packet) => {
                    assert_eq!((packet.bytes, packet.index), (&b"abc"[..], 7));
                    packets += 1;
                }
            });
        }
        assert_eq!(messages, (0..all).map(message).collect::<Vec<_>>());
        assert_eq!(packets, fit);
    }

    #[test]
    fn packets_of_any_length_come_over_whole_wherever_the_ring_ends() {
        let (mut first, mut second) = one_way();
        let bytes: Vec<u8> = (0..MAX_PACKET).map(|n| n as u8).collect();
        let contents = [
            RelayContent::Original,
            RelayContent::Repaired,
            RelayContent::Padding,
            RelayContent::Silenced,
        ];
        let packet = |index: u64| {
            let len = (index as usize * 37) % (MAX_PACKET + 1);
            let content = contents[index as usize % 4];
            let stream = TrackKey(index << 40).layer(index as u8 % 3);
            RelayPacket { stream, index, content, bytes: &bytes[..len] }
        };
        let mut next = 0;
        // Several times around the ring.
        for index in 0..5_000 {
            assert!(first.packet(ShardIndex(1), &packet(index)));
            if index % 3 == 0 {
                continue;
            }
            second.take(|come| {
                let Come::Packet(came) = come else { panic!("no message was sent") };
                let sent = packet(next);
                assert_eq!((came.stream, came.index), (sent.stream, sent.index));
                assert_eq!((came.content, came.bytes), (sent.content, sent.bytes));
                next += 1;
            });
            assert_eq!(next, index + 1);
        }
        let long = vec![0; MAX_PACKET + 1];
        assert!(!first.packet(ShardIndex(1), &RelayPacket { bytes: &long, ..packet(0) }));
    }
}
