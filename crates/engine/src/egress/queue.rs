//! What waits until it may leave to one receiver: whole frames, in the order in which they came.
//!
//! The queue only notes which packets wait. Their bytes are in their tracks' histories, which hold them; they are numbered
//! and sealed when they leave.
//!
//! A frame is let in whole or not at all. A keyframe is let in if no other one of its slot waits, or if the queue is
//! short. Any other frame is let in while those that wait beside keyframes leave within [`DELTAS_WAIT`], or within
//! [`DELTAS_WAIT_UNEVEN`] if it is of a screen. If a frame is not let in, its slot stops behind what waits of it
//! ([`Brings::Stop`]). The last keyframe stands as a still until another one is let in. So no number is used that does not
//! leave.

use crate::command::StreamKey;
use crate::limits::{
    DELTAS_WAIT, DELTAS_WAIT_UNEVEN, QUEUE_BYTES, QUEUE_PACKETS, QUEUE_SLOT_BYTES,
};
use std::collections::VecDeque;
use std::time::Duration;

/// Something that waits.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    /// The stream that it is of.
    pub track: StreamKey,
    /// The receiver's slot, by index.
    pub slot: usize,
    /// Its number, as its publisher counts.
    pub index: u64,
    /// What leaves.
    pub brings: Brings,
}

/// What leaves when its turn comes.
#[derive(Debug, Clone, Copy)]
pub enum Brings {
    /// A packet of the track.
    Packet(WaitingPacket),
    /// Nothing: the number brought only padding, and the slot uses none for it.
    Nothing,
    /// The packet that left the slot with this sequence number, again, in at most `len` bytes.
    Again {
        /// The number that it left with.
        sequence: u16,
        /// Most bytes that will leave.
        len: usize,
    },
    /// Nothing any more: its track was muted. It is counted in its turn.
    Withdrawn,
    /// The slot's picture stops here, until a keyframe comes.
    Stop,
}

/// What was found out about a packet when it came.
#[derive(Debug, Clone, Copy)]
pub struct WaitingPacket {
    /// It is the first of a keyframe, and the slot may begin with it.
    pub begins: bool,
    /// It came as a retransmission.
    pub repaired: bool,
    /// It is of a keyframe.
    pub keyframe: bool,
    /// It is the last of its frame.
    pub ends: bool,
    /// The timestamp of its frame.
    pub timestamp: u32,
    /// Bytes to be added to make it as long as its neighbours.
    pub padding: u8,
    /// Most bytes that will leave.
    pub len: usize,
}

/// How a slot stands to a packet's track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stands {
    /// The track flows in it. `continues`: a part of the packet's frame has left.
    Flows {
        /// A part of the packet's frame has left already.
        continues: bool,
        /// The slot is to switch to another track.
        switches: bool,
        /// The track comes by fits and starts.
        uneven: bool,
    },
    /// It waits for a keyframe of the track.
    Waits,
}

/// What became of a packet that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It waits.
    Waits,
    /// Its slot waits for a keyframe, and this is none that could be let in.
    NotTaken,
    /// Its frame is not let in. The slot stops behind what waits of it.
    Stops,
    /// Its frame is not let in, and nothing waits of the slot: that has to stop now.
    Refused,
}

impl Waiting {
    /// A number that brings nothing.
    pub fn nothing(track: StreamKey, slot: usize, index: u64) -> Self {
        Self { track, slot, index, brings: Brings::Nothing }
    }

    /// Most bytes that will leave.
    fn len(&self) -> usize {
        match self.brings {
            Brings::Packet(WaitingPacket { len, .. }) | Brings::Again { len, .. } => len,
            Brings::Nothing | Brings::Withdrawn | Brings::Stop => 0,
        }
    }
}

/// What waits of one slot.
#[derive(Debug, Clone, Copy, Default)]
struct Lane {
    /// How much waits, in entries.
    waiting: usize,
    /// The track that flows once all that has left.
    tail: Option<StreamKey>,
    /// The slot stops behind it.
    stopped: bool,
    /// The timestamp of the frame that was let in last.
    frame: Option<u32>,
    /// The timestamp of a keyframe that has not left whole.
    keyframe: Option<u32>,
    /// Bytes that wait of keyframes, and of all frames.
    keyframes: usize,
    bytes: usize,
    /// The timestamp of the frame of which a part has left.
    begun: Option<u32>,
}

