//! Flows over one bottleneck in virtual time: media senders that follow their estimate, and TCP.

use super::tcp::Tcp;
use crate::virtual_time::Random;
use bwe::{Downlink, IP_UDP_BYTES, Kind, Limits};
use lab::link::{Fate, LinkSpec, Path};
use rtp::rtcp::{self, Packet};
use rtp::twcc::{Feedback, FeedbackBuilder};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

pub const MS: Duration = Duration::from_millis(1);
/// Bytes of a full packet.
const FULL: usize = 1200;
/// Bytes of a packet of sound, and what one each 20 ms takes of a link.
const SOUND: usize = 120;
const SOUND_BPS: f64 = (SOUND + IP_UDP_BYTES) as f64 * 8.0 * 50.0;
/// What leaves of a burst at the pacing rate.
const BURST: Duration = Duration::from_millis(5);
/// From one look for feedback to the next, as in libwebrtc at these rates.
const FEEDBACK_EVERY: Duration = Duration::from_millis(50);

/// From 0 to below 1.
fn unit(random: &mut Random) -> f64 {
    const STEPS: u64 = 1 << 53;
    random.below(STEPS) as f64 / STEPS as f64
}

/// Near a normal distribution of mean 0 and deviation 1: the sum of twelve.
fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| unit(random)).sum::<f64>() - 6.0
}

/// Exponential, of this mean.
fn exponential(random: &mut Random, mean: f64) -> f64 {
    -mean * (1.0 - unit(random)).ln()
}

/// What a flow does, and when.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The way there without queue and jitter; the way back takes as long.
    pub delay: Duration,
    /// Its deviation, without overtaking (RFC 8868, NR-BPDV); no packet waits more than six times as long.
    pub jitter: Duration,
    pub from_s: u64,
    pub until_s: u64,
    /// Seconds without pictures.
    pub rests_s: Option<(u64, u64)>,
    /// What the source gives at most, in bits a second.
    pub most_bps: u64,
    /// What it sends over: the way there, or the way back.
    pub backward: bool,
}

/// One second of a flow.
#[derive(Debug, Clone, Copy, Default)]
pub struct Second {
    /// Bits that arrived, and the estimate at its end, in bits a second.
    pub received_bps: f64,
    pub estimate_bps: f64,
    pub sent: u32,
    pub lost: u32,
    /// The longest wait in the queue, in ms.
    pub queue_ms: f64,
}

/// A media sender and its receiver.
pub struct Flow {
    pub plan: Plan,
    downlink: Downlink,
    builder: FeedbackBuilder,
    feedback_at: Instant,
    next_frame: Instant,
    next_sound: Instant,
    queue: VecDeque<(usize, Kind)>,
    queued: usize,
    burst: (Instant, usize),
    last_arrival: Instant,
    random: Random,
    pub seconds: Vec<Second>,
    /// Waits in the queue of (second, ms), of packets that arrived.
    pub waits: Vec<(u64, f32)>,
}

enum Event {
    /// A packet of a flow arrives with this number.
    Packet {
        flow: usize,
        number: u16,
        len: usize,
        wait_ms: f64,
    },
    /// Feedback arrives.
    Feedback {
        flow: usize,
        bytes: Vec<u8>,
    },
    /// A packet of a TCP flow arrives, or its acknowledgement.
    Segment {
        flow: usize,
        sequence: u64,
    },
    Acknowledged {
        flow: usize,
        sequence: u64,
    },
}

/// A bottleneck each way, and who shares it.
pub struct Network {
    pub origin: Instant,
    now: Instant,
    forward: Path,
    backward: Path,
    events: BTreeMap<(Instant, u64), Event>,
    serial: u64,
    pub flows: Vec<Flow>,
    pub tcp: Vec<Tcp>,
    /// TCP connections that come again: their delay, by their place in `tcp`.
    short: Vec<Option<Instant>>,
    /// Bits of TCP that arrived in each second.
    pub tcp_bits: Vec<f64>,
    random: Random,
}

/// A bottleneck of so many kbit/s that drops what would wait longer than `queue`.
pub fn bottleneck(rate_kbps: u32, queue: Duration) -> LinkSpec {
    LinkSpec { rate_kbps: Some(rate_kbps), queue, ..LinkSpec::default() }
}

impl Network {
    pub fn new(seed: u64, forward: LinkSpec, backward: LinkSpec) -> Self {
        let origin = Instant::now();
        Self {
            origin,
            now: origin,
            forward: Path::new(forward, seed),
            backward: Path::new(backward, seed ^ 0xF00D),
            events: BTreeMap::new(),
            serial: 0,
            flows: Vec::new(),
            tcp: Vec::new(),
            short: Vec::new(),
            tcp_bits: Vec::new(),
            random: Random(seed),
        }
    }

