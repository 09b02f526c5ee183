//! What a bot sends, byte by byte.

use super::*;
use crate::clients::bot::talk::{Talk, TalkRole};
use rtp::vp8;

/// A bot that is alone: its packets are opened by plain SRTP, feedback is written by hand.
fn alone(seed: u64) -> World {
    let mut world = World::new(seed);
    world.fate = Box::new(|_, _| true);
    world
}

fn own_ssrc(world: &World, mid: &str) -> (u32, Option<u32>) {
    let ids = world.peers.1.negotiated.line(mid).unwrap().local.unwrap();
    (ids.ssrc, ids.rtx)
}

#[test]
fn speech_goes_out_every_20_ms_with_levels() {
    let mut world = alone(1);
    world.run(5 * S);
    let opened = world.opened(0);
    let packets = opened.of(own_ssrc(&world, "a").0);
    assert!((249..=251).contains(&packets.len()), "{} packets", packets.len());
    let voice = voice();
    // Pauses are alike: where the loop began is told by many packets.
    let voiced = |nth: usize| &voice.packets[nth % voice.packets.len()];
    let offset = (0..voice.packets.len()).find(|offset| {
        let mut some = packets.iter().enumerate().take(100);
        some.all(|(nth, (_, h, p, _))| p[h.header_len..] == voiced(offset + nth).data)
    });
    let offset = offset.expect("the packets are not those of the voice");
    for (nth, (at, header, packet, _)) in packets.iter().enumerate() {
        let expected = voiced(offset + nth);
        assert_eq!(&packet[header.header_len..], expected.data);
        assert_eq!(header.sequence, packets[0].1.sequence.wrapping_add(nth as u16));
        assert_eq!(header.timestamp, packets[0].1.timestamp.wrapping_add(960 * nth as u32));
        assert_eq!(*at, packets[0].0 + 20 * MS * nth as u32);
        assert_eq!((header.payload_type, header.marker), (111, nth == 0));
        let level = header.find_extension(packet, 1).unwrap()[0];
        assert_eq!(level & 0x7F, expected.level_dbov);
        assert_eq!(level & 0x80 != 0, expected.level_dbov <= 55);
        let mid = header.find_extension(packet, 4).and_then(rtp::header::text);
        assert_eq!(mid, (*at < world.start + 3 * S).then_some("a"));
    }
    let levels: BTreeSet<u8> =
        packets.iter().map(|(_, h, p, _)| h.find_extension(p, 1).unwrap()[0]).collect();
    assert!(levels.len() > 10, "levels do not vary: {levels:?}");
}

#[test]
fn between_spurts_of_talk_packets_of_silence_go_out() {
    let role = TalkRole { seed: 5, speaks_pct: 40.0, in_turn: None };
    let silence = Fixtures::embedded().unwrap().silence();
    let mut world = World::prepared(
        9,
        |_| {},
        |bots, now| bots[0].set_talk(Talk::new(role, silence.clone(), (now, now))),
    );
    world.fate = Box::new(|_, _| true);
    world.run(60 * S);
    let opened = world.opened(0);
    let packets = opened.of(own_ssrc(&world, "a").0);
    assert!((2998..=3001).contains(&packets.len()), "one every 20 ms: {}", packets.len());
    let mut stretches: Vec<(bool, usize)> = Vec::new();
    for (_, header, packet, _) in &packets {
        let level = header.find_extension(packet, 1).unwrap()[0];
        let silent = packet[header.header_len..] == silence.data;
        assert!(!silent || level == 127, "level {level} and no voice");
        match stretches.last_mut() {
            Some((same, count)) if *same == silent => *count += 1,
            _ => stretches.push((silent, 1)),
        }
    }
    let spoken: usize = stretches.iter().filter(|(silent, _)| !silent).map(|(_, n)| n).sum();
    assert!((900..1500).contains(&spoken), "{spoken} of 3000 packets of speech");
    assert!(stretches.len() > 10 && stretches.len() < 30, "spurts of seconds: {stretches:?}");
}

