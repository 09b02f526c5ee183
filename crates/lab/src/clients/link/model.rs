//! What happens to each packet, by seed: the model knows neither sockets nor clocks.

use crate::base::SplitMix;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Most streams that the jitter made is counted of, each for itself.
const MAX_FLOWS: usize = 4096;

/// Which packets are lost.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each packet alone, with this probability (0 to 1).
    Random(f64),
    /// In runs, by two states of which one loses everything (Gilbert 1960).
    Bursts {
        /// Share of packets lost in the long run (0 to below 1).
        share: f64,
        /// Mean length of a run, in packets (at least 1).
        mean_packets: f64,
    },
}

/// A direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LinkSpec {
    /// What every packet waits.
    pub delay: Duration,
    /// Interarrival jitter as RFC 3550 reads it: mean |difference| of two packets' delays. Each
    /// packet waits 0 to three times as long besides, uniformly and for itself, so that packets
    /// overtake each other; the mean delay grows by half of that.
    pub jitter: Duration,
    /// Which packets are lost.
    pub loss: Loss,
    /// Bits a second that pass, in kbit/s; none: all.
    pub rate_kbps: Option<u32>,
    /// How long a packet may wait for its turn at that rate; longer ones are dropped. 0: 200 ms.
    pub queue: Duration,
}

impl LinkSpec {
    /// Whether nothing passes.
    pub fn is_cut(&self) -> bool {
        match self.loss {
            Loss::None => false,
            Loss::Random(share) | Loss::Bursts { share, .. } => share >= 1.0,
        }
    }
}

/// The queue where none is given.
const DEFAULT_QUEUE: Duration = Duration::from_millis(200);

/// What waits for its turn at a limited rate: before one path alone, or before several that share their rate.
#[derive(Debug, Clone, Copy, Default)]
pub struct Queue {
    /// When the last packet in it has left.
    busy_until: Option<Instant>,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrives then.
    Arrives(Instant),
    /// It is lost on the way.
    Lost,
    /// It found the queue full.
    QueueFull,
}

/// What a direction really did.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counts {
    /// Packets that came to it.
    pub offered: u64,
    /// Packets lost on the way.
    pub lost: u64,
    /// Packets dropped for a full queue.
    pub queue_full: u64,
    /// Bytes of the others.
    pub bytes: u64,
    /// Sum of what they were delayed, in µs.
    pub delay_us: u64,
    /// Sum and number of |differences| of the delays of two packets of one stream that follow each
    /// other, in µs.
    pub differences_us: (u64, u64),
}

impl Counts {
    /// Packets that arrive.
    pub fn delivered(&self) -> u64 {
        self.offered - self.lost - self.queue_full
    }

    /// Share that does not arrive, in percent; none where nothing came.
    pub fn loss_pct(&self) -> Option<f64> {
        let gone = self.lost + self.queue_full;
        (self.offered > 0).then(|| 100.0 * gone as f64 / self.offered as f64)
    }

    /// Mean delay, in ms.
    pub fn delay_ms(&self) -> Option<f64> {
        let delivered = self.delivered();
        (delivered > 0).then(|| self.delay_us as f64 / delivered as f64 / 1000.0)
    }

    /// The jitter that was made, in ms.
    pub fn jitter_ms(&self) -> Option<f64> {
        let (sum, count) = self.differences_us;
        (count > 0).then(|| sum as f64 / count as f64 / 1000.0)
    }

    /// What came since an earlier count.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            offered: self.offered - earlier.offered,
            lost: self.lost - earlier.lost,
            queue_full: self.queue_full - earlier.queue_full,
            bytes: self.bytes - earlier.bytes,
            delay_us: self.delay_us - earlier.delay_us,
            differences_us: (
                self.differences_us.0 - earlier.differences_us.0,
                self.differences_us.1 - earlier.differences_us.1,
            ),
        }
    }

    /// Both together.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            offered: self.offered + other.offered,
            lost: self.lost + other.lost,
            queue_full: self.queue_full + other.queue_full,
            bytes: self.bytes + other.bytes,
            delay_us: self.delay_us + other.delay_us,
            differences_us: (
                self.differences_us.0 + other.differences_us.0,
                self.differences_us.1 + other.differences_us.1,
            ),
        }
    }
}

