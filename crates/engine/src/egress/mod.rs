//! The way out to one receiver. What their path carries, which layers flow, what leaves when, and what may be sent again:
//! all of that is decided here and nowhere else.
//!
//! 1. What is known of the path ([`path`]): by feedback on packets ([`bwe`]), by the receiver's own word ([`remb`]), or by
//!    the losses of their reports ([`reports`]).
//! 2. [`allocation`] chooses a [`Level`] for each picture by that; [`level`] says how long one waits until it gets more.
//! 3. A packet of a picture leaves at once, unless the present burst is full ([`pace`]). Then it waits in the [`queue`],
//!    if its frame is let in: whole, or not at all.
//! 4. [`again`] bounds what is sent again.
//!
//! The caller owns people, tracks and bytes. It offers packets ([`Egress::offer`]), and says what left ([`Egress::left`])
//! and what the receiver told. It asks what is to flow ([`Egress::allocate`]) and what leaves now ([`Egress::next`]).

mod again;
mod allocation;
mod level;
mod pace;
mod path;
mod queue;
mod rate;
mod remb;
mod reports;

pub(crate) use again::{SentAgain, round_trip};
pub(crate) use allocation::{Change, Layer, Layers, Picture};
pub(crate) use level::{Fall, Level};
pub(crate) use queue::{Admission, Brings, Stands, Waiting, WaitingPacket};
pub(crate) use rate::{Counted, Rate};

use crate::command::StreamKey;
use crate::drops::InDrop;
use crate::limits::{
    AMPLE_HEADROOM, FIRST_WANTED, KEEPS_UP, MOVED_TOLD, PROBE_HEADROOM, PROBE_STARVED_HEADROOM,
    QUEUE_LONG, YOUNG_BPS,
};
use again::Resends;
use allocation::{Allocation, Takes};
use level::Patience;
use pace::{Limit, Pace};
use path::Path;
use queue::Queue;
use reports::Flow;
use rtp::losses::Losses;
use std::time::{Duration, Instant};

/// A packet that left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Sound.
    Sound,
    /// A packet of a picture, for the first time.
    Picture,
    /// A packet of a picture again, or padding.
    Again,
}

/// The way out to one receiver. The fields that every packet needs come first.
#[repr(C, align(64))]
pub(crate) struct Egress {
    pace: Pace,
    queue: Queue,
    path: Path,
    resends: Resends,
    /// How long each slot waits until it gets more.
    patience: Vec<Patience>,
    /// What the receiver says that they lose.
    losses: Losses,
    /// What pictures take of the path.
    takes: Takes,
    start_bps: u64,
    /// An outage has ended.
    was_out: bool,
    /// When the receiver's address changed last.
    moved: Option<Instant>,
}

impl Egress {
    /// Before anything left. The path is taken to carry `start_bps` bits a second until feedback tells more.
    pub(crate) fn new(now: Instant, start_bps: u64) -> Self {
        Self {
            start_bps,
            pace: Pace::new(now),
            queue: Queue::default(),
            path: Path::default(),
            resends: Resends::new(now),
            patience: Vec::new(),
            losses: Losses::default(),
            takes: Takes::default(),
            was_out: false,
            moved: None,
        }
    }

    /// The receiver will give feedback: a keyframe that comes before the path was thought about leaves no faster than it begins.
    pub(crate) fn begin(&mut self) {
        if self.path.is_unknown() {
            self.pace.begin_with(Limit::of(self.start_bps, false));
        }
    }

