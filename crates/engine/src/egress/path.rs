//! The path to one participant: what it carries, and what leaves on it.
//!
//! While pictures go to a participant who gives transport-wide feedback, all their packets are numbered, and [`bwe`]
//! estimates what the path carries. It begins with a configured estimate and looks for more by probes. Layers rise in steps
//! all the same, each of which may double what flows: others may share the path, and each of them takes it for their own.
//! Of those who give no such feedback, their own estimate counts if they tell one ([`Remb`]), or else what they lose
//! ([`Reports`]): there are no probes then. To those who come by TCP nothing is estimated.
//!
//! Feedback costs the server more than the packets that it tells of. A path that carries far more than could flow is
//! therefore only looked at now and then, until something hints at trouble: a request for a packet, a loss that reports
//! tell, a round trip that takes longer.

use super::rate::{Counted, Rate};
use super::remb::Remb;
use super::reports::{Flow, Reports};
use crate::drops::InDrop;
use crate::limits::{
    DIP, DIP_DEEP, DOWNLINK_LEAST_BPS, DOWNLINK_MOST_BPS, FALL_SETTLES, LAYER_INTERVAL,
    PLACE_INTERVAL, REPORTS_QUEUE_MS, RISE_INTERVAL, RISE_SETTLES, RISE_TRIED, TRIAL_LOST,
    TRIED_TIMES,
};
use bwe::{Downlink, IP_UDP_BYTES, Kind, Limits};
use rtp::red::MOST_COPIES;
use rtp::twcc::Feedback;
use std::time::{Duration, Instant};

/// A path is looked at without a break for so long at first…
const LOOK_FIRST: Duration = Duration::from_secs(4);
/// Who says how it is at least once in so long…
const OFTEN: Duration = Duration::from_millis(1500);
/// …and then says nothing for so long, was not reached.
const SILENT: Duration = Duration::from_secs(3);
/// Without feedback for so long after the first packet, none is expected.
const MUTE: Duration = Duration::from_secs(3);
/// For so long after it was looked at first it is young.
const YOUNG: Duration = Duration::from_secs(4);
/// …and after a hint at trouble. A path that is ample is looked at for…
const LOOK_HINTED: Duration = Duration::from_secs(10);
/// …so long…
const LOOK: Duration = Duration::from_millis(120);
/// …and then left alone for so long,…
const LOOK_INTERVAL: Duration = Duration::from_secs(6);
/// …when it is thought about each…
const LOOK_AWAY: Duration = Duration::from_millis(400);
/// A loss of more than this, in 1/256, is a hint.
const LOST_HINT: u8 = 5;
/// A participant is told of the estimate once in so long at most.
const TOLD_INTERVAL: Duration = Duration::from_secs(1);

/// The path to one participant.
#[derive(Default)]
pub(super) struct Path {
    downlink: Option<Box<Downlink>>,
    /// What the receiver estimates, if they give no feedback on packets.
    remb: Option<Remb>,
    /// What their reports tell, if they say nothing else.
    reports: Reports,
    /// Packets are numbered.
    numbers: bool,
    /// When the first one left that was, and whether feedback ever came.
    began: Option<Instant>,
    heard: bool,
    /// What sound takes.
    sound: Rate,
    /// Since when more flows than the path is estimated to carry.
    over: Option<Instant>,
    /// When a picture got more on a limited path, and the estimate then.
    rose: Option<(Instant, u64)>,
    /// When pictures fell last.
    fell: Option<Instant>,
    /// The slot whose picture rests although it comes before some that flow, and since when.
    passed_over: Option<(usize, Instant)>,
    /// How much may flow in the present step on a path that is taken to carry it with ease, and when that step began.
    step: Option<(Instant, u64)>,
    look: Option<Look>,
    /// When the path is thought about next.
    due: Option<Instant>,
    /// What the participant was told of the estimate, and when.
    told: Option<(Instant, Option<u32>)>,
    /// The shortest round-trip time that reports told, in ms.
    least_rtt_ms: Option<f64>,
    /// The latest report told a much longer one.
    queued: bool,
    /// When the receiver said last how it is, and whether that was soon after they did before.
    told_at: Option<(Instant, bool)>,
}

/// When a path is looked at.
#[derive(Debug, Clone, Copy)]
struct Look {
    began: Instant,
    /// It is looked at without a break until then.
    constant_until: Instant,
    /// Whether it is looked at now, and when that changes.
    on: bool,
    until: Instant,
}