/// One direction of a link at work.
#[derive(Debug, Clone)]
pub struct Path {
    spec: LinkSpec,
    random: SplitMix,
    /// Whether a run of losses goes on.
    losing: bool,
    /// Its own, where it shares none.
    queue: Queue,
    counts: Counts,
    media: Counts,
    /// Last delay of each stream.
    last: BTreeMap<u32, Duration>,
}

impl Path {
    /// A direction that behaves so; everything random comes from `seed`.
    pub fn new(spec: LinkSpec, seed: u64) -> Self {
        Self {
            spec,
            random: SplitMix(seed),
            losing: false,
            queue: Queue::default(),
            counts: Counts::default(),
            media: Counts::default(),
            last: BTreeMap::new(),
        }
    }

    /// Behaves so from now on; what is under way keeps its time.
    pub fn set(&mut self, spec: LinkSpec) {
        self.spec = spec;
        self.losing = false;
    }

    /// What it did so far, with all packets and with those of media streams.
    pub fn counts(&self) -> (Counts, Counts) {
        (self.counts, self.media)
    }

    /// A packet of `len` bytes comes at `now`; of which media stream (its SSRC), if of one.
    pub fn offer(&mut self, now: Instant, len: usize, stream: Option<u32>) -> Fate {
        let mut own = self.queue;
        let fate = self.offer_by(&mut own, now, len, stream);
        self.queue = own;
        fate
    }

    /// The same for a path that shares its rate: the packet waits in a `queue` before several paths, all of one rate. Loss,
    /// delay and jitter are the path's own.
    pub fn offer_by(
        &mut self,
        queue: &mut Queue,
        now: Instant,
        len: usize,
        stream: Option<u32>,
    ) -> Fate {
        let fate = self.fate(queue, now, len);
        count(&mut self.counts, fate, now, len);
        if let Some(stream) = stream {
            count(&mut self.media, fate, now, len);
            if let Fate::Arrives(at) = fate {
                self.difference(at.saturating_duration_since(now), stream);
            }
        }
        fate
    }

    fn fate(&mut self, queue: &mut Queue, now: Instant, len: usize) -> Fate {
        if self.loses() {
            return Fate::Lost;
        }
        let Some(sent) = queue.pass(&self.spec, now, len) else { return Fate::QueueFull };
        let widest_us = 3 * self.spec.jitter.as_micros() as u64;
        let jitter = Duration::from_micros(self.random.below(widest_us + 1));
        Fate::Arrives(sent + self.spec.delay + jitter)
    }

    fn loses(&mut self) -> bool {
        match self.spec.loss {
            Loss::None => false,
            Loss::Random(share) => self.chance(share),
            Loss::Bursts { share, mean_packets } => {
                let ends = 1.0 / mean_packets.max(1.0);
                let begins = ends * share / (1.0 - share).max(1e-9);
                let turns = if self.losing { ends } else { begins };
                if self.chance(turns) {
                    self.losing = !self.losing;
                }
                self.losing
            }
        }
    }

    fn chance(&mut self, probability: f64) -> bool {
        const STEPS: u64 = 1 << 53;
        (self.random.below(STEPS) as f64) < probability * STEPS as f64
    }

    fn difference(&mut self, delay: Duration, stream: u32) {
        if let Some(last) = self.last.get_mut(&stream) {
            self.media.differences_us.0 += delay.abs_diff(*last).as_micros() as u64;
            self.media.differences_us.1 += 1;
            *last = delay;
        } else if self.last.len() < MAX_FLOWS {
            self.last.insert(stream, delay);
        }
    }
}

