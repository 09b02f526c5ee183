//! Layers within one stream: each receiver gets those that their path carries and their screen needs, in one continuous
//! stream in which no frame needs one that was left out. The films of VP9 and AV1 are what Chromium sent (L3T3_KEY).
//!
//! `MOIM_SEEDS` says how many seeds (12), `MOIM_SEED` runs one alone.

use super::codecs::{FRAME_TIME, Film, begins, check_again, recorded};
use super::downlink::slow;
use super::hand::{Ears, Hand, Heard, Packet};
use super::seeds;
use super::world::{LAN, Link, Made, Random, SIZES, World};
use engine::PersonKey;
use engine::room::Topology;
use lab::link::{LinkSpec, Loss};
use rtp::dependency::{Descriptor, Structure};
use rtp::negotiated::{Codec, Kind};
use rtp::{vp8, vp9};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const S: Duration = Duration::from_secs(1);
const CODECS: [Codec; 3] = [Codec::Vp8, Codec::Vp9, Codec::Av1];

fn made(shards: u16) -> Made {
    Made { audio: Topology::Sfu, video: Topology::Sfu, shards }
}

/// One picture in three temporal layers of VP8, a packet each: 0, 2, 1, 2 in turn. Each second turn, layers 1 and 2 begin anew.
struct Temporal {
    hand: Hand,
    shown: u32,
    swell: usize,
    /// The newest frame of each layer.
    newest: [u32; 3],
}

impl Temporal {
    fn picture(&mut self, world: &mut World) {
        let (at, number) = (self.shown as usize % 8, self.shown);
        let (layer, keyframe) = ([0, 2, 1, 2][at % 4], self.shown.is_multiple_of(40));
        let sync = layer > 0 && at < 3;
        let needs: Vec<u32> = match layer {
            _ if keyframe => Vec::new(),
            _ if sync => vec![self.newest[0]],
            layer => self.newest[..=layer].to_vec(),
        };
        match keyframe {
            true => self.newest = [number; 3],
            false => self.newest[layer] = number,
        }
        let mut payload = vec![0x90, 0xE0];
        payload.extend((number as u16 & 0x7FFF | 0x8000).to_be_bytes());
        payload.push((number / 4) as u8);
        payload.push((layer as u8) << 6 | u8::from(sync) << 5);
        payload.extend([
            if keyframe { 0x10 } else { 0x11 },
            0,
            0,
            0x9D,
            0x01,
            0x2A,
            0x40,
            1,
            0xB4,
            0,
        ]);
        payload.resize(100 + self.swell, 0);
        needs.iter().for_each(|need| payload.extend(need.to_be_bytes()));
        payload.extend((needs.len() as u32).to_be_bytes());
        payload.extend(number.to_be_bytes());
        let payload_type = self.hand.line.payload_type;
        let packet = Packet { payload_type, marker: true, level_dbov: None, payload: &payload };
        self.hand.send(world, packet);
        self.shown += 1;
        self.hand.timestamp = self.hand.timestamp.wrapping_add(4500);
    }
}

/// What is shown.
enum Show {
    Recorded(Film),
    Temporal(Temporal),
}

impl Show {
    fn new(world: &mut World, key: PersonKey, codec: Codec, swell: usize) -> Self {
        let hand = Hand::new(world, key, Kind::Video);
        match codec {
            Codec::Vp8 => Self::Temporal(Temporal { hand, shown: 0, swell, newest: [0; 3] }),
            _ => {
                let pictures = recorded(codec);
                Self::Recorded(Film { hand, pictures, shown: 0, opaque: false, who: 1, swell })
            }
        }
    }

    fn picture(&mut self, world: &mut World) {
        match self {
            Self::Recorded(film) => film.picture(world),
            Self::Temporal(film) => film.picture(world),
        }
    }
}

/// A frame that came: which it is, its layers, and which it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Frame {
    id: (u32, u8),
    spatial: u8,
    temporal: u8,
    keyframe: bool,
    needs: Vec<(u32, u8)>,
}

/// Reads the frames of one stream.
struct Reader {
    codec: Codec,
    structure: Structure,
    newest: Option<u32>,
}

impl Reader {
    fn new(codec: Codec) -> Self {
        Self { codec, structure: Structure::default(), newest: None }
    }

    /// A number of 15 or 16 bits with its rollovers.
    fn unwrap(&mut self, number: u16, bits: u32) -> u32 {
        let newest = self.newest.unwrap_or(u32::from(number) + (1 << bits));
        let step = u32::from(number).wrapping_sub(newest) & ((1 << bits) - 1);
        let far = step > 1 << (bits - 1);
        let number = newest.wrapping_add(step).wrapping_sub(if far { 1 << bits } else { 0 });
        self.newest = Some(number);
        number
    }

