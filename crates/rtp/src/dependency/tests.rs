use super::*;
use crate::testing::{Random, hex};

/// Writes bits, the highest of a byte first.
#[derive(Default)]
struct Writer(Vec<bool>);

impl Writer {
    fn put(&mut self, count: u32, number: u32) -> &mut Self {
        self.0.extend((0..count).rev().map(|bit| number >> bit & 1 == 1));
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let byte = |bits: &[bool]| {
            (0..8).fold(0, |byte, at| byte << 1 | u8::from(bits.get(at).is_some_and(|bit| *bit)))
        };
        self.0.chunks(8).map(byte).collect()
    }
}

/// A descriptor of frame 0x1234 with this template, these five flags after it, and what follows.
fn descriptor(template: u32, flags: u32) -> Writer {
    let mut writer = Writer::default();
    writer.put(2, 2).put(6, template).put(16, 0x1234).put(5, flags);
    writer
}

const NOT: u32 = 0;
const DISCARDABLE: u32 = 1;
const SWITCH: u32 = 2;
const REQUIRED: u32 = 3;

/// Two temporal layers (L1T2): targets 0 and 1, one chain. Template ids begin at 62.
fn two_temporal(template: u32, flags: u32) -> Writer {
    let mut writer = descriptor(template, 0x10 | flags);
    writer.put(6, 62).put(5, 1);
    // Layers: T0, T0, T1.
    writer.put(2, 0).put(2, 1).put(2, 3);
    for indication in [SWITCH, SWITCH, REQUIRED, REQUIRED, NOT, DISCARDABLE] {
        writer.put(2, indication);
    }
    // References: none; 2 back; 1 back.
    writer.put(1, 0).put(1, 1).put(4, 1).put(1, 0).put(1, 1).put(4, 0).put(1, 0);
    // One chain of at most two, which protects both targets: ns(3) of 1 is 10; ns(1) takes no bit.
    writer.put(2, 2);
    writer.put(4, 0).put(4, 2).put(4, 1);
    // 640x360.
    writer.put(1, 1).put(16, 639).put(16, 359);
    writer
}

fn known() -> Structure {
    let mut known = Structure::default();
    Descriptor::parse(&two_temporal(62, 0).bytes(), &mut known).unwrap();
    known
}

#[test]
fn reads_a_structure_and_the_frames_that_follow_it() {
    let mut structure = Structure::default();
    let key = Descriptor::parse(&two_temporal(62, 0).bytes(), &mut structure).unwrap();
    assert!(key.head.start && !key.head.end && key.head.has_structure);
    assert_eq!((key.head.frame_number, key.head.template_id), (0x1234, 62));
    assert_eq!(key.active_targets, Some(0b11));
    assert_eq!((key.frame.references(), key.frame.chains()), (&[][..], &[0][..]));
    assert_eq!(
        key.frame.indications().collect::<Vec<_>>(),
        [Indication::Switch, Indication::Switch]
    );
    assert_eq!((structure.targets(), structure.spatial_layers()), (2, 1));
    assert_eq!(structure.protected_by(), [0, 0]);
    assert_eq!((structure.resolution(0), structure.resolution(1)), (Some((640, 360)), None));
    assert_eq!((structure.layer_of(0), structure.layer_of(1)), (Some((0, 0)), Some((0, 1))));
    assert_eq!(structure.layer_of(2), None);

    // Three bytes: all is in the template. Ids wrap at 64.
    let next = Descriptor::parse(&hex("40 1235"), &mut structure).unwrap();
    assert!(!next.head.start && next.head.end && !next.head.has_structure);
    assert_eq!((next.frame.temporal_id, next.frame.references()), (1, &[1][..]));
    assert_eq!(next.frame.chains(), [1]);
    assert_eq!(
        next.frame.indications().collect::<Vec<_>>(),
        [Indication::NotPresent, Indication::Discardable]
    );
    assert_eq!((next.active_targets, next.head.frame_number), (None, 0x1235));
    let base = Descriptor::parse(&hex("ff 1236"), &mut structure).unwrap();
    assert_eq!((base.frame.temporal_id, base.frame.references()), (0, &[2][..]));
    for unknown in ["81 1235", "bd 1235"] {
        let read = Descriptor::parse(&hex(unknown), &mut structure);
        assert_eq!(read, Err(ParseError::BadValue), "{unknown}");
    }
}

