//! The lanes between threads: rings of one writer and one reader, made once.
//!
//! Between each pair of media threads runs a media lane, which may drop (its writer counts), and a
//! control lane, which does not: what finds its ring full waits at the writer, in order.

use engine::limits::MAX_PACKET;
use engine::mix::{MixFrame, MixedPacket};
use engine::shard::{RelayContent, RelayControl, RelayPacket};
use engine::{ShardIndex, TrackKey};
use net::Waker;
use rtrb::{Consumer, Producer, RingBuffer};
use std::collections::VecDeque;
use std::sync::Arc;

/// Packets on a media lane.
const MEDIA_LANE: usize = 4096;
/// Messages on a control lane.
const CONTROL_LANE: usize = 1024;
/// Packets taken from one lane before other work gets its turn.
const PACKETS_IN_A_ROW: usize = 512;

/// A media thread's ends of the rings to and from its mixer.
pub(crate) struct MixEnds {
    /// Packets of sound into the mixer.
    pub frames: Producer<MixFrame>,
    /// Mixed packets out of it.
    pub mixed: Consumer<MixedPacket>,
}

/// A packet on a media lane: it owns its bytes.
struct Relayed {
    track: TrackKey,
    index: u64,
    content: RelayContent,
    len: u16,
    bytes: [u8; MAX_PACKET],
}

impl Relayed {
    fn packet(&self) -> RelayPacket<'_> {
        let bytes = &self.bytes[..usize::from(self.len)];
        RelayPacket { track: self.track, index: self.index, content: self.content, bytes }
    }
}

/// The ends that a media thread writes to.
pub(crate) struct LanesOut(Vec<Option<Outgoing>>);

/// The ends that a media thread reads from.
pub(crate) struct LanesIn(Vec<(Consumer<Relayed>, Consumer<RelayControl>)>);

struct Outgoing {
    media: Producer<Relayed>,
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
        (0..count).map(|_| (LanesOut(Vec::new()), LanesIn(Vec::new()))).collect();
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
            all[to].1.0.push((media_in, control_in));
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
        let len = packet.bytes.len();
        if len > MAX_PACKET || lane.media.is_full() {
            return false;
        }
        let mut relayed = Relayed {
            track: packet.track,
            index: packet.index,
            content: packet.content,
            len: len as u16,
            bytes: [0; MAX_PACKET],
        };
        relayed.bytes[..len].copy_from_slice(packet.bytes);
        lane.written = true;
        lane.media.push(relayed).is_ok()
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
        for (packets, messages) in &mut self.0 {
            while let Ok(message) = messages.pop() {
                come(Come::Control(message));
            }
            for _ in 0..PACKETS_IN_A_ROW {
                let Ok(packet) = packets.pop() else { break };
                come(Come::Packet(packet.packet()));
            }
            more |= !packets.is_empty();
        }
        more
    }
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
        let message = |n| RelayControl::Keyframe { track: TrackKey(n) };
        let all = 3 * CONTROL_LANE as u64;
        (0..all).for_each(|n| first.control(ShardIndex(1), message(n)));
        let content = RelayContent::Original;
        let packet = RelayPacket { track: TrackKey(1), index: 7, content, bytes: b"abc" };
        let sent = (0..MEDIA_LANE + 5).filter(|_| first.packet(ShardIndex(1), &packet)).count();
        assert_eq!(sent, MEDIA_LANE);
        assert!(!first.packet(ShardIndex(0), &packet), "there is no lane to oneself");
        let (mut messages, mut packets) = (Vec::new(), 0);
        for _ in 0..10 {
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
        assert_eq!(packets, MEDIA_LANE);
    }
}