    fn frame(&mut self, packet: &Heard) -> Frame {
        let keyframe = match self.codec {
            Codec::Vp8 => vp8::Descriptor::parse(&packet.payload).unwrap().keyframe,
            _ => begins(packet),
        };
        match self.codec {
            Codec::Vp8 => {
                let read = vp8::Descriptor::parse(&packet.payload).unwrap();
                let word = |back: usize| {
                    let at = packet.payload.len() - 4 * back;
                    u32::from_be_bytes(packet.payload[at..at + 4].try_into().unwrap())
                };
                let needs = (0..word(2) as usize).map(|n| (word(3 + n), 0)).collect();
                let temporal = read.temporal_id.unwrap();
                Frame { id: (word(1), 0), spatial: 0, temporal, keyframe, needs }
            }
            Codec::Vp9 => {
                let read = vp9::Descriptor::parse(&packet.payload).unwrap();
                let layer = read.layer.unwrap();
                let (spatial, temporal) = (layer.spatial_id, layer.temporal_id);
                let id = self.unwrap(read.picture_id.unwrap(), 15);
                let back = read.references().iter().map(|back| (id - u32::from(*back), spatial));
                let below = layer.inter_layer.then(|| (id, spatial - 1));
                let needs = back.chain(below).collect();
                Frame { id: (id, spatial), spatial, temporal, keyframe, needs }
            }
            _ => {
                let value = packet.dependency.as_ref().expect("descriptors pass");
                let read = Descriptor::parse(value, &mut self.structure).expect("a known template");
                let id = self.unwrap(read.head.frame_number, 16);
                let needs = read.frame.references().iter().map(|b| (id - u32::from(*b), 0));
                let (spatial, temporal) = (read.frame.spatial_id, read.frame.temporal_id);
                Frame { id: (id, 0), spatial, temporal, keyframe, needs: needs.collect() }
            }
        }
    }
}

/// The pictures of a stream that came, by time: how many spatial layers each has, and its temporal layer. Each frame needs only
/// frames that came; sequence numbers have no gap; a picture ends with the only marker in it. If it is `lossy` and a number is
/// missing, its packet did not reach the server: what needs it may come until the next keyframe.
fn pictures(who: &str, codec: Codec, heard: &[Heard], lossy: bool) -> Vec<(usize, u8)> {
    let mut reader = Reader::new(codec);
    let mut came = BTreeSet::new();
    let mut pictures: BTreeMap<usize, (BTreeSet<u8>, u8)> = BTreeMap::new();
    let (mut counts, mut hole) = (Counts::default(), false);
    for (n, packet) in heard.iter().enumerate() {
        let who = format!("{who}, packet {n}");
        let frame = reader.frame(packet);
        let after = n.checked_sub(1).map(|before| &heard[before]);
        if let Some(after) = after {
            let step = packet.sequence.wrapping_sub(after.sequence);
            assert!(step == 1 || lossy && step < 100, "{who}: {step} numbers further");
            hole |= step > 1;
            let ends = packet.timestamp != after.timestamp;
            // A picture may be cut off where the slot stops; it goes on with a keyframe.
            let cut = ends && (step > 1 || frame.keyframe);
            assert!(after.marker == ends || cut, "{who}: {frame:?}");
        }
        let begins = after.is_none_or(|after| after.timestamp != packet.timestamp);
        if frame.keyframe && begins {
            came.clear();
            hole = false;
        }
        for need in &frame.needs {
            assert!(hole || came.contains(need), "{who}: {frame:?} needs {need:?}");
        }
        came.insert(frame.id);
        if codec == Codec::Vp8 {
            counts.check(&who, packet, frame.id.0, lossy);
        }
        let at = pictures.len() - usize::from(!begins);
        let picture = pictures.entry(at).or_insert((BTreeSet::new(), frame.temporal));
        picture.0.insert(frame.spatial);
    }
    let whole = |(layers, _): &(BTreeSet<u8>, u8)| layers.iter().copied().eq(0..layers.len() as u8);
    assert!(lossy || pictures.values().all(whole), "{who}: {pictures:?}");
    pictures.into_values().map(|(layers, temporal)| (layers.len(), temporal)).collect()
}

/// What VP8 counts: pictures without a gap, and those of the lowest temporal layer, of which none is left out.
#[derive(Default)]
struct Counts {
    newest: Option<(u16, u8)>,
    /// What the server adds to TL0PICIDX, until a keyframe.
    added: Option<u8>,
}

