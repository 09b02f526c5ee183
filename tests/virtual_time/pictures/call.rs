//! A call whose pictures have the sizes of a test's choice, and what each viewer gets to see of them.

use super::super::asking_again::{Control, SENDER};
use super::super::downlink::slow;
use super::super::number;
use super::super::world::{LAN, Leaves, Link, World};
use engine::PersonKey;
use lab::bot::fixtures::Clip;
use lab::link::{LinkSpec, Loss};
use rtp::extended::SequenceUnwrapper;
use rtp::header::is_rtcp;
use rtp::negotiated::Codec;
use rtp::rtcp;
use rtp::srtp::Opener;
use rtp::{h264, vp8};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const S: Duration = Duration::from_secs(1);
pub const MS: Duration = Duration::from_millis(1);
/// Payload types in these sessions.
const SOUND: u8 = 111;
const PICTURES: u8 = 96;
const RTX: u8 = 97;

/// What is shown: a keyframe of so many bytes first and whenever one is asked for. So many frames a second bring `kbps`.
pub fn pictures(keyframe: usize, per_second: u32, kbps: u32) -> Arc<Clip> {
    let delta = kbps as usize * 125 / per_second as usize;
    let frames = vec![(delta, false); per_second as usize];
    Arc::new(Clip::of_sizes(&frames, &[keyframe], per_second, (640, 360)))
}

/// What somebody says of what comes to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feedback {
    /// Transport-wide feedback on sound and pictures.
    All,
    /// The same on pictures alone.
    Pictures,
    /// An estimate of their own.
    Remb,
    /// Receiver reports alone.
    Reports,
}

/// A frame that could be shown.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    pub at: Instant,
    /// Its RTP timestamp.
    timestamp: u32,
}

/// A packet of a picture as it came.
#[derive(Debug, Clone, Copy)]
struct Part {
    start: bool,
    end: bool,
    keyframe: bool,
    timestamp: u32,
}

/// What comes to a viewer, read apart from the bot: which numbers left, which frames could be shown, how long sound waited.
pub struct Eye {
    codec: Codec,
    opener: Opener,
    unwrapper: BTreeMap<u32, SequenceUnwrapper>,
    /// Numbers of pictures that left, by SSRC.
    pub left: BTreeMap<u32, BTreeSet<u64>>,
    parts: BTreeMap<u64, Part>,
    /// The number that the next frame begins with, if all before was shown.
    next: Option<u64>,
    pub shown: Vec<Shown>,
    /// When packets of sound left, and how long they are under way; None if they were lost.
    pub sound: Vec<(Instant, Option<Duration>)>,
    /// Packets that the link lost.
    pub lost: Vec<Instant>,
    /// Bytes that came, by moment.
    pub came: Vec<(Instant, usize)>,
    delay: Duration,
}

impl Eye {
    fn see(&mut self, leaves: &Leaves<'_>) {
        let Leaves { bytes, at, arrives, .. } = *leaves;
        if is_rtcp(bytes[1]) {
            return;
        }
        match arrives {
            None => self.lost.push(at),
            Some(arrives) => self.came.push((arrives, bytes.len())),
        }
        let payload_type = bytes[1] & 0x7F;
        if payload_type == SOUND {
            let wait = arrives.map(|arrives| (arrives - at).saturating_sub(self.delay));
            return self.sound.push((at, wait));
        }
        let mut plain = vec![0; bytes.len()];
        let opened = self.opener.open_rtp(bytes, &mut plain).expect("the server seals for them");
        let header = opened.header;
        let range = header.payload_range(&plain[..opened.len]).expect("a packet");
        let mut payload = &plain[range];
        let mut number = header.sequence;
        if payload_type == RTX {
            let Some((original, rest)) = payload.split_first_chunk() else { return };
            (number, payload) = (u16::from_be_bytes(*original), rest);
        }
        assert!([PICTURES, RTX].contains(&payload_type));
        let unwrapper = self.unwrapper.entry(0).or_default();
        let number = unwrapper.unwrap(number);
        if payload_type == PICTURES {
            self.left.entry(header.ssrc).or_default().insert(number);
        }
        let Some(arrives) = arrives else { return };
        let (start, keyframe) = match vp8::Descriptor::parse(payload) {
            _ if payload.is_empty() => return,
            _ if self.codec == Codec::H264 => {
                (h264::is_picture_start(payload), h264::keyframe_start(payload).is_some())
            }
            Ok(descriptor) => (descriptor.start && descriptor.partition == 0, descriptor.keyframe),
            Err(_) => return,
        };
        let part = Part { start, end: header.marker, keyframe, timestamp: header.timestamp };
        self.parts.entry(number).or_insert(part);
        while self.show(arrives) {}
    }