impl Lane {
    /// Whether a packet of this timestamp belongs to the frame that was let in last, or to one before.
    fn knows(&self, timestamp: u32) -> bool {
        self.frame.is_some_and(|newest| newest.wrapping_sub(timestamp) as i32 >= 0)
    }
}

/// Whether so many bytes leave in time at so many bits a second.
fn leaves_within(time: Duration, bytes: usize, bps: Option<u64>) -> bool {
    let bits = bytes as f64 * 8.0;
    bps.is_none_or(|bps| bits <= bps as f64 * time.as_secs_f64())
}

/// What waits for one receiver.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Queue {
    /// How much waits, in entries.
    count: usize,
    /// Packets that go again: they come before all others.
    again: VecDeque<Waiting>,
    again_bytes: usize,
    frames: VecDeque<(Waiting, bool)>,
    lanes: Vec<Lane>,
    bytes: usize,
    /// Most bytes that waited since something began to wait.
    peak: usize,
    /// Bytes of frames that are no keyframes.
    deltas: usize,
}

impl Queue {
    /// Whether something waits.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.count > 0
    }

    /// Bytes that wait, and most that did since something began to wait.
    #[inline]
    pub(super) fn bytes(&self) -> (usize, usize) {
        (self.bytes, self.peak)
    }

    /// Whether something waits of a slot.
    pub(super) fn is_waiting_in(&self, slot: usize) -> bool {
        self.lanes.get(slot).is_some_and(|lane| lane.waiting > 0)
    }

    /// Whether the track flows in a slot once what waits of it has left.
    pub(super) fn brings(&self, slot: usize, track: StreamKey) -> bool {
        let lane = self.lanes.get(slot).filter(|lane| lane.waiting > 0 && !lane.stopped);
        lane.is_some_and(|lane| lane.tail == Some(track))
    }

    /// Whether a keyframe waits of a slot, or a part of one.
    pub(super) fn brings_keyframe(&self, slot: usize) -> bool {
        self.lanes.get(slot).is_some_and(|lane| lane.keyframes > 0)
    }

    /// Whether a packet of this timestamp is the rest of a frame that was let in, whatever else may not leave.
    pub(super) fn completes(&self, slot: usize, timestamp: u32) -> bool {
        let lane = self.lanes.get(slot).filter(|lane| lane.waiting > 0);
        lane.is_some_and(|lane| lane.knows(timestamp))
    }

    /// Whether so many more bytes may wait in so many packets.
    pub(super) fn has_room(&self, packets: usize, len: usize) -> bool {
        self.count + packets <= QUEUE_PACKETS && self.bytes + len <= QUEUE_BYTES
    }

    /// A packet of a frame is to wait. What waits leaves at `bps`, if that is limited. What is cut to make room for it is
    /// added to `cut`.
    pub(super) fn offer(
        &mut self,
        waiting: Waiting,
        packet: WaitingPacket,
        stands: Stands,
        bps: Option<u64>,
        cut: &mut Vec<Waiting>,
    ) -> Admission {
        let Waiting { track, slot, .. } = waiting;
        let lane = self.lane(slot);
        if lane.waiting == 0 {
            let flows = matches!(stands, Stands::Flows { .. });
            *lane = Lane { tail: flows.then_some(track), ..Lane::default() };
        }
        let lane = *lane;
        let here = lane.tail == Some(track);
        let flows = here && !lane.stopped;
        // Once it has stopped, the slot waits for the track that is next in it, or else for the one that flowed.
        let next = match stands {
            Stands::Waits => true,
            Stands::Flows { switches, .. } => here && lane.stopped && !switches,
        };
        let timestamp = packet.timestamp;
        let room = self.has_room(1, packet.len) && lane.bytes + packet.len <= QUEUE_SLOT_BYTES;
        if here && lane.knows(timestamp) {
            // The rest of a frame that was let in, or of one before.
            let keyframe = packet.keyframe || lane.keyframe == Some(timestamp);
            return if room { self.push(waiting, keyframe) } else { self.refuse(slot) };
        }
        if packet.begins && !packet.repaired && (flows || next) {
            return self.keyframe(waiting, packet, flows, bps, cut);
        }
        if !flows {
            return Admission::NotTaken;
        }
        let continues = matches!(stands, Stands::Flows { continues: true, .. });
        let begun = lane.waiting == 0 && continues;
        let within = match stands {
            Stands::Flows { uneven: true, .. } => DELTAS_WAIT_UNEVEN,
            _ => DELTAS_WAIT,
        };
        if room && (begun || leaves_within(within, self.deltas, bps)) {
            let lane = self.lane(slot);
            lane.frame = Some(timestamp);
            lane.keyframe = Some(timestamp).filter(|_| packet.keyframe).or(lane.keyframe);
            return self.push(waiting, packet.keyframe);
        }
        self.refuse(slot)
    }

    /// The first packet of a keyframe is to wait. `flows`: its track flows once what waits has left.
    fn keyframe(
        &mut self,
        waiting: Waiting,
        packet: WaitingPacket,
        flows: bool,
        bps: Option<u64>,
        cut: &mut Vec<Waiting>,
    ) -> Admission {
        let slot = waiting.slot;
        if self.lane(slot).keyframes > 0 && !leaves_within(DELTAS_WAIT, self.bytes, bps) {
            // Of what waits of the slot, only the frame that has begun to leave is worth more than this one.
            self.cut(slot, false, cut);
        }
        if !self.has_room(1, packet.len) {
            return if flows { self.refuse(slot) } else { Admission::NotTaken };
        }
        let lane = *self.lane(slot);
        if let Some(track) = lane.tail.filter(|_| lane.stopped && lane.waiting > 0) {
            // Frames are missing before it: it goes on as after a switch.
            self.push_stop(slot, track);
        }
        let lane = self.lane(slot);
        (lane.tail, lane.stopped) = (Some(waiting.track), false);
        (lane.frame, lane.keyframe) = (Some(packet.timestamp), Some(packet.timestamp));
        self.push(waiting, true)
    }

    /// A number that brings nothing waits for its turn. Says whether it does.
    pub(super) fn pass(&mut self, waiting: Waiting) -> bool {
        let may = self.brings(waiting.slot, waiting.track) && self.has_room(1, 0);
        if may {
            self.push(waiting, false);
        }
        may
    }

    /// A packet is to go again.
    pub(super) fn again(&mut self, waiting: Waiting) {
        self.count += 1;
        self.again_bytes += waiting.len();
        self.bytes += waiting.len();
        self.peak = self.peak.max(self.bytes);
        self.again.push_back(waiting);
    }

    /// Bytes that are to go again before anything else.
    pub(super) fn again_bytes(&self) -> usize {
        self.again_bytes
    }

    /// The slot's picture stops behind the frame of which a part has left, and behind the last keyframe. What else waits of
    /// it is added to `cut`. Says whether anything waits of the slot: it stops when that has left.
    pub(super) fn stop(&mut self, slot: usize, cut: &mut Vec<Waiting>) -> bool {
        self.cut(slot, true, cut)
    }

    /// The path carried nothing for a while. A keyframe of which a part left then is torn: nothing that waits of its slot leaves.
    /// It is added to `cut`, and the slot stops.
    pub(super) fn drop_torn(&mut self, cut: &mut Vec<Waiting>) {
        for slot in 0..self.lanes.len() {
            let lane = &mut self.lanes[slot];
            if lane.waiting > 0 && lane.begun.is_some() && lane.begun == lane.keyframe {
                (lane.begun, lane.keyframe) = (None, None);
                self.cut(slot, true, cut);
            }
        }
    }

    /// The same as [`Self::stop`]. `still`: the last keyframe stays although nothing of it has left.
    fn cut(&mut self, slot: usize, still: bool, cut: &mut Vec<Waiting>) -> bool {
        let lane = *self.lane(slot);
        let Some(tail) = lane.tail.filter(|_| lane.waiting > 0) else { return false };
        // Without what is cut before it, a keyframe goes on as after a switch.
        let (mut gap, mut frame) = (false, lane.begun);
        for (waiting, keyframe) in std::mem::take(&mut self.frames) {
            let stays = match waiting.brings {
                _ if waiting.slot != slot => true,
                Brings::Packet(packet) => {
                    let last = keyframe && lane.keyframe == Some(packet.timestamp);
                    lane.begun == Some(packet.timestamp) || (last && still)
                }
                Brings::Withdrawn => true,
                Brings::Nothing | Brings::Again { .. } | Brings::Stop => false,
            };
            let begins = matches!(waiting.brings, Brings::Packet(p) if p.begins && !p.repaired);
            if stays && waiting.slot == slot && begins && std::mem::take(&mut gap) {
                self.push_stop(slot, waiting.track);
            }
            if stays {
                if let Brings::Packet(packet) = waiting.brings
                    && waiting.slot == slot
                {
                    frame = Some(packet.timestamp);
                }
                self.frames.push_back((waiting, keyframe));
                continue;
            }
            gap = true;
            self.took(&waiting, keyframe);
            if matches!(waiting.brings, Brings::Packet(_)) {
                cut.push(waiting);
            }
        }
        let lane = self.lane(slot);
        (lane.frame, lane.stopped) = (frame, true);
        if lane.waiting == 0 {
            self.push_stop(slot, tail);
        }
        true
    }

    /// A frame is not let in.
    fn refuse(&mut self, slot: usize) -> Admission {
        if self.lane(slot).waiting == 0 {
            return Admission::Refused;
        }
        self.lane(slot).stopped = true;
        Admission::Stops
    }

    fn push_stop(&mut self, slot: usize, track: StreamKey) {
        self.push(Waiting { track, slot, index: 0, brings: Brings::Stop }, false);
    }

    fn lane(&mut self, slot: usize) -> &mut Lane {
        if slot >= self.lanes.len() {
            self.lanes.resize(slot + 1, Lane::default());
        }
        &mut self.lanes[slot]
    }

    fn push(&mut self, waiting: Waiting, keyframe: bool) -> Admission {
        let len = waiting.len();
        let lane = self.lane(waiting.slot);
        (lane.waiting, lane.bytes) = (lane.waiting + 1, lane.bytes + len);
        if keyframe {
            lane.keyframes += len;
        } else {
            self.deltas += len;
        }
        (self.count, self.bytes) = (self.count + 1, self.bytes + len);
        self.peak = self.peak.max(self.bytes);
        self.frames.push_back((waiting, keyframe));
        Admission::Waits
    }

    /// Something no longer waits.
    fn took(&mut self, waiting: &Waiting, keyframe: bool) {
        let len = waiting.len();
        let lane = self.lane(waiting.slot);
        (lane.waiting, lane.bytes) = (lane.waiting - 1, lane.bytes - len);
        if keyframe {
            lane.keyframes -= len;
        } else {
            self.deltas -= len;
        }
        (self.count, self.bytes) = (self.count - 1, self.bytes - len);
        if self.count == 0 {
            self.peak = 0;
        }
    }

    /// Takes the next of what waits.
    pub(super) fn next(&mut self) -> Option<Waiting> {
        if let Some(again) = self.again.pop_front() {
            (self.count, self.bytes) = (self.count - 1, self.bytes - again.len());
            self.again_bytes -= again.len();
            return Some(again);
        }
        let (waiting, keyframe) = self.frames.pop_front()?;
        self.took(&waiting, keyframe);
        let lane = self.lane(waiting.slot);
        if let Brings::Packet(packet) = waiting.brings {
            lane.begun = (!packet.ends).then_some(packet.timestamp);
        }
        // Late packets of the last frame came in time until here.
        let stops = lane.stopped && lane.waiting == 0 && !matches!(waiting.brings, Brings::Stop);
        if let Some(track) = lane.tail.filter(|_| stops) {
            self.push_stop(waiting.slot, track);
        }
        Some(waiting)
    }

    /// Nothing that waits of a track leaves. What was held for it is added to `cut`.
    pub(super) fn withdraw(&mut self, track: StreamKey, cut: &mut Vec<Waiting>) {
        for (waiting, keyframe) in &mut self.frames {
            if waiting.track != track || !matches!(waiting.brings, Brings::Packet(_)) {
                continue;
            }
            let len = waiting.len();
            let lane = &mut self.lanes[waiting.slot];
            lane.bytes -= len;
            self.bytes -= len;
            if *keyframe {
                lane.keyframes -= len;
            } else {
                self.deltas -= len;
            }
            cut.push(*waiting);
            (waiting.brings, *keyframe) = (Brings::Withdrawn, false);
        }
        for again in self.again.iter_mut().filter(|again| again.track == track) {
            self.bytes -= again.len();
            self.again_bytes -= again.len();
            again.brings = Brings::Withdrawn;
        }
        self.peak = self.bytes;
        let of = |lane: &&mut Lane| lane.waiting > 0 && lane.tail == Some(track);
        self.lanes.iter_mut().filter(of).for_each(|lane| lane.stopped = true);
    }

    /// All that waits, which leaves no more.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = Waiting> + use<> {
        std::mem::take(self).frames.into_iter().map(|(waiting, _)| waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::TrackKey;

    const CAMERA: StreamKey = TrackKey(1).stream();
    /// A megabit a second: 1.5 s of frames that are no keyframes are 187 500 bytes.
    const BPS: Option<u64> = Some(1_000_000);
    const FLOWS: Stands = Stands::Flows { continues: false, switches: false, uneven: false };

    /// A queue, what was cut of it, and the number of the next packet.
    #[derive(Default)]
    struct Few(Queue, Vec<Waiting>, u64);

    impl Few {
        /// A frame of so many packets of 1000 bytes comes. What became of each.
        fn frame(&mut self, timestamp: u32, packets: usize, keyframe: bool) -> Vec<Admission> {
            let packet = |nth: usize| {
                let (begins, ends) = (keyframe && nth == 0, nth + 1 == packets);
                let (repaired, padding, len) = (false, 0, 1000);
                WaitingPacket { begins, repaired, keyframe, ends, timestamp, padding, len }
            };
            let offer = |nth: usize| {
                let (packet, index) = (packet(nth), self.2);
                self.2 += 1;
                let brings = Brings::Packet(packet);
                let waiting = Waiting { track: CAMERA, slot: 0, index, brings };
                self.0.offer(waiting, packet, FLOWS, BPS, &mut self.1)
            };
            (0..packets).map(offer).collect()
        }

        /// The next so many of what waits: numbers of packets; None where the slot stops.
        fn leave(&mut self, count: usize) -> Vec<Option<u64>> {
            let next = std::iter::from_fn(|| self.0.next()).take(count);
            next.map(|next| (!matches!(next.brings, Brings::Stop)).then_some(next.index)).collect()
        }
    }

    fn all(count: std::ops::Range<u64>) -> Vec<Option<u64>> {
        count.map(Some).collect()
    }

    #[test]
    fn a_frame_waits_whole_or_not_at_all_and_the_keyframe_before_it_stands() {
        let mut few = Few::default();
        assert!(few.frame(0, 300, true).iter().all(|it| *it == Admission::Waits), "any size");
        let mut timestamp = 0;
        let refused = loop {
            timestamp += 3000;
            let frame = few.frame(timestamp, 10, false);
            if frame[0] != Admission::Waits {
                break frame;
            }
            assert!(frame.iter().all(|it| *it == Admission::Waits), "{timestamp}");
        };
        assert_eq!(refused[0], Admission::Stops);
        assert!(refused[1..].iter().all(|it| *it == Admission::NotTaken));
        let let_in = few.2 - 10;
        assert!((480..=500).contains(&let_in), "1.5 s of them: {let_in}");
        assert_eq!(few.frame(timestamp + 3000, 5, false)[0], Admission::NotTaken, "it stopped");
        let mut expected = all(0..let_in);
        expected.push(None);
        assert_eq!(few.leave(1000), expected);
        assert!(few.1.is_empty() && !few.0.is_waiting());
        assert_eq!((few.0.bytes, few.0.deltas, few.0.peak), (0, 0, 0));
    }

    #[test]
    fn a_picture_that_rests_leaves_what_has_begun_and_its_keyframe() {
        let mut few = Few::default();
        few.frame(0, 5, false);
        few.frame(3000, 5, false);
        few.frame(6000, 50, true);
        few.frame(9000, 5, false);
        assert_eq!(few.leave(2), all(0..2));
        assert!(few.0.stop(0, &mut few.1));
        let cut: Vec<u64> = few.1.drain(..).map(|waiting| waiting.index).collect();
        assert_eq!(cut, (5..10).chain(60..65).collect::<Vec<_>>());
        assert_eq!(few.frame(9000, 3, false), [Admission::NotTaken; 3], "the rest of what was cut");
        let mut expected = all(2..5);
        // Frames are missing before the keyframe: it goes on as after a switch.
        expected.push(None);
        expected.extend(all(10..60));
        expected.push(None);
        assert_eq!(few.leave(100), expected);
        assert!(!few.0.stop(0, &mut few.1), "nothing waits");
    }

    #[test]
    fn packets_that_overtake_each_other_belong_to_their_frame() {
        let mut few = Few::default();
        few.frame(0, 200, true);
        few.frame(3000, 180, false);
        assert_eq!(few.frame(6000, 1, false), [Admission::Waits]);
        assert_eq!(few.frame(9000, 1, false), [Admission::Waits]);
        few.frame(12_000, 190, false);
        assert_eq!(few.frame(15_000, 1, false), [Admission::Stops]);
        assert!(few.0.completes(0, 12_000) && !few.0.completes(0, 15_000));
        assert_eq!(few.frame(12_000, 2, false), [Admission::Waits; 2], "they come late");
    }

    #[test]
    fn one_keyframe_waits_behind_the_one_that_leaves() {
        let mut few = Few::default();
        few.frame(0, 300, true);
        few.leave(10);
        for nth in 1..5 {
            few.frame(90_000 * nth, 300, true);
            few.frame(90_000 * nth + 3000, 5, false);
        }
        assert!(few.0.lane(0).keyframes <= 600_000 && few.0.brings_keyframe(0));
        let left = few.leave(2000);
        assert_eq!(
            left.iter().filter(|it| it.is_none()).count(),
            1,
            "one switch, no stop: {left:?}"
        );
        assert_eq!(left.last(), Some(&Some(few.2 - 1)), "the newest flows");
    }

    #[test]
    fn what_is_sent_again_goes_first_and_what_is_withdrawn_is_counted_in_its_turn() {
        let mut few = Few::default();
        few.frame(0, 4, true);
        let brings = Brings::Again { sequence: 7, len: 1000 };
        few.0.again(Waiting { track: CAMERA, slot: 0, index: 99, brings });
        assert_eq!(few.leave(2), [Some(99), Some(0)]);
        few.0.withdraw(CAMERA, &mut few.1);
        assert_eq!((few.1.len(), few.0.bytes().0), (3, 0));
        assert_eq!(few.frame(3000, 1, false), [Admission::NotTaken], "it is muted");
        let left: Vec<_> = std::iter::from_fn(|| few.0.next()).collect();
        let withdrawn = left.iter().filter(|next| matches!(next.brings, Brings::Withdrawn));
        assert_eq!(withdrawn.count(), 3);
        few.frame(6000, 3, true);
        assert_eq!(few.0.clear().count(), 3);
        assert!(!few.0.is_waiting());
    }

    #[test]
    fn what_waits_has_a_bound() {
        let mut few = Few::default();
        let whole = few.frame(0, 3000, true);
        let waits = whole.iter().filter(|it| **it == Admission::Waits).count();
        assert_eq!(waits, QUEUE_SLOT_BYTES / 1000);
        assert!(!few.0.has_room(QUEUE_PACKETS, 0) && !few.0.has_room(1, QUEUE_BYTES));
    }
}
