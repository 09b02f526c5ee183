//! A picture in layers (simulcast): what goes out in each, and what happens to each alone.

use super::*;
use rtp::negotiated::Layer;
use rtp::vp8;

/// A bot whose camera has three layers, alone; `prepare`d before it begins.
fn alone(seed: u64, prepare: impl FnOnce(&mut BotMedia)) -> World {
    let lines = Fixed { layers: 3, ..fixed(seed) };
    let mut world = World::of(
        lines,
        |_| {},
        |bots, now| {
            bots[0] = BotMedia::new(Config { clip: Some(layered()), ..config(seed, now) });
            prepare(&mut bots[0]);
        },
    );
    world.fate = Box::new(|_, _| true);
    world
}

fn layers(world: &World) -> Vec<Layer> {
    world.peers.1.negotiated.line("v").unwrap().layers.clone()
}

fn ssrc(layer: &Layer) -> u32 {
    layer.ids.unwrap().ssrc
}

/// What a packet says of itself: mid, rid and repaired rid.
fn names<'a>(header: &RtpHeader, packet: &'a [u8]) -> [Option<&'a str>; 3] {
    [4, 10, 11].map(|id| header.find_extension(packet, id).and_then(rtp::header::text))
}

/// When keyframes of a layer began, since the world did.
fn keyframes(world: &World, layer: &Layer) -> Vec<Duration> {
    let opened = world.opened(0);
    let of = opened.of(ssrc(layer));
    let starts = of.iter().filter(|(_, header, packet, _)| {
        vp8::Descriptor::parse(&packet[header.header_len..]).unwrap().keyframe
    });
    starts.map(|(at, ..)| at.duration_since(world.start)).collect()
}

/// How many packets of each layer were sent after a moment.
fn after(world: &World, moment: Instant) -> Vec<usize> {
    let opened = world.opened(0);
    let count = |layer: &Layer| opened.of(ssrc(layer)).iter().filter(|p| p.0 > moment).count();
    layers(world).iter().map(count).collect()
}

#[test]
fn each_layer_is_a_stream_of_its_own_that_its_packets_name() {
    let mut world = alone(50, |_| {});
    world.run(5 * S);
    let opened = world.opened(0);
    let (layers, clip) = (layers(&world), layered());
    assert_eq!(layers.iter().map(|layer| layer.rid.as_str()).collect::<Vec<_>>(), ["q", "h", "f"]);
    let mut packets = 0;
    for (layer, clip) in layers.iter().zip(clip.layers()) {
        let of = opened.of(ssrc(layer));
        packets += of.len();
        let mut frames: Vec<(u32, Vec<u8>)> = Vec::new();
        for (nth, (_, header, packet, len)) in of.iter().enumerate() {
            assert_eq!(header.sequence, of[0].1.sequence.wrapping_add(nth as u16));
            // Longer than the mid is told elsewhere: nothing else tells the streams of a line with layers.
            assert_eq!(names(header, packet), [Some("v"), Some(&*layer.rid), None]);
            assert_eq!(header.payload_type, 96);
            assert!(*len <= 1200, "{len} bytes");
            let payload = &packet[header.header_len..];
            let descriptor = vp8::Descriptor::parse(payload).unwrap();
            if descriptor.start {
                frames.push((header.timestamp, Vec::new()));
            }
            frames.last_mut().unwrap().1.extend(&payload[descriptor.header_len..]);
        }
        let rate = (clip.rate.0 / clip.rate.1) as usize;
        assert!((5 * rate - 2..=5 * rate + 1).contains(&frames.len()), "{}", frames.len());
        let size = vp8::frame_header(&frames[0].1).unwrap().size;
        assert_eq!(size, Some((clip.width as u16, clip.height as u16)));
        let first = clip.frames.iter().position(|frame| frame.data == frames[0].1).unwrap();
        for (nth, (timestamp, data)) in frames[..frames.len() - 1].iter().enumerate() {
            assert!(*data == clip.frames[(first + nth) % clip.frames.len()].data, "frame {nth}");
            let expected = frames[0].0.wrapping_add((90_000 / rate * nth) as u32);
            assert_eq!(*timestamp, expected, "frame {nth}");
        }
    }
    let pictures = opened.rtp.iter().filter(|(_, header, ..)| header.payload_type == 96);
    for (nth, (_, header, packet, _)) in pictures.enumerate() {
        let sequence = header.find_extension(packet, 3).and_then(rtp::header::transport_sequence);
        assert_eq!(sequence, Some(nth as u16 + 1), "transport-wide numbers go over all layers");
    }
    // One row for the track, whatever it is sent in.
    let sample = world.bots[0].sample(world.now);
    let tracks: Vec<_> = sample.sent.iter().map(|sent| sent.track.as_str()).collect();
    assert_eq!(tracks, ["TA", "TV"]);
    assert_eq!(sample.sent[1].packets_sent as usize, packets);
    let kbps = sample.sent[1].bitrate_kbps;
    assert!((1500.0..2000.0).contains(&kbps), "{kbps} kbit/s");
    assert!((sample.sent[1].frames_per_second.unwrap() - 25.0).abs() < 0.5);
}