    /// Shows the next frame that is whole, or a whole keyframe after a gap.
    fn show(&mut self, at: Instant) -> bool {
        let whole = |first: u64| {
            let run = self.parts.range(first..).enumerate();
            let mut run = run.take_while(|(nth, (number, _))| **number == first + *nth as u64);
            let end = run.find(|(_, (_, part))| part.end);
            end.map(|(_, (number, _))| *number)
        };
        let from = self.next.unwrap_or(0);
        let next = self.parts.get(&from).filter(|_| self.next.is_some());
        let (first, end) = match next {
            Some(part) if part.start && whole(from).is_some() => (from, whole(from)),
            _ => {
                let mut begins = self.parts.range(from..).filter(|(_, part)| part.keyframe);
                let Some((first, end)) =
                    begins.find_map(|(first, _)| Some((*first, Some(whole(*first)?))))
                else {
                    return false;
                };
                (first, end)
            }
        };
        let Some(end) = end else { return false };
        debug_assert!(first <= end);
        let timestamp = self.parts.get(&first).map_or(0, |part| part.timestamp);
        self.parts = self.parts.split_off(&(end + 1));
        self.next = Some(end + 1);
        self.shown.push(Shown { at, timestamp });
        true
    }
}

/// Somebody who looks on.
pub struct Viewer {
    pub key: PersonKey,
    pub eye: Rc<RefCell<Eye>>,
    feedback: Feedback,
    control: Control,
    /// What their path carries, in kbit/s; None if they have nothing to say of it.
    carries: Option<u32>,
}

/// One who films, and others who look on.
pub struct Call {
    pub world: World,
    pub viewers: Vec<Viewer>,
    pub origin: Instant,
    /// How long viewers were told that their picture is paused.
    paused: BTreeMap<PersonKey, Duration>,
}

impl Call {
    /// Somebody films these pictures, and speaks.
    pub fn new(seed: u64, link: Link, pictures: &Arc<Clip>) -> Self {
        Self::of("camera", seed, link, pictures)
    }

    /// Somebody shows these pictures under this name, and speaks.
    pub fn of(name: &'static str, seed: u64, link: Link, pictures: &Arc<Clip>) -> Self {
        let mut world = World::new(seed, link);
        world.picture = name;
        (world.pictures, world.codec) = (Some(pictures.clone()), pictures.codec);
        world.join(true);
        let origin = world.now.at;
        Self { world, viewers: Vec::new(), origin, paused: BTreeMap::new() }
    }

    /// Somebody comes who looks on behind this link.
    pub fn look_on(&mut self, link: LinkSpec, feedback: Feedback) {
        let world = &mut self.world;
        world.feedback = matches!(feedback, Feedback::All | Feedback::Pictures);
        world.lacks.feedback_on_sound = feedback == Feedback::Pictures;
        let key = world.join_listening();
        world.set_downlink(key, link);
        let eye = Eye {
            codec: world.codec,
            opener: Opener::new(&world.client(key).keys.remote),
            unwrapper: BTreeMap::new(),
            left: BTreeMap::new(),
            parts: BTreeMap::new(),
            next: None,
            shown: Vec::new(),
            sound: Vec::new(),
            lost: Vec::new(),
            came: Vec::new(),
            delay: link.delay,
        };
        let eye = Rc::new(RefCell::new(eye));
        let control = Control::new(world, key);
        self.viewers.push(Viewer { key, eye, feedback, control, carries: link.rate_kbps });
        let eyes = self.viewers.iter().map(|viewer| {
            (self.world.people.iter().find(|p| p.key == viewer.key).unwrap().address, viewer)
        });
        let eyes: BTreeMap<_, _> =
            eyes.map(|(address, viewer)| (address, viewer.eye.clone())).collect();
        self.world.sees = Some(Box::new(move |leaves| {
            if let Some(eye) = eyes.get(&leaves.to) {
                eye.borrow_mut().see(leaves);
            }
        }));
    }

    /// The links of all who look on are like this from now on.
    pub fn set_links(&mut self, link: LinkSpec) {
        for viewer in &mut self.viewers {
            viewer.carries = link.rate_kbps.filter(|_| !link.is_cut());
            self.world.set_downlink(viewer.key, link);
        }
    }

    /// Prints how it is with a viewer: the first, or the one that `MOIM_VIEWER` names.
    fn trace(&mut self) {
        let nth = number("MOIM_VIEWER").unwrap_or(0) as usize;
        let viewer = &self.viewers[nth.min(self.viewers.len() - 1)];
        let (key, now) = (viewer.key, self.world.now.at);
        let estimate = self.world.shards[0].estimate_bps(key, now).map(|bps| bps / 1000);
        let eye = viewer.eye.borrow();
        let within = |at: &Instant| *at > now - 250 * MS;
        let shown = eye.shown.iter().filter(|shown| within(&shown.at)).count();
        let lost = eye.lost.iter().filter(|at| within(at)).count();
        let came: usize = eye.came.iter().filter(|(at, _)| within(at)).map(|c| c.1).sum();
        let waits = eye.sound.iter().filter(|(at, _)| within(at)).filter_map(|(_, wait)| *wait);
        let paused = self.world.paused.iter().filter(|(who, _)| *who == key).count();
        let stats = self.world.stats();
        let left = eye.left.values().flatten();
        let missing: Vec<&u64> = left.filter(|number| !eye.parts.contains_key(number)).collect();
        println!(
            "T{:>6.2} s: estimate {estimate:?} kbit/s, came {} kbit/s, {lost} lost, {shown} shown, sound waits {:?}, {paused} paused, {:?} asked, {} probed, {} resent, missing {missing:?} of {:?}, dropped {:?}",
            (now - self.origin).as_secs_f64(),
            came * 32 / 1000,
            waits.max(),
            (stats.keyframes_asked, stats.keyframe_requests_refused),
            stats.probed,
            stats.resent,
            eye.left.values().flatten().max(),
            stats.out_drops,
        );
    }