#[test]
fn a_frame_tells_what_differs_from_its_template() {
    let mut structure = known();
    let mut writer = descriptor(63, 0b1111);
    writer.put(2, 0b01); // active: the first target
    writer.put(2, NOT).put(2, SWITCH);
    // References 3, 200 and 4096 back.
    writer.put(2, 1).put(4, 2).put(2, 2).put(8, 199).put(2, 3).put(12, 4095).put(2, 0);
    writer.put(8, 250);
    let read = Descriptor::parse(&writer.bytes(), &mut structure).unwrap();
    assert_eq!(read.active_targets, Some(1));
    assert_eq!(read.frame.references(), [3, 200, 4096]);
    assert_eq!(read.frame.chains(), [250]);
    assert_eq!(
        read.frame.indications().collect::<Vec<_>>(),
        [Indication::NotPresent, Indication::Switch]
    );
    // Each alone, and the others as in the template.
    let mut one = descriptor(63, 0b0100);
    one.put(2, DISCARDABLE).put(2, NOT);
    let read = Descriptor::parse(&one.bytes(), &mut structure).unwrap();
    assert_eq!((read.frame.references(), read.frame.chains()), (&[2][..], &[2][..]));
    let mut one = descriptor(63, 0b0010);
    one.put(2, 0);
    let read = Descriptor::parse(&one.bytes(), &mut structure).unwrap();
    assert_eq!((read.frame.references(), read.frame.chains()), (&[][..], &[2][..]));
    let mut one = descriptor(63, 0b0001);
    one.put(8, 9);
    let read = Descriptor::parse(&one.bytes(), &mut structure).unwrap();
    assert_eq!((read.frame.references(), read.frame.chains()), (&[2][..], &[9][..]));
    assert_eq!(structure, known(), "the templates stay");
    // Active targets come with a structure, too.
    let mut both = two_temporal(62, 0b1000);
    both.put(2, 0b10);
    let read = Descriptor::parse(&both.bytes(), &mut structure).unwrap();
    assert_eq!(read.active_targets, Some(2));
}

#[test]
fn what_is_cut_short_changes_nothing() {
    let whole = two_temporal(62, 0).bytes();
    let kept = known();
    for len in 0..whole.len() {
        let mut structure = kept.clone();
        let read = Descriptor::parse(&whole[..len], &mut structure);
        // The three bytes alone are a descriptor that the known structure can read.
        assert_eq!(read.err(), (len != 3).then_some(ParseError::TooShort), "{len}");
        assert_eq!(structure, kept);
    }
    let nothing = Descriptor::parse(&whole[..3], &mut Structure::default());
    assert_eq!(nothing, Err(ParseError::BadValue), "no structure");
    // A structure that does not have the frame's own template is not taken.
    let mut structure = kept.clone();
    let mut foreign = two_temporal(1, 0).bytes();
    foreign.push(0);
    assert_eq!(Descriptor::parse(&foreign, &mut structure), Err(ParseError::BadValue));
    assert_eq!(structure, kept);
}