impl Path {
    /// Estimates the path by feedback on packets while `on`, at first as `start_bps`.
    pub(super) fn estimate(&mut self, now: Instant, on: bool, start_bps: u64) {
        let on = on && !self.is_mute(now);
        self.numbers = on;
        self.remb = self.remb.filter(|remb| !on && !remb.is_old(now));
        if let Some(since) = self.remb.as_mut().and_then(|remb| remb.judge(now)) {
            self.over = Some(since);
        }
        if on && self.downlink.is_none() {
            let limits =
                Limits { start_bps, least_bps: DOWNLINK_LEAST_BPS, most_bps: DOWNLINK_MOST_BPS };
            self.downlink = Some(Box::new(Downlink::new(now, limits)));
        }
    }

    /// A report tells of so many packets, of so many bytes each, that `lost`/256 of them were lost.
    pub(super) fn lost(&mut self, told: (u32, u32), lost: u8) {
        if !self.numbers && self.remb.is_none() {
            self.reports.told(told, lost);
            self.due = None;
        }
    }

    /// The receiver lacks a keyframe of a picture that flows.
    pub(super) fn lacks_keyframe(&mut self) {
        self.reports.lacks_keyframe();
    }

    /// What reports told counts, if nothing better is known. So far `again` bytes were sent again.
    pub(super) fn look_at_reports(&mut self, now: Instant, again: u64, flow: Flow) {
        if self.numbers || self.remb.is_some() {
            self.reports = Reports::default();
        } else {
            self.reports.look(now, again, flow);
        }
    }

    /// Whether it has not been estimated for long: it is to be known soon what it carries.
    pub(super) fn is_young(&self, now: Instant) -> bool {
        self.look.is_none_or(|look| now < look.began + YOUNG)
    }

    /// Whether it was never looked at.
    pub(super) fn is_unknown(&self) -> bool {
        self.look.is_none() && self.remb.is_none()
    }

    /// Whether it was never probed.
    pub(super) fn is_unprobed(&self) -> bool {
        self.downlink.as_ref().is_some_and(|downlink| !downlink.was_probed())
    }

    /// Whether a probe left whose result is not known.
    pub(super) fn awaits_probe(&self) -> bool {
        let downlink = self.downlink.as_ref().filter(|_| self.numbers);
        downlink.is_some_and(|downlink| downlink.awaits_probe())
    }

    /// Whether feedback has just told of a probe.
    pub(super) fn was_told_of_probe(&self) -> bool {
        let downlink = self.downlink.as_ref().filter(|_| self.numbers);
        downlink.is_some_and(|downlink| downlink.was_told_of_probe())
    }

    /// Whether feedback was agreed on, packets left for a while, and none came. Then the path is estimated as if it had not been.
    fn is_mute(&self, now: Instant) -> bool {
        !self.heard && self.began.is_some_and(|at| now.saturating_duration_since(at) >= MUTE)
    }

    /// Whether it was never probed in vain how much more than what flows the path carries.
    pub(super) fn is_untried(&self) -> bool {
        self.downlink.as_ref().is_some_and(|downlink| !downlink.was_probed_in_vain())
    }