/// What a sender report says of a layer's clock: the wall clock of an RTP timestamp, in seconds.
fn wall_clock(world: &World, layer: &Layer) -> impl Fn(u32) -> f64 {
    let opened = world.opened(0);
    let reports = opened.rtcp.iter().flat_map(|(_, compound)| rtcp::parse(compound));
    let infos = reports.filter_map(|packet| match packet.unwrap() {
        Packet::SenderReport(report) if report.ssrc == ssrc(layer) => Some(report.info),
        _ => None,
    });
    let info = infos.last().expect("a sender report of each layer");
    let ntp = info.ntp.to_unix().unwrap().as_secs_f64();
    move |timestamp| ntp - f64::from(info.rtp_timestamp.wrapping_sub(timestamp) as i32) / 90_000.0
}

#[test]
fn layers_show_the_same_moments_by_the_clock_of_their_sender() {
    let mut world = alone(51, |_| {});
    world.run(4 * S);
    let opened = world.opened(0);
    let captured: Vec<Vec<f64>> = layers(&world)
        .iter()
        .map(|layer| {
            let wall = wall_clock(&world, layer);
            let mut moments: Vec<f64> =
                opened.of(ssrc(layer)).iter().map(|packet| wall(packet.1.timestamp)).collect();
            moments.dedup();
            moments
        })
        .collect();
    let [quarter, half, full] = &captured[..] else { panic!("three layers") };
    // An RTP timestamp has a step of 11 µs, and so has what a report says.
    let same = |a: &f64, b: &f64| (a - b).abs() < 30e-6;
    assert!(quarter.len() >= 79 && quarter.len().abs_diff(half.len()) <= 1);
    assert!(quarter.iter().zip(half).all(|(a, b)| same(a, b)), "frame by frame");
    // 25 frames a second meet 20 every 200 ms.
    let met = full.iter().step_by(5).zip(quarter.iter().step_by(4));
    assert!(met.clone().count() >= 19 && met.clone().all(|(a, b)| same(a, b)));
    // Their own timestamps say nothing of each other.
    let offsets: BTreeSet<u32> =
        layers(&world).iter().map(|layer| opened.of(ssrc(layer))[0].1.timestamp).collect();
    assert_eq!(offsets.len(), 3);
}

#[test]
fn a_layer_is_repaired_and_refreshed_for_itself() {
    let mut world = alone(52, |_| {});
    let mut sealer = Sealer::new(&world.peers.0.keys.local);
    world.run(S);
    let (all, before) = (layers(&world), world.opened(0));
    let half = &all[1];
    let originals = before.of(ssrc(half));
    let wanted: Vec<u16> = originals.iter().rev().take(7).map(|p| p.1.sequence).rev().collect();
    let mut nack = Vec::new();
    rtcp::nack(&mut nack, 1, ssrc(half), wanted.iter().copied());
    tell(&mut world, &mut sealer, &nack);
    world.run(MS);
    let opened = world.opened(0);
    for layer in &all {
        let resent = opened.of(layer.ids.unwrap().rtx.unwrap());
        assert_eq!(resent.len(), if layer.rid == "h" { 7 } else { 0 }, "{}", layer.rid);
    }
    for ((_, header, packet, _), sequence) in
        opened.of(half.ids.unwrap().rtx.unwrap()).into_iter().zip(&wanted)
    {
        assert_eq!(names(header, packet), [Some("v"), None, Some("h")]);
        let mut buffer = packet.clone();
        let len = rtp::rtx::unwrap(&mut buffer, packet.len(), ssrc(half), 96).unwrap().unwrap();
        let unwrapped = RtpHeader::parse(&buffer[..len]).unwrap();
        let original = originals.iter().find(|p| p.1.sequence == *sequence).unwrap();
        assert_eq!(unwrapped.sequence, *sequence);
        assert_eq!(unwrapped.timestamp, original.1.timestamp);
        assert_eq!(buffer[unwrapped.header_len..len], original.2[original.1.header_len..]);
    }
    // Who asks for a keyframe of a layer gets one, and nobody gets one of the others.
    let asked = world.now - world.start;
    let mut pli = Vec::new();
    rtcp::pli(&mut pli, 1, ssrc(&all[0]));
    tell(&mut world, &mut sealer, &pli);
    world.run(100 * MS);
    let asked_for: Vec<usize> = all
        .iter()
        .map(|layer| keyframes(&world, layer).iter().filter(|at| **at >= asked).count())
        .collect();
    assert_eq!(asked_for, [1, 0, 0]);
    assert!(*keyframes(&world, &all[0]).last().unwrap() <= asked + 25 * MS);
    let sent = &world.bots[0].sample(world.now).sent[1];
    assert_eq!((sent.retransmitted_packets_sent, sent.keyframe_requests), (Some(7), Some(1)));
}