    /// Lets time pass. Who estimates their path says what it is four times a second. With `MOIM_TRACE` each quarter of a second
    /// is told.
    pub fn run(&mut self, span: Duration) {
        let end = self.world.now.at + span;
        while self.world.now.at < end {
            let step = (end - self.world.now.at).min(250 * MS);
            self.world.run(step);
            for viewer in &mut self.viewers {
                viewer.estimate(&mut self.world);
            }
            for (who, _) in &self.world.paused {
                *self.paused.entry(*who).or_default() += step;
            }
            if !self.viewers.is_empty() && std::env::var("MOIM_TRACE").is_ok() {
                self.trace();
            }
        }
    }

    pub fn now(&self) -> Instant {
        self.world.now.at
    }

    /// Moments at which a viewer could show a frame, in seconds since the call began.
    pub fn shown(&self, viewer: usize) -> Vec<f64> {
        let eye = self.viewers[viewer].eye.borrow();
        eye.shown.iter().map(|shown| (shown.at - self.origin).as_secs_f64()).collect()
    }

    /// For each new frame that a viewer sees: its second of the call, and how old the frame before it was by then. The age is in
    /// seconds, less the shortest time that a frame was under way.
    pub fn ages(&self, viewer: usize) -> Vec<(f64, f64)> {
        let eye = self.viewers[viewer].eye.borrow();
        let Some(first) = eye.shown.first() else { return Vec::new() };
        let frame = |shown: &Shown| {
            let at = (shown.at - self.origin).as_secs_f64();
            (at, f64::from(shown.timestamp.wrapping_sub(first.timestamp) as i32) / 90_000.0)
        };
        let frames: Vec<(f64, f64)> = eye.shown.iter().map(frame).collect();
        let least = frames.iter().map(|(at, taken)| at - taken).fold(f64::INFINITY, f64::min);
        frames.windows(2).map(|pair| (pair[1].0, pair[1].0 - pair[0].1 - least)).collect()
    }

    /// How many frames a viewer could show within a span.
    pub fn frames(&self, viewer: usize, from: Instant, until: Instant) -> usize {
        let eye = self.viewers[viewer].eye.borrow();
        eye.shown.iter().filter(|shown| (from..until).contains(&shown.at)).count()
    }

    /// Numbers of pictures to a viewer that never left, although later ones did.
    pub fn holes(&self, viewer: usize) -> usize {
        let eye = self.viewers[viewer].eye.borrow();
        // Some of the last ones are about to leave: the publisher's packets overtake each other.
        let holes = |numbers: &BTreeSet<u64>| {
            let Some((first, last)) = numbers.first().zip(numbers.iter().nth_back(20)) else {
                return 0;
            };
            (last - first + 1) as usize - numbers.range(first..=last).count()
        };
        eye.left.values().map(holes).sum()
    }

    /// Whether a viewer was told that their path does not carry the picture.
    pub fn is_paused(&self, viewer: usize) -> bool {
        self.world.paused.iter().any(|(who, _)| *who == self.viewers[viewer].key)
    }

    /// How long a viewer was told so, to a quarter of a second.
    pub fn paused_for(&self, viewer: usize) -> Duration {
        self.paused.get(&self.viewers[viewer].key).copied().unwrap_or_default()
    }

    /// How often the publisher was asked for a keyframe.
    pub fn asked(&self) -> u64 {
        self.world.stats().keyframes_asked
    }
}

impl Viewer {
    /// Who estimates their path says that it carries nine tenths of what it does.
    fn estimate(&mut self, world: &mut World) {
        if let Some(kbps) = self.carries.filter(|_| self.feedback == Feedback::Remb) {
            self.say(world, 900.0 * f64::from(kbps));
        }
    }

    /// Says that the path carries so much, in bits a second.
    pub fn say(&mut self, world: &mut World, bps: f64) {
        let mut compound = Vec::new();
        rtcp::remb(&mut compound, SENDER, bps as u64, &[]);
        self.control.send(world, &compound);
    }
}

/// A link of this rate, delay and loss, with 300 ms of queue.
pub fn link(rate_kbps: u32, rtt_ms: u32, loss_permille: u32) -> LinkSpec {
    let loss = match loss_permille {
        0 => Loss::None,
        permille => Loss::Random(f64::from(permille) / 1000.0),
    };
    LinkSpec { delay: MS * rtt_ms / 2, loss, ..slow(rate_kbps) }
}

/// A fast link to who films.
pub const FAST: Link = LAN;