#[test]
fn video_goes_out_at_the_clips_rate_paced_and_whole() {
    let mut world = alone(2);
    world.run(7 * S); // longer than the clip
    let opened = world.opened(0);
    let packets = opened.of(own_ssrc(&world, "v").0);
    let clip = clip();
    let mut frames: Vec<(u32, u16, Vec<u8>, Instant, Instant)> = Vec::new();
    for (nth, (at, header, packet, len)) in packets.iter().enumerate() {
        assert_eq!(header.sequence, packets[0].1.sequence.wrapping_add(nth as u16));
        assert!(*len <= 1200, "{len} bytes");
        let payload = &packet[header.header_len..];
        let descriptor = vp8::Descriptor::parse(payload).unwrap();
        let data = &payload[descriptor.header_len..];
        let picture = descriptor.picture_id.unwrap();
        if descriptor.start {
            frames.push((header.timestamp, picture, Vec::new(), *at, *at));
        }
        let frame = frames.last_mut().unwrap();
        frame.2.extend(data);
        frame.4 = *at;
        assert_eq!((frame.0, frame.1), (header.timestamp, picture));
        if let Some((_, next, bytes, _)) = packets.get(nth + 1) {
            let next = vp8::Descriptor::parse(&bytes[next.header_len..]).unwrap();
            assert_eq!(header.marker, next.start);
        }
    }
    assert!((138..=141).contains(&frames.len()), "{} frames", frames.len());
    let first = clip.frames.iter().position(|frame| frame.data == frames[0].2).unwrap();
    assert!(clip.frames[first].keyframe);
    for (nth, (timestamp, picture, data, begin, end)) in frames.iter().enumerate() {
        if nth + 1 < frames.len() {
            assert!(*data == clip.frames[(first + nth) % clip.frames.len()].data, "frame {nth}");
        }
        assert_eq!(*picture, (frames[0].1 + nth as u16) & 0x7FFF);
        assert_eq!(*timestamp, frames[0].0.wrapping_add(4500 * nth as u32));
        assert_eq!(*begin, frames[0].3 + 50 * MS * nth as u32);
        // Spread, but over no more than half of the time to the next frame.
        let spread = end.duration_since(*begin);
        assert!(spread <= 25 * MS && (data.len() < 5000 || spread >= MS), "{spread:?}");
    }
}

#[test]
fn transport_sequence_runs_over_pictures_and_send_time_over_all_streams() {
    let mut world = alone(3);
    world.run(2 * S);
    let opened = world.opened(0);
    let (sound, mut next) = (own_ssrc(&world, "a").0, 1);
    for (at, header, packet, _) in &opened.rtp {
        let sequence = header.find_extension(packet, 3).and_then(rtp::header::transport_sequence);
        let expected = (header.ssrc != sound).then_some(next);
        assert_eq!(sequence, expected, "published sound has none");
        next += u16::from(expected.is_some());
        let sent = rtp::header::parse_abs_send_time(header.find_extension(packet, 2).unwrap());
        let wall = unix() + at.duration_since(world.start);
        let [a, b, c] = rtp::header::abs_send_time(wall);
        assert_eq!(sent, Some(u32::from_be_bytes([0, a, b, c])));
    }
    assert!(opened.rtp.len() > 200);
}

#[test]
fn sender_reports_tell_counts_and_times() {
    let mut world = alone(4);
    world.run(5 * S + 150 * MS);
    let opened = world.opened(0);
    let mut reports = BTreeMap::<u32, Vec<_>>::new();
    let mut names = 0;
    for (at, compound) in &opened.rtcp {
        for packet in rtcp::parse(compound) {
            match packet.unwrap() {
                Packet::SenderReport(report) => {
                    assert_eq!(report.blocks().count(), 0);
                    reports.entry(report.ssrc).or_default().push((*at, report.info));
                }
                Packet::Sdes(chunk) => {
                    names += 1;
                    assert_eq!(&chunk[4..11], b"\x01\x05bot-4");
                }
                other => panic!("unexpected {other:?}"),
            }
        }
    }
    for (mid, rate) in [("a", 48_000_u64), ("v", 90_000)] {
        let ssrc = own_ssrc(&world, mid).0;
        let packets = opened.of(ssrc);
        assert_eq!(reports[&ssrc].len(), 6, "one at 100 ms, then one a second");
        for (at, info) in &reports[&ssrc] {
            let before: Vec<_> = packets.iter().filter(|packet| packet.0 <= *at).collect();
            let octets: usize = before.iter().map(|p| p.2.len() - p.1.header_len).sum();
            assert_eq!(info.packet_count as usize, before.len());
            assert_eq!(info.octet_count as usize, octets);
            let wall = unix() + at.duration_since(world.start);
            assert_eq!(info.ntp, rtp::report::Ntp::from_unix(wall));
            // The timestamp is that of `at`: media's own clock and the wall clock run alike.
            let last = before.last().unwrap();
            let units =
                |span: Duration| (span.as_nanos() * u128::from(rate) / 1_000_000_000) as u32;
            let ahead = info.rtp_timestamp.wrapping_sub(last.1.timestamp);
            let bound = units(at.duration_since(last.0)) + units(30 * MS);
            assert!(ahead <= bound, "{mid}: {ahead} units after the last packet");
        }
    }
    assert_eq!(names, 12);
}

