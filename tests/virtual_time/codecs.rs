//! VP9 and AV1: whatever a slot carries, its stream counts pictures without a gap, and each frame needs only frames that
//! its receiver has. The films are what Chromium sent, see `crates/rtp/tests/recorded.rs`.

use super::hand::{Ears, Hand, Heard, Packet};
use super::world::{LAN, Made, World};
use engine::room::Topology;
use lab::link::{LinkSpec, Loss};
use rtp::dependency::{self, Descriptor, Structure};
use rtp::negotiated::{Codec, Kind};
use rtp::{RtpHeader, vp9};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const VP9: &[u8] = include_bytes!("../../crates/rtp/tests/fixtures/chromium-vp9-l3t3-key.rtp");
const AV1: &[u8] = include_bytes!("../../crates/rtp/tests/fixtures/chromium-av1-l3t3-key.rtp");

/// So many pictures of the recording, the first of them a keyframe, are shown again and again.
const PICTURES: usize = 12;
/// Each in so many spatial layers.
const LAYERS: u16 = 3;
pub const FRAME_TIME: Duration = Duration::from_millis(50);

/// A recorded packet.
pub struct Recorded {
    marker: bool,
    payload: Vec<u8>,
    dependency: Vec<u8>,
}

pub fn recorded(codec: Codec) -> Vec<Vec<Recorded>> {
    let file = if codec == Codec::Vp9 { VP9 } else { AV1 };
    let (id, mut rest) = (file[0], &file[1..]);
    let mut pictures = vec![Vec::new()];
    while pictures.len() <= PICTURES {
        let (lengths, tail) = rest.split_first_chunk::<4>().expect("it has enough");
        let kept = usize::from(u16::from_be_bytes([lengths[0], lengths[1]]));
        let (packet, tail) = tail.split_at(kept);
        let header = RtpHeader::parse(packet).unwrap();
        let dependency = header.find_extension(packet, id).unwrap_or_default().to_vec();
        let (marker, payload) = (header.marker, packet[header.header_len..].to_vec());
        pictures.last_mut().unwrap().push(Recorded { marker, payload, dependency });
        if marker {
            pictures.push(Vec::new());
        }
        rest = tail;
    }
    pictures.truncate(PICTURES);
    pictures
}

/// A publisher who shows the recording in a loop. Its packets end with their number.
pub struct Film {
    pub hand: Hand,
    pub pictures: Vec<Vec<Recorded>>,
    pub shown: u16,
    /// Their payloads cannot be read, as if they were encrypted end to end.
    pub opaque: bool,
    pub who: u8,
    /// So many bytes more in each packet.
    pub swell: usize,
}

impl Film {
    pub fn picture(&mut self, world: &mut World) {
        let picture = &self.pictures[usize::from(self.shown) % PICTURES];
        // The recording goes on where it ended; the second film's numbers wrap.
        let back = u16::from(self.who) * 0x7FF0;
        let loops = (self.shown / PICTURES as u16 * PICTURES as u16).wrapping_add(back);
        for Recorded { marker, payload, dependency } in picture {
            let (mut payload, mut dependency) = (payload.clone(), dependency.clone());
            if let Ok(head) = dependency::Head::parse(&dependency) {
                let number = head.frame_number.wrapping_add(loops.wrapping_mul(LAYERS));
                dependency::set_frame_number(&mut dependency, number).unwrap();
            } else {
                let id = vp9::Descriptor::parse(&payload).unwrap().picture_id.unwrap();
                vp9::rewrite_in_place(&mut payload, Some(id.wrapping_add(loops)), None).unwrap();
            }
            if self.opaque {
                payload.fill(0xFF);
            }
            payload.resize(payload.len() + self.swell, 0);
            *payload.last_mut().unwrap() = self.who;
            self.hand.dependency = dependency;
            let payload_type = self.hand.line.payload_type;
            let packet =
                Packet { payload_type, marker: *marker, level_dbov: None, payload: &payload };
            self.hand.send(world, packet);
        }
        self.shown += 1;
        self.hand.timestamp = self.hand.timestamp.wrapping_add(4500);
    }
}

/// What a receiver knows of the stream so far.
#[derive(Default)]
struct Decoder {
    structure: Structure,
    /// Frames since the last keyframe: number and spatial layer.
    known: BTreeSet<(u16, u8)>,
    last: Option<u16>,
    keyframes: usize,
}

impl Decoder {
    fn begin(&mut self, keyframe: bool) {
        if keyframe {
            self.known.clear();
            self.keyframes += 1;
        }
    }

    /// A packet of AV1: frame numbers go on over all switches.
    fn av1(&mut self, packet: &Heard) {
        let value = packet.dependency.as_ref().expect("descriptors pass");
        let read = Descriptor::parse(value, &mut self.structure).expect("its structure is known");
        let number = read.head.frame_number;
        self.begin(read.head.has_structure);
        let step = self.last.replace(number).map(|last| number.wrapping_sub(last));
        // Higher layers may be left out, with their numbers.
        let steps = if read.head.start { 1..=LAYERS } else { 0..=0 };
        assert!(step.is_none_or(|step| steps.contains(&step)), "{step:?}");
        for back in read.frame.references() {
            assert!(self.known.contains(&(number.wrapping_sub(*back), 0)), "{number}: {back}");
        }
        self.known.insert((number, 0));
    }