impl Counts {
    fn check(&mut self, who: &str, packet: &Heard, number: u32, lossy: bool) {
        let read = vp8::Descriptor::parse(&packet.payload).unwrap();
        let (id, tl0) = (read.picture_id.unwrap(), read.tl0_picture_index.unwrap());
        let newest = self.newest.replace((id, tl0)).filter(|_| !lossy);
        if let Some((last, last_tl0)) = newest {
            let lowest = u8::from(read.temporal_id == Some(0));
            assert_eq!((id, tl0), ((last + 1) & 0x7FFF, last_tl0.wrapping_add(lowest)), "{who}");
        }
        let added = Some(tl0.wrapping_sub((number / 4) as u8));
        assert!(read.keyframe || self.added == added, "{who}: TL0PICIDX {tl0} of {number}");
        self.added = added;
    }
}

/// A film for a viewer alone; returns the viewer, too.
fn cinema(codec: Codec, shards: u16, swell: usize) -> (World, Show, PersonKey) {
    let mut world = World::with_slots(5, LAN, made(shards), (4, 1));
    world.codec = codec;
    let filming = world.join_filming();
    // Twenty keys are a shard's: with two shards, somebody is on another one.
    let viewer = world.join_listening();
    let show = Show::new(&mut world, filming, codec, swell);
    (world, show, viewer)
}

fn run(world: &mut World, show: &mut Show, seconds: u32) {
    for _ in 0..seconds * 20 {
        show.picture(world);
        world.run(FRAME_TIME);
    }
}

/// What came to a viewer so far.
struct Came {
    ears: Ears,
    viewer: PersonKey,
    codec: Codec,
    heard: Vec<Heard>,
    again: Vec<Heard>,
    /// The viewer must have asked for some packets again.
    lossy: bool,
}

impl Came {
    fn new(world: &mut World, viewer: PersonKey, codec: Codec) -> Self {
        let ears = Ears::of(world, &[viewer]);
        Self { ears, viewer, codec, heard: Vec::new(), again: Vec::new(), lossy: false }
    }

    /// How many pictures came so far.
    fn take(&mut self, world: &mut World) -> usize {
        let slot = world.slot_ssrc(self.viewer, "v0");
        for packet in self.ears.take_all(self.viewer) {
            // What is sent again has numbers of its own.
            if packet.ssrc == slot { &mut self.heard } else { &mut self.again }.push(packet);
        }
        self.heard.iter().filter(|packet| packet.marker).count()
    }

    /// The pictures that came, once all is checked.
    fn pictures(&self, who: &str) -> Vec<(usize, u8)> {
        let again = check_again(&self.heard, &self.again);
        assert!(!self.lossy || again > 3, "{who}: {again} sent again");
        pictures(who, self.codec, &self.heard, false)
    }
}

#[test]
fn a_slot_gets_the_layer_that_its_size_needs_and_falls_at_once() {
    for (codec, shards) in [(Codec::Vp9, 1), (Codec::Vp9, 2), (Codec::Av1, 1), (Codec::Av1, 2)] {
        let who = format!("{codec:?} on {shards}");
        let (mut world, mut show, viewer) = cinema(codec, shards, 0);
        world.set_downlink(viewer, LinkSpec { loss: Loss::Random(0.01), ..LinkSpec::default() });
        let mut came = Came { lossy: true, ..Came::new(&mut world, viewer, codec) };
        run(&mut world, &mut show, 5);
        let mut phases = Vec::new();
        for (shown, layers) in [(SIZES[0], 1), (SIZES[1], 2), (1280 * 720, 3), (SIZES[0], 1)] {
            let from = came.take(&mut world);
            world.show(viewer, "v0", shown);
            run(&mut world, &mut show, 3);
            phases.push((from, came.take(&mut world), layers));
            // A higher layer is asked for at once, a lower one after 3 s.
            let wanted = world.wanted.values().copied().collect::<Vec<_>>();
            assert!(layers == 1 || wanted == [layers as u8 - 1], "{who}: {layers}, {wanted:?}");
        }
        run(&mut world, &mut show, 1);
        assert_eq!(world.wanted.values().collect::<Vec<_>>(), [&0], "{who}");
        let pictures = came.pictures(&who);
        assert!(pictures.len() >= 330, "{who}: {} pictures", pictures.len());
        let first = &pictures[..phases[0].0];
        // It begins small and rises in steps, as simulcast does.
        assert!(
            first.is_sorted_by_key(|p| p.0) && first[60..].iter().all(|p| p.0 == 3),
            "{who}: {first:?}"
        );
        for (from, to, layers) in phases {
            // A larger picture waits for a keyframe, and those come each 0.6 s. A smaller one is there with the next but one.
            let wait = if layers == 1 { 3 } else { 14 };
            assert!(to - from >= 58, "{who}: {from} to {to}");
            let settled = &pictures[from + wait..to];
            assert!(settled.iter().all(|p| p.0 == layers), "{who}: {layers}, {settled:?}");
        }
        world.assert_invariants(5);
    }
}