    /// Whether the next packet of a picture must wait.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.queue.is_waiting() || self.pace.is_full()
    }

    /// Whether something waits.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.queue.is_waiting()
    }

    /// Whether something waits of a slot.
    #[inline]
    pub(crate) fn is_waiting_in(&self, slot: usize) -> bool {
        self.queue.is_waiting() && self.queue.is_waiting_in(slot)
    }

    /// Whether a track flows in a slot once what waits of it has left.
    pub(crate) fn brings(&self, slot: usize, track: StreamKey) -> bool {
        self.queue.brings(slot, track)
    }

    /// Whether a packet of this timestamp is the rest of a frame that was let in.
    pub(crate) fn completes(&self, slot: usize, timestamp: u32) -> bool {
        self.queue.completes(slot, timestamp)
    }

    /// Whether a keyframe waits of a slot, or a part of one.
    pub(crate) fn brings_keyframe(&self, slot: usize) -> bool {
        self.queue.brings_keyframe(slot)
    }

    /// Whether so many packets may wait, of so many bytes in all.
    pub(crate) fn has_room(&self, packets: usize, len: usize) -> bool {
        self.queue.has_room(packets, len)
    }

    /// A packet of a picture is to wait. What is cut to make room for it is added to `cut`.
    pub(crate) fn offer(
        &mut self,
        waiting: Waiting,
        packet: WaitingPacket,
        stands: Stands,
        cut: &mut Vec<Waiting>,
    ) -> Admission {
        // At first it is not known how much leaves soon.
        let least = if self.path.is_unprobed() || self.path.awaits_probe() { YOUNG_BPS } else { 0 };
        let bps = self.pace.most_bps().map(|bps| bps.max(least));
        let admission = self.queue.offer(waiting, packet, stands, bps, cut);
        if self.path.is_left_alone() && !self.waits_less_than(QUEUE_LONG, bps) {
            self.path.reconsider();
        }
        admission
    }

    /// A number that brings nothing waits for its turn. Says whether it does.
    pub(crate) fn pass(&mut self, track: StreamKey, slot: usize, index: u64) -> bool {
        self.queue.pass(Waiting::nothing(track, slot, index))
    }

    /// A packet is to go again, before all that waits.
    pub(crate) fn again(&mut self, waiting: Waiting) {
        self.queue.again(waiting);
    }

    /// A slot's picture stops. The frame that has begun to leave does so whole, and the keyframe that waits. The rest is
    /// added to `cut`. Says whether anything waits of the slot: then it stops when [`Brings::Stop`] comes.
    pub(crate) fn stop(&mut self, slot: usize, cut: &mut Vec<Waiting>) -> bool {
        self.queue.stop(slot, cut)
    }

    /// A keyframe of a slot took so long that the frames after it could not follow. No other one is worth asking for at this
    /// estimate, except now and then.
    pub(crate) fn starved(&mut self, slot: usize, fall: Fall, now: Instant) {
        if slot >= self.patience.len() {
            self.patience.resize(slot + 1, Patience::default());
        }
        let room = self.room(now);
        self.patience[slot].fell(fall, now);
        self.patience[slot].starved(room);
    }

    /// The receiver lacks a keyframe of a slot's picture: of one that flows, or the still if it rests.
    pub(crate) fn lacks_keyframe(&mut self, (slot, rests): (usize, bool), now: Instant) {
        if !rests {
            self.path.lacks_keyframe();
        } else if let Some(patience) = self.patience.get_mut(slot) {
            patience.lacks_still(now);
        }
    }

    /// Nothing that waits of a track leaves. What was held for it is added to `cut`.
    pub(crate) fn withdraw(&mut self, track: StreamKey, cut: &mut Vec<Waiting>) {
        self.queue.withdraw(track, cut);
    }

    /// All that waits, which leaves no more.
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = Waiting> + use<> {
        self.queue.clear()
    }

    /// Begins the next burst, if it is due. Says whether it was.
    #[inline]
    pub(crate) fn turn(&mut self, now: Instant) -> bool {
        let (queued, peak) = self.queue.bytes();
        self.pace.turn(now, queued, peak)
    }

    /// Takes the next of what waits, if the present burst is not full.
    pub(crate) fn next(&mut self) -> Option<Waiting> {
        if self.pace.is_full() { None } else { self.queue.next() }
    }

    /// Takes the next of what waits, however much left: for a probe.
    pub(crate) fn next_at_once(&mut self) -> Option<Waiting> {
        self.queue.next()
    }

    /// When the next burst may leave if something waits for it, or the next packets of a probe.
    pub(crate) fn due(&self) -> Option<Instant> {
        let burst = self.queue.is_waiting().then(|| self.pace.due());
        burst.into_iter().chain(self.path.probe_due()).min()
    }

    /// When the next packets of a probe are due.
    pub(crate) fn probe_due(&self) -> Option<Instant> {
        self.path.probe_due()
    }

    /// How many bytes of a probe are to leave now, which begins if it has not yet.
    pub(crate) fn probe(&mut self, now: Instant) -> usize {
        // Without numbers it would not end, and tell nothing.
        let looks = self.path.number().is_some();
        let Some(downlink) = self.path.downlink() else { return 0 };
        if !looks {
            downlink.prober().end();
            return 0;
        }
        let bytes = downlink.prober().bytes_due(now);
        if bytes > 0 {
            downlink.prober().begin(now);
        }
        bytes
    }

    /// Bytes of numbered packets that left.
    pub(crate) fn numbered_bytes(&mut self) -> u64 {
        self.path.downlink().map_or(0, |downlink| downlink.sent_bytes())
    }

    /// Nothing can leave that a probe would be made of.
    pub(crate) fn end_probe(&mut self) {
        if let Some(downlink) = self.path.downlink() {
            downlink.prober().end();
        }
    }

    /// The transport-wide number of the next packet, if packets are numbered.
    #[inline]
    pub(crate) fn number(&self) -> Option<u16> {
        self.path.number()
    }

    /// A packet of so many bytes left, with that number if it is `numbered`.
    #[inline]
    pub(crate) fn left(&mut self, now: Instant, len: usize, what: Sent, numbered: bool) {
        match what {
            Sent::Sound => {}
            Sent::Picture => self.pace.count(len),
            Sent::Again => self.pace.count_again(len),
        }
        self.path.sent(now, len, numbered, what != Sent::Sound);
    }

    /// The receiver asks for so many packets again. Returns how many of them may be looked up.
    pub(crate) fn asked_again(&mut self, asked: usize, now: Instant) -> usize {
        self.path.hint(now);
        self.fill(now);
        self.resends.look(asked, now)
    }

    /// What left fills what may be sent again.
    pub(crate) fn fill(&mut self, now: Instant) {
        self.resends.fill(self.pace.media(), now);
    }

    /// Whether a packet of so many bytes may be sent again, and whether twice, if it is `paced`. Where many packets are lost,
    /// those that are sent again are as well. What a `still` lacks leaves in place of its rest, which is worth nothing without.
    pub(crate) fn may_send_again(&mut self, len: usize, paced: bool, still: bool) -> Option<bool> {
        if still && paced && self.pace.most_bps().is_some() {
            return Some(false);
        }
        let may = self.resends.take(len);
        may.then(|| paced && self.losses.are_many() && self.resends.take_spare(len))
    }

    /// After what time a packet that is to go again now may be asked for once more. It leaves behind others that go again, and
    /// then takes a round trip.
    pub(crate) fn again_after(&self) -> Duration {
        let bits = self.queue.again_bytes() as f64 * 8.0;
        let leaves = self.pace.most_bps().map_or(0.0, |bps| bits / bps as f64);
        round_trip(self.path.least_rtt_ms()) + Duration::from_secs_f64(leaves)
    }

    /// Feedback on packets came. Says whether it told the result of a probe, which is worth to be thought about at once.
    ///
    /// # Errors
    /// [`InDrop::FeedbackShare`]: it tells of far more packets than left.
    pub(crate) fn feedback(&mut self, now: Instant, fci: &[u8]) -> Result<bool, InDrop> {
        let known = self.path.was_told_of_probe();
        if self.path.feedback(now, fci)? {
            self.outage_ended();
        }
        Ok(!known && self.path.was_told_of_probe())
    }

    /// The receiver says how it is.
    fn hear(&mut self, now: Instant) {
        if self.path.was_out(now) {
            self.outage_ended();
        }
    }

    fn outage_ended(&mut self) {
        self.patience.iter_mut().for_each(Patience::outage_ended);
        self.was_out = true;
    }

    /// If an outage has ended since the last call: a keyframe of which a part left meanwhile is torn. What waits of its slot is
    /// added to `cut`, and the slot stops when [`Brings::Stop`] comes.
    pub(crate) fn drop_torn(&mut self, cut: &mut Vec<Waiting>) {
        if std::mem::take(&mut self.was_out) {
            self.queue.drop_torn(cut);
        }
    }

    /// The receiver said what they estimate the path to carry, in bits a second.
    pub(crate) fn receiver_told(&mut self, now: Instant, bps: u64) {
        self.hear(now);
        self.path.receiver_told(now, bps);
    }

    /// A report tells of so many packets, of so many bytes each, that `lost`/256 of them were lost. If enough was told to say so,
    /// returns how often sound should be repeated.
    pub(crate) fn reported(
        &mut self,
        now: Instant,
        (packets, bytes): (u32, u32),
        lost: u8,
    ) -> Option<usize> {
        self.hear(now);
        let since_moved = self.moved.map(|at| now.saturating_duration_since(at));
        if since_moved.is_some_and(|since| since < MOVED_TOLD) {
            return None;
        }
        self.path.lost((packets, bytes), lost);
        self.losses.report(packets, lost)
    }

    /// The receiver's address changed. What left for the old one was lost there, which says nothing of the path to the new one.
    pub(crate) fn moved(&mut self, now: Instant) {
        self.moved = Some(now);
    }

    /// A report tells a round-trip time, and the share of packets lost, in 1/256.
    pub(crate) fn reported_rtt(&mut self, now: Instant, rtt_ms: f64, lost: u8) {
        self.path.reported(now, rtt_ms, lost);
    }

    /// How many earlier packets a packet of sound holds from now on, if it held so many `copies` until now. If many packets are
    /// lost, of sound or of pictures, it holds more. On a path that sound takes much of, it holds none: there too much is sent.
    pub(crate) fn copies(&self, now: Instant, copies: usize) -> usize {
        self.losses.copies().min(self.path.most_copies(now, copies))
    }

    /// What the path is taken to carry, in bits a second; None if nothing is known of it.
    pub(crate) fn estimate_bps(&self, now: Instant) -> Option<u64> {
        self.path.estimate_bps(now)
    }

    /// Whether it carries less than what pictures need with ease: a keyframe is dear there.
    pub(crate) fn is_limited(&self, now: Instant) -> bool {
        self.room(now).is_some_and(|room| room < 2 * self.takes.all)
    }

    /// What the path carries beside sound.
    fn room(&self, now: Instant) -> Option<u64> {
        let sound = self.path.sound_bps(now);
        self.path.estimate_bps(now).map(|bps| bps.saturating_sub(sound))
    }

    /// Something else is to flow: it is thought about at once.
    pub(crate) fn reconsider(&mut self) {
        self.path.reconsider();
    }

    /// Whether it is time to think about the path and its pictures.
    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.path.is_due(now)
    }

    /// Makes a new estimate, by feedback on packets if `on`.
    pub(crate) fn estimate(&mut self, now: Instant, on: bool) {
        self.path.estimate(now, on, self.start_bps);
        let Takes { flow: bps, all: all_bps, .. } = self.takes;
        let (waits, stands) = (self.queue.is_waiting(), self.path.has_queue(now));
        let flow = Flow { bps, all_bps, waits, stands };
        self.path.look_at_reports(now, self.pace.again(), flow);
        if let Some(downlink) = self.path.downlink() {
            downlink.tick(now);
        }
    }

    /// Chooses how much flows of each picture, what comes first in order first, and how fast. Returns what the receiver is to
    /// be told of the path in kbit/s, if that is news.
    pub(crate) fn allocate(
        &mut self,
        now: Instant,
        pictures: &mut [Picture],
        changes: &mut Vec<Change>,
    ) -> Option<Option<u32>> {
        let room = self.room(now);
        let keeps_up = self.waits_less_than(KEEPS_UP, room);
        let (path, patience) = (&mut self.path, &mut self.patience);
        Allocation { now, path, keeps_up, patience, changes }.make(pictures, room);
        self.takes = Takes::of(pictures);
        self.plan(now)
    }

    /// How packets leave, and what is probed, by what flows and what would if the path carried it.
    fn plan(&mut self, now: Instant) -> Option<Option<u32>> {
        let sound = self.path.sound_bps(now);
        let (flow, all) = (self.takes.flow + sound, self.takes.all + sound);
        let Some(estimate) = self.path.estimate_bps(now) else {
            self.path.leave(now);
            self.pace.limit(None);
            self.resends.limit(flow, None);
            return self.path.news(now, false);
        };
        let limited = estimate < 2 * all;
        let room = estimate.saturating_sub(sound).max(estimate / 4);
        let limit = Limit::of(room, !limited);
        self.pace.limit(if self.path.has_queue(now) {
            limit.map(Limit::without_haste)
        } else {
            limit
        });
        self.resends.limit(flow, Some(estimate));
        let (wanted, urgent) = self.wanted(now, flow, all, estimate);
        if let Some(downlink) = self.path.downlink() {
            downlink.want(now, wanted, urgent);
        }
        // What waits long needs an estimate, however little flows in the mean.
        self.path.look(now, !limited && self.waits_less_than(QUEUE_LONG, Some(estimate)));
        self.path.news(now, limited)
    }

    /// Whether what waits leaves within a time at so many bits a second.
    fn waits_less_than(&self, time: Duration, bps: Option<u64>) -> bool {
        let (queued, _) = self.queue.bytes();
        bps.is_none_or(|bps| queued as f64 * 8.0 <= bps as f64 * time.as_secs_f64())
    }

    /// What the path is to carry, in bits a second, and whether soon: probes look for it. 0 if what flows is enough.
    fn wanted(&self, now: Instant, flow: u64, all: u64, estimate: u64) -> (u64, bool) {
        let long = !self.waits_less_than(QUEUE_LONG, Some(estimate));
        let times = |bps: u64, times: f64| (bps as f64 * times) as u64;
        let untried = self.path.is_untried();
        let headroom = match self.takes.rest {
            // As far as to know whether it is ample, once.
            _ if untried => AMPLE_HEADROOM,
            true => PROBE_STARVED_HEADROOM,
            false => PROBE_HEADROOM,
        };
        // On an ample path all rises by itself.
        let lacks = estimate < 2 * all && (flow < all || untried);
        let wanted = if lacks { times(all, headroom) } else { 0 };
        // The first probe tells of any path what it carries: a keyframe may come.
        let first = self.path.is_unprobed() && (long || all > 0);
        let more = match first {
            true => FIRST_WANTED * estimate,
            false if long => 3 * estimate,
            false => 0,
        };
        let urgent = first || long || self.takes.rest || self.path.is_young(now);
        (wanted.max(more), urgent)
    }
}