#[test]
fn lost_packets_are_sent_again_once_a_request() {
    let mut world = alone(5);
    let mut sealer = Sealer::new(&world.peers.0.keys.local);
    world.run(S);
    let (ssrc, rtx) = own_ssrc(&world, "v");
    let originals: Vec<_> =
        world.opened(0).of(ssrc).into_iter().map(|(_, h, p, _)| (*h, p.clone())).collect();
    let wanted: Vec<u16> = originals.iter().rev().take(20).map(|(h, _)| h.sequence).rev().collect();
    let mut nack = Vec::new();
    let unknown = wanted[0].wrapping_sub(5000);
    rtcp::nack(&mut nack, 1, ssrc, [unknown].into_iter().chain(wanted.iter().copied()));
    tell(&mut world, &mut sealer, &nack);
    tell(&mut world, &mut sealer, &nack); // crosses the answer
    world.run(MS);
    let resent = |world: &World| -> Vec<(RtpHeader, Vec<u8>)> {
        let opened = world.opened(0);
        opened.of(rtx.unwrap()).into_iter().map(|(_, h, p, _)| (*h, p.clone())).collect()
    };
    let first = resent(&world);
    assert_eq!(first.len(), 20);
    for (nth, ((header, packet), sequence)) in first.iter().zip(&wanted).enumerate() {
        assert_eq!(header.payload_type, 97);
        assert_eq!(header.sequence, first[0].0.sequence + nth as u16);
        let original = originals.iter().find(|(h, _)| h.sequence == *sequence).unwrap();
        let mut buffer = packet.clone();
        let len = rtp::rtx::unwrap(&mut buffer, packet.len(), ssrc, 96).unwrap().unwrap();
        let unwrapped = RtpHeader::parse(&buffer[..len]).unwrap();
        assert_eq!(unwrapped.sequence, *sequence);
        assert_eq!(unwrapped.timestamp, original.0.timestamp);
        assert_eq!(unwrapped.marker, original.0.marker);
        assert_eq!(buffer[unwrapped.header_len..len], original.1[original.0.header_len..]);
    }
    world.run(20 * MS);
    tell(&mut world, &mut sealer, &nack);
    world.run(MS);
    assert_eq!(resent(&world).len(), 40);
    let sample = world.bots[0].sample(world.now);
    assert_eq!(sample.sent[1].retransmitted_packets_sent, Some(40));
    assert_eq!(sample.sent[0].retransmitted_packets_sent, Some(0));
}

