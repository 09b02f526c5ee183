//! The parsers on what Chromium sends: its camera as three spatial and three temporal layers in one stream (L3T3_KEY).
//! `crates/transport/examples/record.rs` made the files and says what they hold.

use rtp::av1::Aggregation;
use rtp::dependency::{Descriptor, Head, Indication, Structure};
use rtp::{RtpHeader, vp9};
use std::collections::BTreeSet;

const VP9: &[u8] = include_bytes!("fixtures/chromium-vp9-l3t3-key.rtp");
const AV1: &[u8] = include_bytes!("fixtures/chromium-av1-l3t3-key.rtp");

/// Each packet's header, its bytes, and where its payload begins.
fn packets(file: &[u8]) -> (u8, Vec<(RtpHeader, &[u8])>) {
    let (dependency, mut rest) = (file[0], &file[1..]);
    let mut packets = Vec::new();
    while let Some((lengths, tail)) = rest.split_first_chunk::<4>() {
        let kept = usize::from(u16::from_be_bytes([lengths[0], lengths[1]]));
        let (packet, tail) = tail.split_at(kept);
        packets.push((RtpHeader::parse(packet).unwrap(), packet));
        rest = tail;
    }
    assert_eq!(packets.len(), 240);
    (dependency, packets)
}

#[test]
fn vp9_frames_name_frames_that_came_before() {
    let (_, packets) = packets(VP9);
    let (mut known, mut layers) = (BTreeSet::new(), BTreeSet::new());
    let (mut keyframes, mut open, mut structures) = (0, None, 0);
    for (header, packet) in &packets {
        let d = vp9::Descriptor::parse(&packet[header.header_len..]).unwrap();
        let (picture, layer) = (d.picture_id.unwrap(), d.layer.unwrap());
        assert!(d.flexible && d.picture_id_long && d.tl0_picture_index.is_none());
        let frame = (picture, layer.spatial_id);
        assert_eq!(open.is_none(), d.start, "a frame begins after another ended");
        assert!(open.is_none_or(|open| open == frame));
        open = (!d.end).then_some(frame);
        assert!(!header.marker || d.end, "a picture ends with a frame");
        keyframes += usize::from(d.keyframe);
        if let Some(structure) = d.structure {
            structures += 1;
            assert!(d.keyframe);
            let sizes = structure.sizes.unwrap();
            assert_eq!(sizes[..3], [(320, 180), (640, 360), (1280, 720)]);
            assert_eq!((structure.spatial_layers, sizes[3]), (3, (0, 0)));
        }
        assert_eq!(d.inter_picture, !d.references().is_empty());
        for back in d.references() {
            let needed = (picture.wrapping_sub(u16::from(*back)) & 0x7FFF, layer.spatial_id);
            assert!(known.contains(&needed), "{frame:?} needs {needed:?}");
        }
        if layer.inter_layer && layer.spatial_id > 0 {
            assert!(known.contains(&(picture, layer.spatial_id - 1)));
        }
        known.insert(frame);
        layers.insert((layer.spatial_id, layer.temporal_id));
    }
    let all: BTreeSet<(u8, u8)> = (0..3).flat_map(|s| (0..3).map(move |t| (s, t))).collect();
    assert_eq!(layers, all);
    assert_eq!((keyframes, structures), (1, 1));
    let first = vp9::Descriptor::parse(&packets[0].1[packets[0].0.header_len..]).unwrap();
    assert!(first.keyframe, "it begins with the keyframe");
}

#[test]
fn av1_frames_name_frames_that_came_before() {
    let (id, packets) = packets(AV1);
    let mut structure = Structure::default();
    let (mut known, mut layers) = (BTreeSet::new(), BTreeSet::new());
    let (mut sequences, mut structures, mut open, mut newest) = (0, 0, None, None);
    for (nth, (header, packet)) in packets.iter().enumerate() {
        let value = header.find_extension(packet, id).expect("each packet has a descriptor");
        let d = Descriptor::parse(value, &mut structure).unwrap();
        let (number, frame) = (d.head.frame_number, d.frame);
        assert_eq!(open.is_none(), d.head.start, "a frame begins after another ended");
        assert!(open.is_none_or(|open| open == number));
        open = (!d.head.end).then_some(number);
        if d.head.start {
            assert!(newest.is_none_or(|newest: u16| number == newest.wrapping_add(1)));
            newest = Some(number);
        }
        let aggregation = Aggregation::parse(&packet[header.header_len..]).unwrap();
        assert_eq!(aggregation.continues, !d.head.start);
        assert_eq!(aggregation.starts_sequence, d.head.has_structure, "packet {nth}");
        sequences += usize::from(aggregation.starts_sequence);
        structures += usize::from(d.head.has_structure);
        for back in frame.references() {
            assert!(known.contains(&number.wrapping_sub(*back)), "{number} needs {back} back");
        }
        for back in frame.chains().iter().filter(|back| **back > 0) {
            assert!(known.contains(&number.wrapping_sub(u16::from(*back))));
        }
        known.insert(number);
        layers.insert((frame.spatial_id, frame.temporal_id));
        // The frame is in all targets of its own layer and above, and in none below.
        let own = |target: u8| {
            let (spatial, temporal) = structure.layer_of(target).unwrap();
            (spatial, temporal) == (frame.spatial_id, frame.temporal_id)
        };
        let own = (0..structure.targets()).find(|target| own(*target)).expect("a target");
        let indication = frame.indications().nth(own.into()).unwrap();
        assert_ne!(indication, Indication::NotPresent);
    }
    let all: BTreeSet<(u8, u8)> = (0..3).flat_map(|s| (0..3).map(move |t| (s, t))).collect();
    assert_eq!(layers, all);
    assert_eq!((sequences, structures), (1, 1));
    assert_eq!((structure.targets(), structure.spatial_layers()), (9, 3));
    let sizes = [0, 1, 2].map(|spatial| structure.resolution(spatial).unwrap());
    assert_eq!(sizes, [(320, 180), (640, 360), (1280, 720)]);
    assert_eq!(structure.protected_by(), [0, 0, 0, 1, 1, 1, 2, 2, 2]);
}

#[test]
fn a_structure_takes_the_two_byte_form_and_each_other_descriptor_does_not() {
    let (id, packets) = packets(AV1);
    let two_byte = |header: &RtpHeader| header.extension_profile == Some(0x1000);
    for (header, packet) in &packets {
        let value = header.find_extension(packet, id).unwrap();
        assert_eq!(two_byte(header), Head::parse(value).unwrap().has_structure);
    }
}