    pub fn add(&mut self, plan: Plan) {
        let begins = self.origin + Duration::from_secs(plan.from_s);
        let limits = Limits { start_bps: 300_000, least_bps: 64_000, most_bps: 100_000_000 };
        let mut downlink = Downlink::new(begins, limits);
        downlink.want(begins, plan.most_bps, false);
        // Sources do not film in step.
        let shift = Duration::from_secs_f64(unit(&mut self.random) / 30.0);
        self.flows.push(Flow {
            plan,
            downlink,
            builder: FeedbackBuilder::new(),
            feedback_at: begins,
            next_frame: begins + shift,
            next_sound: begins + shift,
            queue: VecDeque::new(),
            queued: 0,
            burst: (begins, 0),
            last_arrival: begins,
            random: Random(self.random.below(u64::MAX)),
            seconds: Vec::new(),
            waits: Vec::new(),
        });
    }

    /// A TCP connection that sends files of 100 to 1000 kB, and rests 10 s in the mean between them.
    pub fn add_short_tcp(&mut self, delay: Duration) {
        self.tcp.push(Tcp::new(self.origin, delay, 0));
        self.short.push(None);
    }

    /// Short connections that are done rest, and come again.
    fn renew(&mut self, index: usize) {
        if index >= self.short.len() || !self.tcp[index].is_done() {
            return;
        }
        let Some(at) = self.short[index] else {
            let rest = Duration::from_secs_f64(exponential(&mut self.random, 10.0));
            self.short[index] = Some(self.now + rest);
            return;
        };
        if at <= self.now {
            self.short[index] = None;
            let segments = (100_000.0 + 900_000.0 * unit(&mut self.random)) as u64 / 1460;
            self.tcp[index] = Tcp::new(self.now, self.tcp[index].delay, segments);
        }
    }

    /// How the bottleneck is from now on.
    pub fn set(&mut self, forward: Option<LinkSpec>, backward: Option<LinkSpec>) {
        forward.into_iter().for_each(|spec| self.forward.set(spec));
        backward.into_iter().for_each(|spec| self.backward.set(spec));
    }

    fn second(&self) -> u64 {
        self.now.duration_since(self.origin).as_secs()
    }

    fn plan_event(&mut self, at: Instant, event: Event) {
        self.serial += 1;
        self.events.insert((at, self.serial), event);
    }

    /// Lets time pass until so many seconds after the start.
    pub fn run_until(&mut self, end_s: u64) {
        let end = self.origin + Duration::from_secs(end_s);
        while self.now < end {
            self.now += MS;
            while let Some(first) = self.events.first_entry()
                && first.key().0 <= self.now
            {
                let ((at, _), event) = first.remove_entry();
                self.happen(at, event);
            }
            for flow in 0..self.flows.len() {
                self.send(flow);
            }
            for flow in 0..self.tcp.len() {
                self.renew(flow);
                self.send_segments(flow);
            }
        }
    }

    fn happen(&mut self, at: Instant, event: Event) {
        match event {
            Event::Packet { flow, number, len, wait_ms } => {
                let second = at.duration_since(self.origin).as_secs();
                let flow = &mut self.flows[flow];
                flow.builder.record(number, at);
                let row = flow.row(second);
                row.received_bps += len as f64 * 8.0;
                row.queue_ms = row.queue_ms.max(wait_ms);
                flow.waits.push((second, wait_ms as f32));
            }
            Event::Feedback { flow, bytes } => {
                let flow = &mut self.flows[flow];
                for packet in rtcp::parse(&bytes) {
                    let Ok(Packet::TransportFeedback { fci, .. }) = packet else { panic!("ours") };
                    let feedback = Feedback::parse(fci).expect("ours");
                    flow.downlink.feedback(at, &feedback).expect("what came");
                }
            }
            Event::Segment { flow, sequence } => {
                let second = at.duration_since(self.origin).as_secs() as usize;
                if self.tcp_bits.len() <= second {
                    self.tcp_bits.resize(second + 1, 0.0);
                }
                self.tcp_bits[second] += super::tcp::SEGMENT as f64 * 8.0;
                let (delay, acknowledged) = self.tcp[flow].receive(sequence);
                // Acknowledgements are small: they wait in no queue.
                let event = Event::Acknowledged { flow, sequence: acknowledged };
                self.plan_event(at + delay, event);
            }
            Event::Acknowledged { flow, sequence } => {
                self.tcp[flow].acknowledged(at, sequence);
            }
        }
    }

    /// A media flow does what is due.
    fn send(&mut self, index: usize) {
        let (now, second) = (self.now, self.second());
        let flow = &mut self.flows[index];
        if second < flow.plan.from_s || second >= flow.plan.until_s {
            return;
        }
        flow.film(now, second);
        flow.downlink.tick(now);
        let estimate = flow.downlink.estimate_bps() as f64;
        flow.row(second).estimate_bps = estimate;
        let mut out = Vec::new();
        flow.pace(now, &mut out);
        for (len, kind) in out {
            self.leave(index, len, kind);
        }
        let flow = &mut self.flows[index];
        if now.duration_since(flow.feedback_at) >= FEEDBACK_EVERY {
            flow.feedback_at = now;
            let mut bytes = Vec::new();
            while flow.builder.build(1, 2, &mut bytes) {}
            if !bytes.is_empty() {
                self.feedback(index, bytes);
            }
        }
    }