impl Queue {
    /// When a packet has left it, at the rate of `spec`; none where it would wait too long.
    fn pass(&mut self, spec: &LinkSpec, now: Instant, len: usize) -> Option<Instant> {
        let Some(rate_kbps) = spec.rate_kbps else { return Some(now) };
        let begin = self.busy_until.map_or(now, |until| until.max(now));
        let limit = if spec.queue.is_zero() { DEFAULT_QUEUE } else { spec.queue };
        if begin.saturating_duration_since(now) > limit {
            return None;
        }
        let bits = len as f64 * 8.0;
        let done = begin + Duration::from_secs_f64(bits / (f64::from(rate_kbps.max(1)) * 1000.0));
        self.busy_until = Some(done);
        Some(done)
    }
}

fn count(counts: &mut Counts, fate: Fate, now: Instant, len: usize) {
    counts.offered += 1;
    match fate {
        Fate::Arrives(at) => {
            counts.bytes += len as u64;
            counts.delay_us += at.saturating_duration_since(now).as_micros() as u64;
        }
        Fate::Lost => counts.lost += 1,
        Fate::QueueFull => counts.queue_full += 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Offers a packet of 200 bytes every 20 ms; what became of each.
    fn run(spec: LinkSpec, seed: u64, packets: u32) -> (Vec<Fate>, Path, Instant) {
        let (mut path, begin) = (Path::new(spec, seed), Instant::now());
        let fates = (0..packets).map(|n| path.offer(begin + 20 * MS * n, 200, Some(7))).collect();
        (fates, path, begin)
    }

    #[test]
    fn a_plain_link_delays_all_alike() {
        let (fates, path, begin) = run(LinkSpec { delay: 70 * MS, ..LinkSpec::default() }, 1, 50);
        for (n, fate) in fates.iter().enumerate() {
            assert_eq!(*fate, Fate::Arrives(begin + 20 * MS * n as u32 + 70 * MS));
        }
        let (counts, media) = path.counts();
        assert_eq!((counts.delivered(), counts.loss_pct()), (50, Some(0.0)));
        assert_eq!((counts.delay_ms(), media.jitter_ms()), (Some(70.0), Some(0.0)));
    }

    #[test]
    fn loss_is_as_great_and_as_bursty_as_asked_for() {
        for (loss, run_length) in [
            (Loss::Random(0.05), 1.0 / 0.95),
            (Loss::Bursts { share: 0.05, mean_packets: 4.0 }, 4.0),
            (Loss::Bursts { share: 0.3, mean_packets: 2.0 }, 2.0),
        ] {
            let (fates, path, _) = run(LinkSpec { loss, ..LinkSpec::default() }, 3, 200_000);
            let lost: Vec<bool> = fates.iter().map(|fate| *fate == Fate::Lost).collect();
            let count = lost.iter().filter(|lost| **lost).count();
            let share = match loss {
                Loss::Random(share) | Loss::Bursts { share, .. } => share,
                Loss::None => 0.0,
            };
            let got = count as f64 / 200_000.0;
            assert!((got - share).abs() < 0.004, "{loss:?}: {got}");
            assert_eq!(path.counts().0.lost, count as u64);
            let runs = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count();
            let mean = count as f64 / runs as f64;
            assert!((mean - run_length).abs() < 0.12, "{loss:?}: runs of {mean}");
        }
    }

    #[test]
    fn jitter_is_what_rfc_3550_reads() {
        for jitter_ms in [5u32, 20, 50] {
            let spec = LinkSpec { jitter: MS * jitter_ms, ..LinkSpec::default() };
            let (fates, path, begin) = run(spec, 9, 20_000);
            let made = path.counts().1.jitter_ms().unwrap();
            assert!((made / f64::from(jitter_ms) - 1.0).abs() < 0.03, "{made} of {jitter_ms}");
            // As a receiver reads it: in the order of arrival (RFC 3550 A.8).
            let mut stats = rtp::report::ReceiveStream::new(7, 48_000);
            let mut arrivals: Vec<(Instant, u32)> = fates
                .iter()
                .enumerate()
                .filter_map(|(n, fate)| match fate {
                    Fate::Arrives(at) => Some((*at, n as u32)),
                    _ => None,
                })
                .collect();
            arrivals.sort();
            let (mut sum, mut count) = (0.0, 0);
            for (at, n) in arrivals {
                stats.push(n as u16, n * 960, 100, at);
                if n % 50 == 49 && at > begin + MS * 2000 {
                    sum += stats.interval().jitter_ms.unwrap();
                    count += 1;
                }
            }
            let read = sum / f64::from(count);
            assert!((read / made - 1.0).abs() < 0.10, "{read} read of {made}");
        }
    }

    #[test]
    fn a_rate_delays_and_then_drops() {
        // 200 bytes every 20 ms are 80 kbit/s; half of it passes.
        let spec = LinkSpec { rate_kbps: Some(40), queue: 100 * MS, ..LinkSpec::default() };
        let (_, path, _) = run(spec, 1, 1000);
        let (counts, _) = path.counts();
        assert!((48.0..50.5).contains(&counts.loss_pct().unwrap()), "{counts:?}");
        assert_eq!(counts.lost, 0, "they found the queue full");
        assert!((90.0..145.0).contains(&counts.delay_ms().unwrap()), "{counts:?}");
        let spec = LinkSpec { rate_kbps: Some(160), ..LinkSpec::default() };
        assert_eq!(
            run(spec, 1, 100).1.counts().0.delay_ms(),
            Some(10.0),
            "200 bytes at 160 kbit/s"
        );
    }

    #[test]
    fn two_who_share_a_link_share_its_rate() {
        // 200 bytes every 20 ms are 80 kbit/s each: either alone has what it needs, both have half of it.
        let spec = LinkSpec { rate_kbps: Some(80), queue: 100 * MS, ..LinkSpec::default() };
        let run = |shared: bool, senders: usize| {
            let (mut queue, mut random) = (Queue::default(), SplitMix(3));
            let begin = Instant::now();
            let mut paths = [Path::new(spec, 1), Path::new(spec, 2)];
            for n in 0..1000 {
                // In step, whoever is always the first to come finds room, and the other one none.
                let first = random.below(2) as usize;
                for (turn, sender) in [(0, first), (1, 1 - first)] {
                    let at = begin + 20 * MS * n + 10 * MS * turn;
                    let path = &mut paths[sender];
                    match shared {
                        _ if sender >= senders => continue,
                        true => path.offer_by(&mut queue, at, 200, Some(7)),
                        false => path.offer(at, 200, Some(7)),
                    };
                }
            }
            paths.map(|path| path.counts().0)
        };
        for alone in run(false, 2).into_iter().chain([run(true, 1)[0]]) {
            assert_eq!((alone.offered, alone.loss_pct()), (1000, Some(0.0)));
        }
        let [one, two] = run(true, 2);
        assert_eq!((one.offered, two.offered), (1000, 1000));
        let delivered = one.delivered() + two.delivered();
        assert!((1000..1010).contains(&delivered), "{delivered} of 2000, with those in the queue");
        assert!(one.delivered() > 450 && two.delivered() > 450, "{one:?} {two:?}");
        for counts in [one, two] {
            assert!((90.0..125.0).contains(&counts.delay_ms().unwrap()), "{counts:?}");
            assert_eq!(counts.lost, 0, "they found the queue full");
        }
    }

    #[test]
    fn a_seed_repeats_and_a_change_counts_from_then_on() {
        let spec = LinkSpec { jitter: 5 * MS, loss: Loss::Random(0.2), ..LinkSpec::default() };
        let fates = |seed| {
            let (fates, _, begin) = run(spec, seed, 100);
            let since = |fate: &Fate| match fate {
                Fate::Arrives(at) => Some(*at - begin),
                _ => None,
            };
            fates.iter().map(since).collect::<Vec<_>>()
        };
        assert_eq!(fates(4), fates(4));
        assert_ne!(fates(4), fates(5));
        let (_, mut path, begin) = run(spec, 4, 100);
        let (before, _) = path.counts();
        path.set(LinkSpec { loss: Loss::Random(1.0), ..spec });
        assert_eq!(path.offer(begin + 3000 * MS, 10, None), Fate::Lost);
        let one = Counts { offered: 1, lost: 1, ..Counts::default() };
        assert_eq!(before.plus(&one), path.counts().0);
    }
}