#[test]
fn layers_that_nobody_wants_rest_and_begin_again_with_a_keyframe() {
    let mut world = alone(53, |_| {});
    world.run(S);
    let all = layers(&world);
    world.bots[0].layers("TV", 0);
    world.bots[0].layers("of nobody", 0);
    world.run(100 * MS); // frames that have begun are whole
    let rested = world.now;
    world.run(S);
    let counts = after(&world, rested);
    assert!(counts[0] > 15 && counts[1..] == [0, 0], "{counts:?}");
    for (layer, wanted) in [(1, 1), (2, 2)] {
        world.bots[0].layers("TV", wanted);
        let again = world.now;
        world.run(2 * MS);
        let counts = after(&world, again - MS);
        assert!(counts[layer] > 0, "at once: {counts:?}");
        assert!(counts[layer + 1..].iter().all(|count| *count == 0), "{counts:?}");
        let last = *keyframes(&world, &all[layer]).last().unwrap();
        assert_eq!(last, again - world.start);
        let opened = world.opened(0);
        let of = opened.of(ssrc(&all[layer]));
        assert!(of.windows(2).all(|p| p[1].1.sequence == p[0].1.sequence.wrapping_add(1)));
    }
    // So does one that rested for a moment, soon after it began.
    world.bots[0].layers("TV", 1);
    world.run(40 * MS);
    world.bots[0].layers("TV", 2);
    let again = world.now - world.start;
    world.run(MS);
    assert_eq!(*keyframes(&world, &all[2]).last().unwrap(), again);
    // If the track rests, all layers do; then those come back that are wanted.
    world.bots[0].layers("TV", 0);
    world.bots[0].pause("TV", true);
    world.run(100 * MS);
    let paused = world.now;
    world.run(500 * MS);
    assert_eq!(after(&world, paused), [0, 0, 0]);
    world.bots[0].pause("TV", false);
    world.run(500 * MS);
    let counts = after(&world, paused);
    assert!(counts[0] > 8 && counts[1..] == [0, 0], "{counts:?}");
}

#[test]
fn layers_may_be_told_before_the_answer_and_a_stream_without_layers_obeys_none() {
    let mut world = alone(54, |bot| bot.layers("TV", 1));
    world.run(S);
    let counts = after(&world, world.start - MS);
    assert!(counts[0] > 0 && counts[1] > 0 && counts[2] == 0, "{counts:?}");
    // Where the server takes no layers, the largest picture is sent alone, and names no layer.
    let clip = Some(layered());
    let mut world = World::prepared(
        55,
        |_| {},
        |bots, now| {
            bots[0] = BotMedia::new(Config { clip, ..config(55, now) });
            bots[0].layers("TV", 0);
        },
    );
    world.fate = Box::new(|_, _| true);
    world.run(4 * S);
    let ids = world.peers.1.negotiated.line("v").unwrap().local.unwrap();
    let opened = world.opened(0);
    let (_, header, packet, _) = opened.of(ids.ssrc)[0];
    let payload = &packet[header.header_len..];
    let descriptor = vp8::Descriptor::parse(payload).unwrap();
    let size = vp8::frame_header(&payload[descriptor.header_len..]).unwrap().size;
    assert_eq!(size, Some((848, 480)));
    let (_, header, packet, _) = opened.of(ids.ssrc).pop().unwrap();
    assert_eq!(names(header, packet), [None, None, None]);
}