#[test]
fn layers_templates_and_references_have_bounds() {
    let with_layers = |idcs: &[u32]| {
        let mut writer = descriptor(0, 0x10);
        writer.put(6, 0).put(5, 0);
        for idc in idcs {
            writer.put(2, *idc);
        }
        // One target, no references, no chains, no resolutions.
        for _ in idcs {
            writer.put(2, SWITCH);
        }
        for _ in idcs {
            writer.put(1, 0);
        }
        writer.put(1, 0).put(1, 0);
        let mut structure = Structure::default();
        Descriptor::parse(&writer.bytes(), &mut structure).map(|_| structure)
    };
    let spatial = with_layers(&[2, 2, 2, 3]).unwrap();
    assert_eq!((spatial.spatial_layers(), spatial.templates().len()), (4, 4));
    assert_eq!((spatial.protected_by(), spatial.resolution(0)), (&[][..], None));
    assert_eq!(with_layers(&[2, 2, 2, 2, 3]), Err(ParseError::BadValue));
    assert_eq!(with_layers(&[1, 1, 1, 1, 1, 1, 1, 3]).unwrap().templates()[7].temporal_id, 7);
    assert_eq!(with_layers(&[1, 1, 1, 1, 1, 1, 1, 1, 3]), Err(ParseError::BadValue));
    let second = with_layers(&[1, 2, 3]).unwrap().templates()[2];
    assert_eq!((second.spatial_id, second.temporal_id), (1, 0), "temporal layers begin anew");
    let mut most = [0; 64];
    most[63] = 3;
    assert_eq!(with_layers(&most).unwrap().templates().len(), 64);
    assert_eq!(with_layers(&[0; 65]), Err(ParseError::BadValue));

    let mut structure = known();
    let referring = |count: u32| {
        let mut writer = descriptor(62, 0b0010);
        for _ in 0..count {
            writer.put(2, 1).put(4, 0);
        }
        writer.put(2, 0);
        writer.bytes()
    };
    let most = Descriptor::parse(&referring(8), &mut structure).unwrap();
    assert_eq!(most.frame.references(), [1; 8]);
    assert_eq!(Descriptor::parse(&referring(9), &mut structure), Err(ParseError::BadValue));
}

#[test]
fn numbers_below_a_limit_take_the_bits_that_they_need() {
    let read = |bits: u32, limit: u32| {
        let bytes = (bits << 24).to_be_bytes();
        let mut bits = Bits::new(&bytes);
        (bits.non_symmetric(limit).unwrap(), bits.at)
    };
    assert_eq!(read(0, 1), (0, 0));
    assert_eq!((read(0x00, 2), read(0x80, 2)), ((0, 1), (1, 1)));
    assert_eq!((read(0x00, 3), read(0x80, 3), read(0xC0, 3)), ((0, 1), (1, 2), (2, 2)));
    assert_eq!((read(0x80, 5), read(0xC0, 5), read(0xE0, 5)), ((2, 2), (3, 3), (4, 3)));
    // All 32 targets fit: the limit of their chains is 33.
    assert_eq!(read(0xFC, 33), (32, 6));
    assert_eq!((all_ones(1), all_ones(32)), (1, u32::MAX));
}

#[test]
fn a_frame_number_is_set_and_nothing_else() {
    let mut value = two_temporal(62, 0).bytes();
    let before = value.clone();
    set_frame_number(&mut value, 0xFFFE).unwrap();
    assert_eq!(Head::parse(&value).unwrap().frame_number, 0xFFFE);
    assert_eq!((value[0], &value[3..]), (before[0], &before[3..]));
    assert_eq!(set_frame_number(&mut value[..2], 1), Err(ParseError::TooShort));
    assert_eq!(Head::parse(&value[..2]), Err(ParseError::TooShort));
    let only_active = Head::parse(&hex("ff 0001 7f")).unwrap();
    assert!(!only_active.has_structure);
}

#[test]
fn random_bytes_never_panic() {
    let mut random = Random::new(10);
    let mut buf = [0; 255];
    let (mut read, mut structures) = (0, 0);
    let mut structure = known();
    let whole = two_temporal(62, 0).bytes();
    for _ in 0..200_000 {
        let len = random.below(255) as usize;
        random.bytes(&mut buf[..len]);
        if random.below(2) == 0 {
            // A real structure with some bytes changed reaches further than noise.
            buf[..whole.len()].copy_from_slice(&whole);
            let at = random.below(whole.len() as u64) as usize;
            buf[at] = random.next() as u8;
        }
        let before = structure.clone();
        match Descriptor::parse(&buf[..len], &mut structure) {
            Ok(descriptor) => {
                read += 1;
                structures += usize::from(descriptor.head.has_structure);
                assert!(descriptor.frame.references().iter().all(|reference| *reference > 0));
                assert!(descriptor.head.has_structure || structure == before);
            }
            Err(_) => assert_eq!(structure, before),
        }
        for target in 0..structure.targets() {
            let _ = structure.layer_of(target);
        }
    }
    assert!(read > 1_000 && structures > 500, "{read} {structures}");
}