    fn leave(&mut self, index: usize, len: usize, kind: Kind) {
        let (now, second) = (self.now, self.second());
        let flow = &mut self.flows[index];
        let number = flow.downlink.next_number();
        flow.downlink.sent(now, len, kind);
        flow.row(second).sent += 1;
        let path = if flow.plan.backward { &mut self.backward } else { &mut self.forward };
        match path.offer(now, len + IP_UDP_BYTES, None) {
            Fate::Arrives(at) => {
                let wait_ms = at.duration_since(now).as_secs_f64() * 1000.0;
                let jitter = flow.plan.jitter.as_secs_f64()
                    * (3.0 + normal(&mut flow.random).clamp(-3.0, 3.0));
                let at = at + flow.plan.delay + Duration::from_secs_f64(jitter);
                flow.last_arrival = flow.last_arrival.max(at);
                let at = flow.last_arrival;
                self.plan_event(
                    at,
                    Event::Packet { flow: index, number, len: len + IP_UDP_BYTES, wait_ms },
                );
            }
            Fate::Lost | Fate::QueueFull => flow.row(second).lost += 1,
        }
    }

    fn feedback(&mut self, index: usize, bytes: Vec<u8>) {
        let plan = self.flows[index].plan;
        let path = if plan.backward { &mut self.forward } else { &mut self.backward };
        if let Fate::Arrives(at) = path.offer(self.now, bytes.len() + 60, None) {
            self.plan_event(at + plan.delay, Event::Feedback { flow: index, bytes });
        }
    }

    fn send_segments(&mut self, index: usize) {
        let now = self.now;
        while let Some(sequence) = self.tcp[index].next(now) {
            let delay = self.tcp[index].delay;
            if let Fate::Arrives(at) = self.forward.offer(now, super::tcp::SEGMENT, None) {
                self.plan_event(at + delay, Event::Segment { flow: index, sequence });
            }
        }
    }
}

impl Flow {
    pub fn row(&mut self, second: u64) -> &mut Second {
        let second = second as usize;
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, Second::default());
        }
        &mut self.seconds[second]
    }

    /// Frames and sound that are due wait for their turn.
    fn film(&mut self, now: Instant, second: u64) {
        while self.next_sound <= now {
            self.next_sound += 20 * MS;
            self.push(SOUND, Kind::Audio);
        }
        while self.next_frame <= now {
            self.next_frame += Duration::from_micros(33_333);
            if self.plan.rests_s.is_some_and(|(from, until)| (from..until).contains(&second)) {
                continue;
            }
            let rate_bps = self.downlink.estimate_bps().min(self.plan.most_bps) as f64 - SOUND_BPS;
            let rate_bps = rate_bps * FULL as f64 / (FULL + IP_UDP_BYTES) as f64;
            // Frames differ in size, as an encoder's do.
            let varied = 1.0 + 0.15 * normal(&mut self.random).clamp(-2.0, 2.0);
            let mut bytes = (rate_bps.max(0.0) / 8.0 / 30.0 * varied) as usize;
            // An encoder leaves frames out when too much waits.
            if self.queued > (self.downlink.estimate_bps() / 8 / 4) as usize {
                continue;
            }
            while bytes > 0 {
                let len = bytes.min(FULL);
                self.push(len.max(100), Kind::Video);
                bytes -= len;
            }
        }
    }

    fn push(&mut self, len: usize, kind: Kind) {
        self.queued += len;
        if kind == Kind::Audio {
            self.queue.push_front((len, kind));
        } else {
            self.queue.push_back((len, kind));
        }
    }

    /// What may leave now: sound, a burst of pictures, a probe's packets.
    fn pace(&mut self, now: Instant, out: &mut Vec<(usize, Kind)>) {
        let due = self.downlink.prober().bytes_due(now);
        if due > 0 {
            self.downlink.prober().begin(now);
            let mut left = due as i64;
            while left > 0 {
                let (len, kind) = self.queue.pop_front().unwrap_or((1000, Kind::Padding));
                if kind != Kind::Padding {
                    self.queued -= len;
                }
                left -= len as i64;
                out.push((len, kind));
            }
            return;
        }
        if now.duration_since(self.burst.0) >= BURST {
            let most = self.downlink.pacing_bps() as f64 / 8.0 * BURST.as_secs_f64();
            self.burst = (now, (most as usize).max(FULL));
        }
        while let Some((len, kind)) = self.queue.front().copied() {
            if kind != Kind::Audio {
                if self.burst.1 == 0 {
                    break;
                }
                self.burst.1 = self.burst.1.saturating_sub(len);
            }
            self.queue.pop_front();
            self.queued -= len;
            out.push((len, kind));
        }
    }
}