#[test]
fn keyframes_come_at_once_and_not_too_often() {
    let mut world = alone(6);
    let mut sealer = Sealer::new(&world.peers.0.keys.local);
    let ssrc = own_ssrc(&world, "v").0;
    world.run(S + 7 * MS);
    let keyframes = |world: &World| -> Vec<Instant> {
        let opened = world.opened(0);
        let of = opened.of(ssrc);
        let starts = of
            .iter()
            .filter(|(_, h, p, _)| vp8::Descriptor::parse(&p[h.header_len..]).unwrap().keyframe);
        starts.map(|packet| packet.0).collect()
    };
    assert_eq!(keyframes(&world).len(), 1);
    let asked = world.now;
    let mut pli = Vec::new();
    rtcp::pli(&mut pli, 1, ssrc);
    tell(&mut world, &mut sealer, &pli);
    world.run(30 * MS);
    let second = keyframes(&world)[1];
    assert!(second - asked <= 25 * MS, "{:?} after the request", second - asked);
    // Two more requests, in different words: one keyframe, 300 ms after the last one.
    tell(&mut world, &mut sealer, &pli);
    let mut fir = Vec::new();
    rtcp::fir(&mut fir, 1, ssrc, 9);
    tell(&mut world, &mut sealer, &fir);
    world.run(400 * MS);
    let third = keyframes(&world);
    assert_eq!(third.len(), 3);
    assert!(third[2] - second >= 275 * MS && third[2] - second <= 330 * MS);
    // The same request repeated (RFC 5104 §4.3.1.2) is none.
    tell(&mut world, &mut sealer, &fir);
    world.run(400 * MS);
    assert_eq!(keyframes(&world).len(), 3);
    // The picture goes on: ids and sequence without a jump, timestamps by the clock.
    let opened = world.opened(0);
    let packets = opened.of(ssrc);
    let ids: Vec<u16> = packets
        .iter()
        .map(|(_, h, p, _)| vp8::Descriptor::parse(&p[h.header_len..]).unwrap().picture_id.unwrap())
        .collect();
    assert!(ids.windows(2).all(|pair| (pair[1].wrapping_sub(pair[0]) & 0x7FFF) <= 1));
    for (at, header, _, _) in &packets {
        let wall = at.duration_since(packets[0].0).as_millis() as i64 * 90;
        let media = i64::from(header.timestamp.wrapping_sub(packets[0].1.timestamp));
        assert!((media - wall).abs() <= 30 * 90, "{media} against {wall}");
    }
    assert_eq!(world.bots[0].sample(world.now).sent[1].keyframe_requests, Some(3));
}

#[test]
fn stopping_is_silent_and_leaving_says_goodbye() {
    let mut world = alone(7);
    let (audio, video) = (own_ssrc(&world, "a").0, own_ssrc(&world, "v").0);
    world.run(S);
    world.bots[0].stop(Kind::Video);
    let stopped = world.now;
    world.run(S);
    let opened = world.opened(0);
    assert!(opened.of(video).iter().all(|packet| packet.0 <= stopped));
    assert_eq!(opened.of(audio).iter().filter(|packet| packet.0 > stopped).count(), 50);
    world.bots[0].leave();
    let left = world.now;
    world.run(2 * S);
    assert!(world.bots[0].left());
    assert_eq!(world.bots[0].next_deadline(), None);
    let opened = world.opened(0);
    assert!(opened.rtp.iter().all(|packet| packet.0 <= left));
    let (_, last) = opened.rtcp.last().unwrap();
    let Some(Ok(Packet::Bye(bye))) = rtcp::parse(last).last() else { panic!("no goodbye") };
    assert_eq!(bye.ssrcs().collect::<Vec<_>>(), [audio, video]);
}

#[test]
fn a_source_that_slept_skips_what_it_missed() {
    let mut world = alone(8);
    world.run(S);
    world.now += 5 * S; // nobody polled
    world.run(500 * MS);
    let opened = world.opened(0);
    let audio = opened.of(own_ssrc(&world, "a").0);
    let late: Vec<_> = audio.iter().filter(|packet| packet.0 > world.start + S).collect();
    assert!((25..=37).contains(&late.len()), "{} packets", late.len());
    for (at, header, _, _) in &audio {
        let wall = (at.duration_since(audio[0].0).as_millis() * 48) as u32;
        let media = header.timestamp.wrapping_sub(audio[0].1.timestamp);
        assert!(wall.abs_diff(media) <= 250 * 48, "{media} against {wall}");
    }
}

#[test]
fn one_seed_makes_the_same_bytes() {
    let bytes = |seed: u64| {
        let mut world = World::new(seed);
        let mut random = SplitMix(9);
        world.fate = Box::new(move |_, _| random.below(20) == 0);
        world.map();
        world.run(4 * S);
        let sample = world.bots[0].sample(world.now);
        let sent: Vec<_> = world
            .sent
            .into_iter()
            .map(|(at, by, data)| (at.duration_since(world.start), by, data))
            .collect();
        (sent, sample)
    };
    let (first, second) = (bytes(10), bytes(10));
    assert!(first.0.len() > 1000);
    assert!(first == second, "one seed made two runs");
    assert!(first.0 != bytes(11).0);
}