#[test]
fn a_thin_link_carries_a_smaller_picture_or_fewer_frames_before_it_carries_none() {
    for (codec, kbps) in [(Codec::Vp8, 110), (Codec::Vp9, 250), (Codec::Av1, 250)] {
        let who = format!("{codec:?} at {kbps} kbit/s");
        let (mut world, mut show, viewer) = cinema(codec, 1, swell(codec));
        world.set_downlink(viewer, slow(kbps));
        let mut came = Came::new(&mut world, viewer, codec);
        run(&mut world, &mut show, 20);
        let (thin, before) = (came.take(&mut world), world.downlink(viewer));
        run(&mut world, &mut show, 20);
        let (wide, counts) = (came.take(&mut world), world.downlink(viewer).since(&before));
        world.set_downlink(viewer, slow(5000));
        run(&mut world, &mut show, 40);
        let all = came.take(&mut world);
        let pictures = came.pictures(&who);
        assert_eq!((counts.queue_full, world.paused.len()), (0, 0), "{who}");
        // Half of the frames in one case, all of them but small in the other.
        let less = |p: &(usize, u8)| if codec == Codec::Vp8 { p.1 < 2 } else { p.0 < 3 };
        let seen = &pictures[thin..wide];
        assert!(seen.len() >= 190 && seen.iter().all(less), "{who}: {seen:?}");
        let last = &pictures[all - 100..];
        let whole = if codec == Codec::Vp8 { 1 } else { 3 };
        let is_whole = last.iter().all(|p| p.0 == whole) && last.iter().any(|p| p.1 == 2);
        assert!(is_whole, "{who}: {last:?}");
        world.assert_invariants(5);
    }
}

/// By how much packets are enlarged, so that links of some 100 kbit/s do not carry all.
fn swell(codec: Codec) -> usize {
    if codec == Codec::Vp8 { 900 } else { 300 }
}

/// A film for viewers whose links and sizes change again and again. Returns how often their layers changed.
fn film(seed: u64) -> usize {
    let mut random = Random(seed);
    let (codec, shards) = (CODECS[seed as usize % 3], 1 + (seed / 3 % 2) as u16);
    let loss_permille = if seed.is_multiple_of(4) { 20 } else { 0 };
    let link = Link { delay_ms: 2 + random.below(30), jitter_ms: 0, loss_permille };
    let mut world = World::with_slots(seed, link, made(shards), (4, 1));
    world.codec = codec;
    let filming = world.join_filming();
    let viewers: Vec<_> = (0..3).map(|_| world.join_listening()).collect();
    let mut show = Show::new(&mut world, filming, codec, swell(codec));
    let ears = Ears::of(&mut world, &viewers);
    for _ in 0..600 {
        let viewer = viewers[random.below(3) as usize];
        if random.below(30) == 0 {
            let sizes = [0, SIZES[0], SIZES[1], 1280 * 720];
            world.show(viewer, "v0", sizes[random.below(4) as usize]);
        }
        if loss_permille == 0 && random.below(100) == 0 {
            let kbps = [60, 120, 250, 5000][random.below(4) as usize];
            world.set_downlink(viewer, slow(kbps));
        }
        show.picture(&mut world);
        world.run(FRAME_TIME);
    }
    world.run(S);
    world.assert_invariants(seed);
    let mut changes = 0;
    for viewer in viewers {
        let slot = world.slot_ssrc(viewer, "v0");
        let mut heard = ears.take_all(viewer);
        heard.retain(|packet| packet.ssrc == slot);
        let lossy = loss_permille > 0;
        let pictures = pictures(&format!("seed {seed}"), codec, &heard, lossy);
        changes += pictures.windows(2).filter(|pair| pair[0].0 != pair[1].0).count();
        let thinned = |nine: &&[(usize, u8)]| nine[0].1 == 2 && nine[1..].iter().all(|p| p.1 < 2);
        changes += pictures.windows(9).filter(thinned).count();
    }
    changes
}

#[test]
fn no_frame_needs_one_that_was_left_out() {
    let seeds = seeds(12, &[]);
    let count = seeds.len();
    let changes: usize = seeds.into_iter().map(film).sum();
    assert!(changes > 3 * count, "{changes} changes in {count} runs");
}