    /// Whether it is time to think about the path: often if it is looked at.
    #[inline]
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due.is_none_or(|due| now >= due)
    }

    /// Whether it is ample, and not looked at now.
    #[inline]
    pub(super) fn is_left_alone(&self) -> bool {
        self.look.is_some_and(|look| !look.on)
    }

    /// Something else is to flow: it is thought about at once.
    pub(super) fn reconsider(&mut self) {
        self.due = None;
    }

    /// There is nothing to estimate: it is thought about again in a while.
    pub(super) fn leave(&mut self, now: Instant) {
        self.due = Some(now + LOOK_AWAY);
    }

    /// Looks at the path, or leaves it alone for a while if it is `ample`.
    pub(super) fn look(&mut self, now: Instant, ample: bool) {
        let constant_until = now + LOOK_FIRST;
        let first = Look { began: now, constant_until, on: true, until: now };
        let mut look = self.look.unwrap_or(first);
        if !ample || now < look.constant_until {
            (look.on, look.until) = (true, now + LOOK);
        } else if now >= look.until {
            look.on = !look.on;
            look.until = now + if look.on { LOOK } else { LOOK_INTERVAL };
        }
        let pending = self.downlink.as_ref().is_some_and(|downlink| downlink.is_pending());
        let away = (!look.on && !pending).then(|| look.until.min(now + LOOK_AWAY));
        self.due = away;
        self.look = Some(look);
    }

    /// Something hints at trouble on the path.
    pub(super) fn hint(&mut self, now: Instant) {
        if let Some(look) = &mut self.look {
            look.constant_until = now + LOOK_HINTED;
            self.due = None;
        }
    }

    /// A report of the participant tells a round-trip time and the share of packets lost, in 1/256.
    pub(super) fn reported(&mut self, now: Instant, rtt_ms: f64, lost: u8) {
        let least = self.least_rtt_ms.map_or(rtt_ms, |least| least.min(rtt_ms));
        self.least_rtt_ms = Some(least);
        self.queued = rtt_ms > least + REPORTS_QUEUE_MS;
        if let Some(remb) = self.remb.as_mut().filter(|_| lost > TRIAL_LOST) {
            remb.lost();
            self.due = None;
        }
        if lost > LOST_HINT || rtt_ms > 1.5 * least + 50.0 {
            self.hint(now);
        }
    }

    /// The receiver says how it is, by a report or an estimate. Says whether the path was out until now: who spoke each second
    /// was silent, although sound left.
    pub(super) fn was_out(&mut self, now: Instant) -> bool {
        let Some((before, often)) = self.told_at else {
            self.told_at = Some((now, false));
            return false;
        };
        let gap = now.saturating_duration_since(before);
        if !gap.is_zero() {
            self.told_at = Some((now, gap <= OFTEN));
        }
        often && gap >= SILENT && self.sound.bps(now) > 0
    }

    /// The shortest round-trip time that reports told, in ms.
    pub(super) fn least_rtt_ms(&self) -> Option<f64> {
        self.least_rtt_ms
    }

    /// Whether packets stand in a queue of the path. Feedback on packets tells it. Without that, the latest report does.
    pub(super) fn has_queue(&self, now: Instant) -> bool {
        match self.downlink.as_ref().filter(|_| self.numbers) {
            Some(downlink) => downlink.has_queue(now),
            None => self.queued,
        }
    }

    /// The transport-wide number of the next packet, if packets are numbered.
    #[inline]
    pub(super) fn number(&self) -> Option<u16> {
        if !self.look.is_some_and(|look| look.on) {
            return None;
        }
        Some(self.downlink.as_ref().filter(|_| self.numbers)?.next_number())
    }

    /// A packet left, with that number if it is `numbered`.
    #[inline]
    pub(super) fn sent(&mut self, now: Instant, bytes: usize, numbered: bool, video: bool) {
        if (self.numbers || self.remb.is_some() || self.reports.bps().is_some()) && !video {
            self.sound.count(now, Counted::Other(bytes + IP_UDP_BYTES));
        }
        if !numbered {
            return;
        }
        self.began.get_or_insert(now);
        if let Some(downlink) = &mut self.downlink {
            downlink.sent(now, bytes, if video { Kind::Video } else { Kind::Audio });
        }
    }

    /// Feedback came. What cannot be read changes nothing. Says whether the path was out until now.
    ///
    /// # Errors
    /// [`InDrop::FeedbackShare`]: it tells of far more packets than left.
    pub(super) fn feedback(&mut self, now: Instant, fci: &[u8]) -> Result<bool, InDrop> {
        let (Some(downlink), Ok(feedback)) = (&mut self.downlink, Feedback::parse(fci)) else {
            return Ok(false);
        };
        self.heard = true;
        downlink.feedback(now, &feedback).map_err(|_| InDrop::FeedbackShare)
    }

    /// The receiver said what they estimate the path to carry.
    pub(super) fn receiver_told(&mut self, now: Instant, bps: u64) {
        self.remb = Some(Remb::told(self.remb, now, bps));
        self.due = None;
    }

    /// What is estimated by feedback on packets, if anything is.
    #[inline]
    pub(super) fn downlink(&mut self) -> Option<&mut Downlink> {
        self.downlink.as_deref_mut().filter(|_| self.numbers)
    }

    /// Whether `flow` is too much for a path with room for `room`, both in bits a second: by far, or for a while. Others who
    /// share the path, and try what it carries, make the estimate dip.
    pub(super) fn is_over(&mut self, now: Instant, flow: u64, room: u64) -> bool {
        if flow <= room {
            self.over = None;
            return false;
        }
        let since = *self.over.get_or_insert(now);
        let span = now.saturating_duration_since(since);
        // Who got more last gives it back first, once.
        let tried = |at: Instant| {
            now.saturating_duration_since(at) < RISE_TRIED && self.fell.is_none_or(|fell| fell < at)
        };
        let times = if self.rose.is_some_and(|(at, _)| tried(at)) { TRIED_TIMES } else { 1 };
        let span = times * span;
        flow > 2 * room || (5 * flow > 6 * room && span >= DIP_DEEP) || span >= DIP
    }

    /// Whether more has flowed than the path carries for so long.
    pub(super) fn is_over_for(&self, now: Instant, span: Duration) -> bool {
        self.over.is_some_and(|since| now.saturating_duration_since(since) >= span)
    }

    /// Whether pictures may get more on a limited path, so that they take `need`, in bits a second: not so soon after another
    /// one did, nor while the estimate dips.
    pub(super) fn may_rise(&mut self, now: Instant, need: u64, interval: Duration) -> bool {
        let lately = |at: Instant| now.saturating_duration_since(at) < interval;
        let Some(estimate) = self.estimated_bps() else { return false };
        let fits = estimate >= need + self.sound_bps(now);
        let may = fits && !self.rose.is_some_and(|(at, _)| lately(at));
        if may {
            // Not what it was taken for since the last rise: one after the other would hide that it fell.
            self.rose = Some((now, estimate));
        }
        may
    }

    /// Whether a picture may be tried that the receiver's estimate does not tell of, so that pictures take `need` in place of
    /// `flow`, both in bits a second.
    pub(super) fn may_try(&mut self, now: Instant, flow: u64, need: u64) -> bool {
        let sound = self.sound_bps(now);
        let lately = |at: Instant| now.saturating_duration_since(at) < LAYER_INTERVAL;
        let waits = self.rose.is_some_and(|(at, _)| lately(at));
        let may = |remb: &&mut Remb| !waits && remb.may_try(flow, need, sound);
        let Some(remb) = self.remb.as_mut().filter(may) else { return false };
        self.rose = Some((now, remb.bps()));
        remb.begin(now, need + sound);
        true
    }

    /// Whether `need` may flow in place of `flow`, both in bits a second, on a path that is taken to carry it with ease: what
    /// flowed before, or twice as much as flowed when a step began. One picture may always rise in a step.
    pub(super) fn may_step(&mut self, now: Instant, flow: u64, need: u64) -> bool {
        let (began, most) = self.step.unzip();
        let lately = |at: Instant| now.saturating_duration_since(at) < RISE_INTERVAL;
        let most = most.unwrap_or(0);
        if need > most && !began.is_some_and(lately) {
            self.step = Some((now, need.max(2 * flow)));
            return true;
        }
        need <= most
    }

    /// Whether pictures may fall: not while the queue that made them fall last still goes down, at which the estimate dips.
    pub(super) fn may_fall(&self, now: Instant) -> bool {
        self.fell.is_none_or(|at| now.saturating_duration_since(at) >= FALL_SETTLES)
    }

    /// Pictures fell.
    pub(super) fn fell(&mut self, now: Instant) {
        (self.fell, self.step) = (Some(now), None);
    }

    /// Whether it is time for the picture of this slot to flow: it rests, and has for a while come before some that flow.
    pub(super) fn is_passed_over(&mut self, now: Instant, slot: Option<usize>) -> bool {
        let known = self.passed_over.filter(|(known, _)| Some(*known) == slot);
        self.passed_over = slot.map(|slot| (slot, known.map_or(now, |(_, since)| since)));
        let waited = |(_, since)| now.saturating_duration_since(since) >= PLACE_INTERVAL;
        self.passed_over.is_some_and(waited)
    }

    /// What sound takes, in bits a second.
    pub(super) fn sound_bps(&self, now: Instant) -> u64 {
        self.sound.bps(now)
    }

    /// How often packets of sound may be repeated, if they hold so many `copies` now: all sound together takes at most half of
    /// what the path carries.
    pub(super) fn most_copies(&self, now: Instant, copies: usize) -> usize {
        let Some(estimate) = self.estimate_bps(now) else { return MOST_COPIES };
        let once = self.sound_bps(now) / (copies as u64 + 1);
        (0..=MOST_COPIES).rev().find(|n| 2 * once * (*n as u64 + 1) <= estimate).unwrap_or(0)
    }

    /// What the path is taken to carry, in bits a second; None if nothing is known of it. That is more than it is estimated
    /// to carry while a picture is tried.
    pub(super) fn estimate_bps(&self, now: Instant) -> Option<u64> {
        let tried = self.remb.map_or(0, |remb| remb.tried_bps());
        Some(self.settled_bps(now)?.max(tried))
    }

    /// What the path is estimated to carry, in bits a second. Right after a picture got more, that is what it was before: its
    /// keyframe makes a short queue, at which the estimate dips.
    fn settled_bps(&self, now: Instant) -> Option<u64> {
        let estimate = self.estimated_bps()?;
        let lately = |at: Instant| now.saturating_duration_since(at) < RISE_SETTLES;
        let before = self.rose.filter(|(at, _)| lately(*at)).map_or(0, |(_, before)| before);
        Some(estimate.max(before))
    }

    /// The bare estimate.
    fn estimated_bps(&self) -> Option<u64> {
        let downlink = self.downlink.as_ref().filter(|_| self.numbers);
        let measured = downlink.map(|downlink| downlink.estimate_bps());
        let told = measured.or_else(|| self.remb.map(|remb| remb.bps()));
        told.or_else(|| self.reports.bps())
    }

    /// What the participant is to be told of the estimate, in kbit/s, if that is news. Only that of a `limited` path means
    /// anything.
    pub(super) fn news(&mut self, now: Instant, limited: bool) -> Option<Option<u32>> {
        let kbps = self.settled_bps(now).filter(|_| limited).map(|bps| (bps / 1000) as u32);
        let (at, known) = self.told.map_or((None, None), |(at, kbps)| (Some(at), kbps));
        let lately = at.is_some_and(|at| now.saturating_duration_since(at) < TOLD_INTERVAL);
        let changed = match (known, kbps) {
            (Some(known), Some(kbps)) => 10 * known.abs_diff(kbps) > known,
            (known, kbps) => known != kbps,
        };
        if !changed || lately {
            return None;
        }
        self.told = Some((now, kbps));
        Some(kbps)
    }

    /// When the next packets of a probe are due.
    pub(super) fn probe_due(&self) -> Option<Instant> {
        self.downlink.as_ref().filter(|_| self.numbers)?.probe_due()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that is estimated to carry so many bits a second.
    fn estimated(now: Instant, start_bps: u64) -> Path {
        let limits = Limits { start_bps, least_bps: 1000, most_bps: DOWNLINK_MOST_BPS };
        let downlink = Some(Box::new(Downlink::new(now, limits)));
        Path { downlink, numbers: true, ..Path::default() }
    }

    #[test]
    fn an_estimate_that_fell_counts_soon_however_many_pictures_rise() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut path = estimated(start, 9_000_000);
        assert!(
            path.may_rise(at(0), 1000, RISE_INTERVAL)
                && !path.may_rise(at(400), 1000, RISE_INTERVAL)
        );
        path.downlink = estimated(start, 100_000).downlink;
        assert_eq!(path.estimate_bps(at(490)), Some(9_000_000), "it may be a dip");
        assert!(!path.may_rise(at(500), 100_001, RISE_INTERVAL), "none rises in a dip");
        assert!(path.may_rise(at(500), 100_000, RISE_INTERVAL));
        assert_eq!(path.estimate_bps(at(500)), Some(100_000), "it fell before the next one rose");
    }

    #[test]
    fn what_flows_on_an_untried_path_doubles_step_by_step_and_comes_back_at_once() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut path = Path::default();
        assert!(path.may_step(at(0), 300, 500), "to 600");
        assert!(path.may_step(at(0), 500, 600) && !path.may_step(at(0), 600, 800));
        assert!(!path.may_step(at(490), 600, 800));
        assert!(path.may_step(at(500), 600, 800) && path.may_step(at(510), 800, 1200), "to 1200");
        assert!(!path.may_step(at(990), 1200, 9000));
        assert!(path.may_step(at(1000), 1200, 9000), "one picture may, however large it is");
        assert!(path.may_step(at(1010), 10, 9000), "it carried that before");
        path.fell(at(1100));
        assert!(path.may_step(at(1100), 10, 30) && !path.may_step(at(1100), 30, 9000));
    }

    #[test]
    fn who_got_more_last_gives_it_back_first_and_once() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let over = |rose: Option<u64>, fell: Option<u64>| {
            let rose = rose.map(|ms| (at(ms), 9_000_000));
            let mut path = Path { rose, fell: fell.map(at), ..Path::default() };
            assert!(!path.is_over(at(9000), 1100, 1000), "it may be a dip");
            path.is_over(at(9600), 1100, 1000)
        };
        assert!(over(Some(7000), None) && over(Some(7000), Some(6900)));
        assert!(!over(None, None) && !over(Some(3000), None), "long ago");
        assert!(!over(Some(7000), Some(8000)), "it was given back");
    }

    #[test]
    fn sound_is_repeated_as_often_as_half_of_the_path_carries_it() {
        let start = Instant::now();
        let now = start + Duration::from_secs(3);
        let copies = |sound_bps: u64, estimate_bps: u64, copies: usize| {
            let sound = Rate::of(now, sound_bps as u32);
            Path { sound, ..estimated(start, estimate_bps) }.most_copies(now, copies)
        };
        assert_eq!(copies(50_000, 300_000, 0), 2);
        assert_eq!(copies(150_000, 300_000, 2), 2, "what is repeated already counts once");
        assert_eq!(copies(50_000, 299_000, 0), 1);
        assert_eq!(copies(50_000, 199_000, 0), 0);
        assert_eq!(copies(1_500_000, 1_000_000, 0), 0, "sound alone is too much");
        assert_eq!(Path::default().most_copies(now, 0), 2, "nothing is known");
    }

    #[test]
    fn what_a_receiver_estimates_is_forgotten_and_counts_only_where_nothing_is_measured() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut path = Path::default();
        path.receiver_told(at(0), 300_000);
        path.estimate(at(9000), false, 1000);
        assert_eq!(path.estimate_bps(at(9000)), Some(300_000));
        path.estimate(at(10_000), false, 1000);
        assert_eq!(path.estimate_bps(at(10_000)), None, "none came for a while");
        let mut path = estimated(start, 9_000_000);
        path.receiver_told(at(0), 300_000);
        assert_eq!(path.estimate_bps(at(0)), Some(9_000_000));
        path.estimate(at(0), true, 1000);
        path.estimate(at(0), false, 1000);
        assert_eq!(path.estimate_bps(at(0)), None, "there is better feedback");
    }

    #[test]
    fn what_was_tried_in_vain_has_been_too_much_since_it_was() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut path = Path::default();
        path.receiver_told(at(0), 300_000);
        assert!(path.may_try(at(0), 200_000, 400_000));
        assert!(!path.may_try(at(0), 200_000, 400_000), "one after the other");
        assert!(!path.is_over(at(0), 400_000, path.estimate_bps(at(0)).unwrap()));
        path.reported(at(1600), 50.0, 80);
        path.estimate(at(1600), false, 1000);
        assert_eq!(path.estimate_bps(at(1600)), Some(300_000));
        assert!(path.is_over(at(1600), 400_000, 300_000));
        assert!(path.is_over_for(at(1600), Duration::from_millis(1500)), "pictures rest at once");
    }

    #[test]
    fn what_was_told_of_a_path_is_taken_back_when_nothing_is_known_of_it_any_more() {
        let now = Instant::now();
        let after = |ms| now + Duration::from_millis(ms);
        let mut path = Path { told: Some((now, Some(900))), ..Path::default() };
        assert_eq!(path.news(after(500), false), None, "not so soon");
        assert_eq!(path.news(after(1000), false), Some(None));
        assert_eq!(path.news(after(9000), false), None, "once");
    }

    #[test]
    fn who_spoke_each_second_and_is_silent_while_sound_leaves_was_not_reached() {
        let start = Instant::now();
        let said = |often_ms: u64, sound: bool| {
            let (mut path, mut out) = (Path::default(), Vec::new());
            let end = 5 * often_ms;
            for ms in (0..end + 6000).step_by(20) {
                let now = start + Duration::from_millis(ms);
                if sound {
                    path.sound.count(now, Counted::Other(100));
                }
                let says = ms % often_ms == 0 && !(end..end + 4000).contains(&ms);
                if says && path.was_out(now) {
                    out.push(ms - end);
                }
            }
            out
        };
        assert_eq!(said(1000, true), [4000]);
        assert_eq!(said(1000, false), [0; 0], "nothing left that they could tell of");
        assert_eq!(said(2500, true), [0; 0], "they speak seldom");
    }
}