    /// A packet of VP9: picture ids follow each other, in 15 bits.
    fn vp9(&mut self, packet: &Heard) {
        let read = vp9::Descriptor::parse(&packet.payload).expect("a descriptor");
        let (id, spatial_id) = (read.picture_id.unwrap(), read.layer.unwrap().spatial_id);
        self.begin(read.keyframe);
        let step = self.last.replace(id).map(|last| id.wrapping_sub(last) & 0x7FFF);
        let begins = read.start && spatial_id == 0;
        assert!(step.is_none_or(|step| step == u16::from(begins)), "{step:?}");
        for back in read.references() {
            let needed = (id.wrapping_sub(u16::from(*back)) & 0x7FFF, spatial_id);
            assert!(self.known.contains(&needed), "{id}: {needed:?}");
        }
        self.known.insert((id, spatial_id));
    }
}

/// Two people show films; a third, with one slot, chooses now the one and now the other. Each hundredth packet to them is
/// lost.
fn show(codec: Codec, shards: u16, opaque: bool) {
    let made = Made { audio: Topology::Sfu, video: Topology::Sfu, shards };
    let mut world = World::with_slots(5, LAN, made, (4, 1));
    (world.codec, world.opaque) = (codec, opaque);
    let filming = [world.join_filming(), world.join_filming()];
    let viewer = world.join_listening();
    let lossy = LinkSpec { loss: Loss::Random(0.01), ..LinkSpec::default() };
    world.set_downlink(viewer, lossy);
    let mut films = filming.map(|key| {
        let who = u8::from(key == filming[1]);
        let hand = Hand::new(&mut world, key, Kind::Video);
        Film { hand, pictures: recorded(codec), shown: 0, opaque, who, swell: 0 }
    });
    let ears = Ears::of(&mut world, &[viewer]);
    let tracks = filming.map(|key| {
        let video = world.person(key).tracks.iter().find(|(_, kind)| *kind == Kind::Video);
        video.expect("they film").0
    });
    for step in 0..240 {
        if step % 40 == 0 {
            world.want(viewer, "v0", tracks[step / 40 % 2]);
        }
        // By now all memory of packets is there. What crosses between shards does not reach the sink that counts.
        if step == 216 && shards == 1 {
            world.allocations = Some(0);
        }
        films.iter_mut().for_each(|film| film.picture(&mut world));
        world.run(FRAME_TIME);
        if step == 238 {
            let allocations = world.allocations.take().unwrap_or_default();
            assert_eq!(allocations, 0, "packets allocate nothing");
        }
    }
    world.assert_invariants(5);
    let slot = world.slot_ssrc(viewer, "v0");
    let (heard, again): (Vec<Heard>, Vec<Heard>) =
        ears.take_all(viewer).into_iter().partition(|packet| packet.ssrc == slot);
    assert!(heard.len() > 800, "{} packets", heard.len());
    let mut decoder = Decoder::default();
    heard.iter().for_each(|packet| match codec {
        Codec::Vp9 => decoder.vp9(packet),
        _ => decoder.av1(packet),
    });
    let who = |packet: &Heard| packet.payload.last().copied();
    let switches = heard.windows(2).filter(|pair| who(&pair[0]) != who(&pair[1])).count();
    assert!(switches >= 5 && decoder.keyframes > 15, "{switches}, {}", decoder.keyframes);
    for pair in heard.windows(2) {
        assert_eq!(pair[1].sequence, pair[0].sequence.wrapping_add(1));
        assert!(
            who(&pair[0]) == who(&pair[1]) || begins(&pair[1]),
            "another film has a keyframe first"
        );
    }
    let again = check_again(&heard, &again);
    assert!(again > 3, "{again} sent again");
}

/// Whether a packet is the first of a keyframe.
pub fn begins(packet: &Heard) -> bool {
    match &packet.dependency {
        Some(value) => dependency::Head::parse(value).unwrap().has_structure,
        None => vp9::Descriptor::parse(&packet.payload).unwrap().keyframe,
    }
}

/// What is sent again is what left before: the number of its frame, too. Returns how many were.
pub fn check_again(heard: &[Heard], again: &[Heard]) -> usize {
    let left: BTreeMap<u16, &Heard> =
        heard.iter().map(|packet| (packet.sequence, packet)).collect();
    let mut checked = 0;
    for packet in again.iter().filter(|packet| packet.payload.len() > 2) {
        let (original, payload) = packet.payload.split_first_chunk().unwrap();
        let first = left[&u16::from_be_bytes(*original)];
        assert_eq!((payload, &packet.dependency), (&first.payload[..], &first.dependency));
        assert_eq!(packet.marker, first.marker);
        checked += 1;
    }
    checked
}

#[test]
fn a_slot_of_vp9_shows_one_stream_over_all_switches() {
    show(Codec::Vp9, 1, false);
    show(Codec::Vp9, 2, false);
}

#[test]
fn a_slot_of_av1_shows_one_stream_over_all_switches() {
    show(Codec::Av1, 1, false);
    show(Codec::Av1, 2, false);
}

#[test]
fn av1_that_cannot_be_read_begins_where_its_descriptors_say_so() {
    show(Codec::Av1, 1, true);
}
