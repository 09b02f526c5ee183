//! What a bot makes of what it receives.

use super::*;
use wire::room::MediaKind;

/// Loses packets of one SSRC to bot 0 at random; tells which sequence numbers, and which came.
struct Losses {
    lost: Vec<u16>,
    passed: Vec<u16>,
}

fn lossy(world: &mut World, mid: &str, one_in: u64) -> Arc<std::sync::Mutex<Losses>> {
    let losses = Arc::new(std::sync::Mutex::new(Losses { lost: Vec::new(), passed: Vec::new() }));
    let (ssrc, shared, mut random) = (world.slot_ssrc(mid), losses.clone(), SplitMix(77));
    world.fate = Box::new(move |to, data| {
        if to != 0 || ssrc_of(data) != Some(ssrc) {
            return false;
        }
        let sequence = RtpHeader::parse(data).unwrap().sequence;
        let mut losses = shared.lock().unwrap();
        let lose = random.below(one_in) == 0;
        if lose {
            losses.lost.push(sequence)
        } else {
            losses.passed.push(sequence)
        }
        lose
    });
    losses
}

/// As at a server that hands on no abs-capture-time.
#[test]
fn the_way_is_measured_by_padding_where_there_is_no_extension() {
    let mut world = World::with(20, |peer| {
        peer.negotiated.lines.iter_mut().for_each(|line| line.extensions.capture_time = None);
    });
    world.map();
    world.run(6 * S);
    let sample = world.bots[0].sample(world.now);
    let audio = row(&sample.received, "A");
    assert_eq!(audio.transit_ms, Some(10.0));
    assert_eq!(audio.mouth_to_ear_ms, Some(36.5));
    assert_eq!(row(&sample.received, "V").transit_ms, None, "pictures are left as they are");
}

#[test]
fn a_clean_network_gives_clean_samples() {
    let mut world = World::new(20);
    world.map();
    world.run(3 * S);
    let first = world.bots[0].sample(world.now);
    assert_eq!((first.at_ms, first.interval_ms), (3000, 3000));
    let audio_ms = first.join_to_first_audio_ms.unwrap();
    let frame_ms = first.join_to_first_frame_ms.unwrap();
    assert!((10.0..=31.0).contains(&audio_ms), "{audio_ms}");
    assert!((10.0..=86.0).contains(&frame_ms), "{frame_ms}");
    assert_eq!(first.srtp_cipher.as_deref(), Some("AEAD_AES_256_GCM"));
    world.run(3 * S);
    let sample = world.bots[0].sample(world.now);
    assert_eq!((sample.join_to_first_audio_ms, sample.join_to_first_frame_ms), (None, None));
    let rtt = sample.rtt_ms.unwrap();
    assert!((rtt - 20.0).abs() < 0.1, "{rtt}");
    assert_eq!(sample.received.len(), 2);
    let audio = row(&sample.received, "A");
    assert_eq!(audio.participant, "of-A");
    assert_eq!((audio.packets_received, audio.packets_lost, audio.loss_pct), (150, 0, Some(0.0)));
    assert_eq!((audio.jitter_ms, audio.gap_ms), (Some(0.0), Some(0.0)));
    assert!(audio.since_last_ms.unwrap() <= 20.0 && audio.frames_per_second.is_none());
    assert_eq!((audio.transit_ms, audio.transit_p95_ms), (Some(10.0), Some(10.0)));
    assert_eq!((audio.marks_found, audio.marks_expected), (Some(150), Some(150)));
    assert_eq!(audio.mouth_to_ear_ms, Some(36.5), "packet time, look-ahead, the way");
    assert_eq!(audio.jitter_buffer_ms, Some(0.0), "all are equally fast");
    assert!((audio.mos_lq.unwrap() - 4.30).abs() < 0.01 && audio.mos_cq == audio.mos_lq);
    let video = row(&sample.received, "V");
    assert_eq!(video.gap_ms, None);
    assert_eq!((video.packets_lost, video.freezes, video.freeze_ratio), (0, Some(0), Some(0.0)));
    assert!((video.frames_per_second.unwrap() - 20.0).abs() < 0.4);
    assert_eq!((video.frame_width, video.frame_height), (Some(640), Some(360)));
    assert!((400.0..=800.0).contains(&video.bitrate_kbps), "{}", video.bitrate_kbps);
    assert!(video.total_packets_received.unwrap() > video.packets_received);
    assert_eq!(video.keyframe_requests, Some(0));
    assert!(video.mos_lq.is_none());
    let sent: Vec<_> = sample.sent.iter().map(|sent| sent.track.as_str()).collect();
    assert_eq!(sent, ["TA", "TV"]);
    assert_eq!(sample.sent[0].packets_sent, 150);
    assert_eq!(sample.sent[0].remote_loss_pct, Some(0.0));
    assert!((sample.sent[1].frames_per_second.unwrap() - 20.0).abs() < 0.4);
    let counters = world.bots[0].counters();
    assert!(counters.drops.is_empty() && counters.nacked == 0 && counters.seal_errors == 0);
}

#[test]
fn feedback_tells_of_every_packet() {
    let mut world = World::new(21);
    world.run(3 * S);
    let mut told = BTreeMap::new();
    let mut reports = 0;
    for (_, compound) in &world.opened(0).rtcp {
        for packet in rtcp::parse(compound) {
            match packet.unwrap() {
                Packet::TransportFeedback { fci, .. } => {
                    reports += 1;
                    let feedback = rtp::twcc::Feedback::parse(fci).unwrap();
                    told.extend(feedback.packets());
                }
                Packet::SenderReport(report) => {
                    for block in report.blocks() {
                        assert_eq!((block.cumulative_lost, block.fraction_lost), (0, 0));
                    }
                }
                _ => {}
            }
        }
    }
    assert!((25..=30).contains(&reports), "{reports} feedbacks in 3 s");
    let sent = world.opened(1).rtp.len();
    assert!(told.len() + 30 > sent && told.len() > 300, "{} told of {sent}", told.len());
    assert!(told.values().all(Option::is_some));
    let sequences: Vec<u16> = told.keys().copied().collect();
    assert_eq!(sequences, (1..=told.len() as u16).collect::<Vec<_>>());
}

#[test]
fn of_sound_alone_feedback_waits_for_ten_packets() {
    let mut world = World::new(25);
    world.bots[1].stop(Kind::Video);
    world.run(4 * S);
    let told = world.opened(0);
    let packets = told.rtcp.iter().flat_map(|(_, compound)| rtcp::parse(compound));
    let feedback =
        |packet: &Result<Packet<'_>, _>| matches!(packet, Ok(Packet::TransportFeedback { .. }));
    let reports = packets.filter(feedback).count();
    assert!((16..=24).contains(&reports), "{reports} feedbacks in 4 s");
}

#[test]
fn loss_is_counted_exactly_and_repaired() {
    let mut world = World::new(22);
    let losses = lossy(&mut world, "v0", 20);
    world.map();
    world.run(10 * S);
    let before = world.bots[0].sample(world.now);
    world.run(20 * S);
    world.fate = Box::new(|_, _| false);
    world.run(S); // so that the last loss is seen
    let sample = world.bots[0].sample(world.now);
    let video = row(&sample.received, "V");
    let losses = losses.lock().unwrap();
    let total = video.total_packets_lost.unwrap();
    // What was lost before the first packet that came cannot be known.
    let unknown = losses.lost.iter().filter(|lost| **lost < losses.passed[0]).count();
    assert_eq!(total as usize, losses.lost.len() - unknown);
    assert_eq!(total, row(&before.received, "V").packets_lost + video.packets_lost);
    let loss_pct = video.loss_pct.unwrap();
    assert!((3.0..=7.0).contains(&loss_pct), "{loss_pct}");
    // Retransmissions hold the frame rate.
    let counters = world.bots[0].counters();
    // (but for packets that a complete keyframe made needless). Where many are lost, some come twice.
    let repaired = counters.received_rtx;
    assert!(repaired <= 2 * total && repaired * 20 > total * 19, "{repaired} of {total}");
    let again = |row: &ReceivedTrack| row.retransmitted_packets_received.unwrap();
    assert_eq!(again(row(&before.received, "V")) + again(video), repaired);
    assert_eq!(row(&sample.received, "A").retransmitted_packets_received, None);
    assert!((video.frames_per_second.unwrap() - 20.0).abs() < 0.2);
    assert_eq!(video.freezes, Some(0));
    // The other side knows, too.
    let sender = world.bots[1].counters();
    assert_eq!(sender.keyframes_sent, world.opened(1).keyframes(world.slot_ssrc("v0")));
}

/// As at a server that takes NACKs and sends again what was lost as it was (RFC 4585), such as MediaMTX.
#[test]
fn without_rtx_lost_packets_come_again_as_they_were() {
    let mut world = World::with(22, |peer| {
        for line in &mut peer.negotiated.lines {
            line.rtx_payload_type = None;
            let ids = [&mut line.local, &mut line.remote].into_iter().flatten();
            ids.for_each(|ids| ids.rtx = None);
        }
    });
    world.map();
    world.run(S);
    world.bots[0].sample(world.now);
    let ssrc = world.slot_ssrc("v0");
    let (mut count, lost) = (0, Arc::new(std::sync::atomic::AtomicU64::new(0)));
    let counted = Arc::clone(&lost);
    world.fate = Box::new(move |to, data| {
        let of = to == 0 && ssrc_of(data) == Some(ssrc);
        count += u64::from(of);
        let lose = of && count % 20 == 0;
        counted.fetch_add(u64::from(lose), std::sync::atomic::Ordering::Relaxed);
        lose
    });
    world.run(10 * S);
    world.fate = Box::new(|_, _| false);
    world.run(S);
    let sample = world.bots[0].sample(world.now);
    let video = row(&sample.received, "V");
    let again = video.retransmitted_packets_received.unwrap();
    let lost = lost.load(std::sync::atomic::Ordering::Relaxed);
    // Of 20 packets one is lost, also of those that come again.
    assert!(again > 30 && again <= lost && again * 10 > lost * 9, "{again} of {lost}");
    assert!(
        video.packets_lost <= lost && video.packets_lost * 10 > lost * 9,
        "they stay lost packets"
    );
    assert_eq!((video.freezes, video.keyframe_requests), (Some(0), Some(0)));
    assert!((video.frames_per_second.unwrap() - 20.0).abs() < 0.3);
    assert_eq!(world.bots[0].counters().seal_errors + world.bots[1].counters().seal_errors, 0);
}

impl Opened {
    fn keyframes(&self, ssrc: u32) -> u64 {
        let starts = self.of(ssrc).into_iter().filter(|(_, h, p, _)| {
            rtp::vp8::Descriptor::parse(&p[h.header_len..]).unwrap().keyframe
        });
        starts.count() as u64
    }
}

#[test]
fn the_sender_is_told_of_the_loss() {
    let mut world = World::new(23);
    let audio = world.peers.1.negotiated.line("a").unwrap().local.unwrap().ssrc;
    let mut count = 0;
    world.fate = Box::new(move |to, data| {
        count += u32::from(to == 1 && ssrc_of(data) == Some(audio));
        to == 1 && ssrc_of(data) == Some(audio) && count % 10 == 0
    });
    world.run(10 * S);
    let sample = world.bots[0].sample(world.now);
    let told = sample.sent[0].remote_loss_pct.unwrap();
    assert!((told - 10.0).abs() < 0.5, "{told}");
}

#[test]
fn without_repair_the_picture_freezes_and_a_keyframe_is_asked_for() {
    let mut world = World::with(24, |peer| {
        peer.negotiated.lines.iter_mut().for_each(|line| line.nack = false);
    });
    world.map();
    world.run(3 * S);
    world.bots[0].sample(world.now);
    let ssrc = world.slot_ssrc("v0");
    // One packet is lost.
    let mut lose = 1;
    world.fate = Box::new(move |to, data| {
        let hit = to == 0 && ssrc_of(data) == Some(ssrc) && lose > 0;
        lose -= i32::from(hit);
        hit
    });
    world.run(3 * S);
    let sample = world.bots[0].sample(world.now);
    let video = row(&sample.received, "V");
    assert_eq!((video.packets_lost, video.keyframe_requests), (1, Some(1)));
    // 200 ms of waiting, a round trip, and the keyframe's own packets.
    assert_eq!(video.freezes, Some(1));
    let ratio = video.freeze_ratio.unwrap();
    assert!((0.07..=0.13).contains(&ratio), "{ratio}");
    assert!(video.frames_per_second.unwrap() > 17.0);
    let counters = world.bots[0].counters();
    assert_eq!((counters.nacked, counters.keyframes_asked, counters.received_rtx), (0, 1, 0));
}

#[test]
fn feedback_goes_behind_a_report_where_reduced_size_was_not_agreed() {
    for reduced in [true, false] {
        let mut world = World::with(24, |peer| {
            peer.negotiated.lines.iter_mut().for_each(|line| line.reduced_size = reduced);
        });
        world.map();
        world.run(3 * S);
        let ssrc = world.slot_ssrc("v0");
        let (mut count, sent) = (0, Arc::new(std::sync::Mutex::new([0; 2])));
        let seen = Arc::clone(&sent);
        world.fate = Box::new(move |to, data| {
            if to == 1 && ssrc_of(data).is_none() {
                // The first packet's type is not encrypted (RFC 3711, section 3.4).
                let alone = matches!(data[1], 205 | 206);
                seen.lock().unwrap()[usize::from(alone)] += 1;
            }
            count += u32::from(to == 0 && ssrc_of(data) == Some(ssrc));
            to == 0 && ssrc_of(data) == Some(ssrc) && count % 20 == 0
        });
        world.run(5 * S);
        let [reports, alone] = *sent.lock().unwrap();
        assert!(reports > 0 && (alone > 0) == reduced, "{reduced}: {reports} and {alone}");
        let counters = world.bots[0].counters();
        assert!(counters.nacked > 3 && counters.received_rtx > 3, "{counters:?}");
    }
}

#[test]
fn a_dead_stream_shows_in_the_time_since_the_last() {
    let mut world = World::new(25);
    world.map();
    world.run(3 * S);
    world.bots[0].sample(world.now);
    world.bots[1].stop(Kind::Video);
    world.run(3 * S);
    world.bots[0].sample(world.now);
    world.run(3 * S);
    let sample = world.bots[0].sample(world.now);
    let video = row(&sample.received, "V");
    assert_eq!((video.packets_received, video.frames_per_second), (0, Some(0.0)));
    assert_eq!((video.loss_pct, video.jitter_ms, video.freeze_ratio), (None, None, None));
    assert!((5900.0..=6060.0).contains(&video.since_last_ms.unwrap()));
    let audio = row(&sample.received, "A");
    assert_eq!(audio.packets_received, 150);
}

#[test]
fn rows_are_split_where_a_slot_was_mapped_anew() {
    let mut world = World::new(26);
    world.run(S);
    let counters = world.bots[0].counters();
    assert_eq!(counters.received_unmapped, counters.received);
    assert!(world.bots[0].sample(world.now).received.is_empty());
    world.bots[0].map_slots(&[change("v0", Some("one"), None)], world.now);
    world.run(3 * S);
    let sample = world.bots[0].sample(world.now);
    assert!(sample.join_to_first_frame_ms.unwrap() > 1000.0);
    // The new track begins at a timestamp that is still to come: 500 ms from now.
    let ssrc = world.slot_ssrc("v0");
    let opened = world.opened(1);
    let last = opened.of(ssrc).last().unwrap().1.timestamp;
    let first = last.wrapping_add(45_000);
    world.bots[0].map_slots(&[change("v0", Some("two"), Some(first))], world.now);
    world.run(3 * S);
    let sample = world.bots[0].sample(world.now);
    assert_eq!(sample.received.len(), 2);
    let arrived = |from: u32, to: u32| {
        let opened = world.opened(1);
        let of = opened.of(ssrc);
        let begin = world.start + 4 * S;
        of.iter()
            .filter(|(at, h, _, _)| {
                let ahead = h.timestamp.wrapping_sub(last) as i32;
                let at = *at + 10 * MS;
                at > begin && at <= begin + 3 * S && (from as i32..to as i32).contains(&ahead)
            })
            .count() as u64
    };
    let (one, two) = (row(&sample.received, "one"), row(&sample.received, "two"));
    assert_eq!(one.packets_received, arrived(0, 45_000));
    assert_eq!(two.packets_received, arrived(45_000, i32::MAX as u32));
    assert_eq!(two.total_packets_received, Some(two.packets_received));
    // The track that came without a keyframe of its own is shown from the next one on.
    assert_eq!(two.keyframe_requests, Some(1));
    assert!((18.0..=20.5).contains(&two.frames_per_second.unwrap()));
    assert_eq!(two.freezes, Some(0), "a switch is no freeze");
    // Empty: no row but that of the track that left.
    world.bots[0].map_slots(&[change("v0", None, None)], world.now);
    world.run(S);
    let sample = world.bots[0].sample(world.now);
    assert_eq!(sample.received.len(), 1);
    assert_eq!(sample.received[0].packets_received, 0);
    world.run(S);
    assert!(world.bots[0].sample(world.now).received.is_empty());
}

#[test]
fn what_cannot_be_opened_is_dropped_with_its_reason() {
    let now = Instant::now();
    let mut fresh = bot(27, now);
    assert_eq!(fresh.handle_datagram(now, &[0x80; 50]), Err(Dropped::NoKeys));
    let mut world = World::new(27);
    world.run(S);
    let (_, _, packet) = world.sent.iter().find(|(_, by, _)| *by == 1).unwrap().clone();
    let bot = &mut world.bots[0];
    let mut reason = |data: &[u8]| bot.handle_datagram(world.now, data).unwrap_err().as_str();
    assert_eq!(reason(&packet), "srtp_replayed");
    let mut forged = packet.clone();
    *forged.last_mut().unwrap() ^= 1;
    forged[3] = forged[3].wrapping_add(200);
    assert_eq!(reason(&forged), "srtp_refused");
    assert_eq!(reason(&[0x80, 96]), "srtp_refused");
    assert_eq!(reason(&[0x80, 200, 0, 0]), "srtp_refused");
    assert_eq!(reason(&[0x80; 3000]), "too_long");
    assert_eq!(reason(&[]), "srtp_refused");
    // Of an SSRC that nobody announced, properly sealed.
    let mut sealer = Sealer::new(&world.peers.0.keys.local);
    let mut stream = sealer.stream(0xDEAD).unwrap();
    let mut buffer = [0; 100];
    let writer = rtp::HeaderWriter { ssrc: 0xDEAD, payload_type: 96, ..Default::default() };
    let header_len = writer.write(&mut buffer).unwrap();
    let len = sealer.seal_rtp(&mut stream, &mut buffer, header_len, header_len + 20).unwrap();
    assert_eq!(reason(&buffer[..len]), "unknown_source");
    let drops = world.bots[0].counters().drops;
    assert_eq!(drops["srtp_refused"], 4);
    // Random bytes, too.
    let mut random = SplitMix(5);
    for _ in 0..20_000 {
        let mut data = vec![0; random.below(200) as usize];
        data.iter_mut().for_each(|byte| *byte = random.next() as u8);
        assert!(world.bots[0].handle_datagram(world.now, &data).is_err());
    }
}

#[test]
fn a_slot_message_may_overtake_the_answer() {
    let start = Instant::now();
    let (_, client) = fixed(29).pair();
    let mut bot = bot(29, start);
    bot.map_slots(&[change("a0", Some("A"), None), change("a0", Some("B"), None)], start);
    assert!(bot.sample(start).received.is_empty());
    bot.agreed(&client.negotiated, &tracks(), start);
    let rows = bot.sample(start + S).received;
    assert_eq!(row(&rows, "B").packets_received, 0);
}

#[test]
fn a_sender_without_announced_ssrc_is_known_by_its_mid() {
    let mut world = World::new(28);
    // The bot learns the lines anew, without SSRCs.
    let mut negotiated = world.peers.1.negotiated.clone();
    negotiated.lines.iter_mut().for_each(|line| line.remote = None);
    let mut fresh = bot(28, world.now);
    fresh.agreed(&negotiated, &tracks(), world.now);
    fresh.install(&world.peers.1.keys, world.now);
    world.bots[0] = fresh;
    world.map();
    world.run(3 * S);
    let sample = world.bots[0].sample(world.now);
    assert!((145..=150).contains(&row(&sample.received, "A").packets_received));
    assert!(row(&sample.received, "V").frames_per_second.unwrap() > 19.0);
}

#[test]
fn a_line_may_go_on_with_other_ssrcs() {
    let mut world = World::new(30);
    let now = world.now;
    let negotiated = world.peers.1.negotiated.clone();
    let mut before = negotiated.clone();
    for ids in before.lines.iter_mut().filter_map(|line| line.remote.as_mut()) {
        *ids = rtp::negotiated::StreamIds { ssrc: !ids.ssrc, rtx: ids.rtx.map(|ssrc| !ssrc) };
    }
    let mut fresh = bot(30, now);
    fresh.agreed(&before, &tracks(), now);
    fresh.map_slots(&[change("a0", Some("A"), None), change("v0", Some("V"), None)], now);
    fresh.agreed(&negotiated, &tracks(), now);
    fresh.install(&world.peers.1.keys, now);
    world.bots[0] = fresh;
    world.run(3 * S);
    let sample = world.bots[0].sample(world.now);
    // What is in the slots stays there; what was there before had nothing.
    let of = |track: &'static str| sample.received.iter().filter(move |row| row.track == track);
    let sound: u64 = of("A").map(|row| row.packets_received).sum();
    assert!((145..=150).contains(&sound), "{sound}");
    assert!(of("V").any(|row| row.frames_per_second.is_some_and(|rate| rate > 19.0)));
    assert!(world.bots[0].counters().drops.is_empty());
}

/// A slot that is fed by hand: frames of clips, as a server sends them that goes from layer to layer.
struct Feed {
    bot: BotMedia,
    now: Instant,
    sealer: Sealer,
    stream: rtp::srtp::SealStream,
    sequence: u16,
    picture: u16,
}

impl Feed {
    fn new(seed: u64) -> Self {
        let (now, (server, client)) = (Instant::now(), fixed(seed).pair());
        let mut bot = bot(seed, now);
        bot.agreed(&client.negotiated, &tracks(), now);
        bot.install(&client.keys, now);
        let mut sealer = Sealer::new(&server.keys.local);
        let ssrc = client.negotiated.line("v0").unwrap().remote.unwrap().ssrc;
        let stream = sealer.stream(ssrc).unwrap();
        Self { bot, now, sealer, stream, sequence: 1, picture: 1 }
    }

    /// The timestamp of the next frame.
    fn timestamp(&self) -> u32 {
        u32::from(self.picture) * 4500
    }

    /// Shows the first frames of a clip, one every 50 ms.
    fn show(&mut self, clip: &Clip, frames: usize) {
        for frame in &clip.frames[..frames] {
            let timestamp = self.timestamp();
            for chunk in rtp::vp8::packetize(&frame.data, clip.max_payload, self.picture, 0) {
                let (mut buffer, ssrc) = ([0; 1500], self.stream.ssrc());
                let (marker, sequence, payload_type) = (chunk.last, self.sequence, 96);
                let writer = rtp::HeaderWriter {
                    marker,
                    sequence,
                    timestamp,
                    payload_type,
                    ssrc,
                    ..Default::default()
                };
                let head = writer.write(&mut buffer).unwrap();
                let len = head + chunk.write(&mut buffer[head..]).unwrap();
                let sealed =
                    self.sealer.seal_rtp(&mut self.stream, &mut buffer, head, len).unwrap();
                self.bot.handle_datagram(self.now, &buffer[..sealed]).unwrap();
                self.sequence += 1;
            }
            self.picture += 1;
            self.now += 50 * MS;
        }
    }

    fn map(&mut self, track: &str, rtp_timestamp: Option<u32>) {
        self.bot.map_slots(&[change("v0", Some(track), rtp_timestamp)], self.now);
    }

    /// The rows since the last call: track, height, changes of it.
    fn rows(&mut self) -> Vec<(String, Option<u32>, Option<u64>)> {
        let rows = self.bot.sample(self.now).received;
        let of = |row: ReceivedTrack| (row.track, row.frame_height, row.resolution_switches);
        rows.into_iter().map(of).collect()
    }
}

#[test]
fn a_change_of_the_pictures_height_is_counted_but_not_that_of_the_track() {
    let full = layered();
    let [quarter, half] = &full.smaller[..] else { panic!("three layers") };
    let row = |track: &str, height, switches| (track.to_owned(), height, Some(switches));
    let mut feed = Feed::new(33);
    feed.map("V", None);
    feed.show(&full, 30);
    assert_eq!(feed.rows(), [row("V", Some(480), 0)], "the first picture is no change");
    feed.show(quarter, 60);
    feed.show(half, 20);
    assert_eq!(feed.rows(), [row("V", Some(360), 2)]);
    feed.show(half, 20);
    assert_eq!(feed.rows(), [row("V", Some(360), 0)], "the interval's own");
    // The first picture of another track is ahead of the message that tells of it.
    for (timestamp_told, (before, after)) in [(false, ("V", "W")), (true, ("W", "X"))] {
        let first = feed.timestamp();
        feed.show(quarter, 4);
        feed.map(after, timestamp_told.then_some(first));
        assert_eq!(feed.rows(), [row(before, None, 0), row(after, None, 0)]);
        feed.show(quarter, 4);
        feed.show(half, 20);
        assert_eq!(feed.rows(), [row(after, Some(360), 1)]);
    }
    // Or behind it.
    feed.map("Y", Some(feed.timestamp()));
    feed.show(quarter, 20);
    assert_eq!(feed.rows(), [row("X", None, 0), row("Y", Some(180), 0)]);
    assert!(feed.bot.counters().drops.is_empty());
}

/// The server says that a picture is paused and sends none of it for 2 s: that is no freeze.
#[test]
fn a_pause_that_is_told_is_no_freeze() {
    let mut world = World::new(31);
    world.map();
    let slot = |paused| SlotChange { paused, ..change("v0", Some("V"), None) };
    let ssrc = world.slot_ssrc("v0");
    world.run(3 * S);
    world.bots[0].sample(world.now);
    world.bots[0].map_slots(&[slot(Some(PauseReason::Bandwidth))], world.now);
    world.fate = Box::new(move |_, bytes| bytes[8..12] == ssrc.to_be_bytes());
    world.run(2 * S);
    world.fate = Box::new(|_, _| false);
    world.bots[0].map_slots(&[slot(None)], world.now);
    world.run(2 * S);
    let sample = world.bots[0].sample(world.now);
    let row = row(&sample.received, "V");
    assert!(row.paused_ratio.is_some_and(|share| (share - 0.5).abs() < 0.02), "{row:?}");
    assert_eq!(row.freezes, Some(0), "{row:?}");
    assert!(row.frames_per_second.is_some_and(|rate| rate > 10.0), "{row:?}");
}

/// The server plays one tone as the room's mix: right where the plan has it loud, and wrong where
/// the listener should be the loud one.
#[test]
fn a_mix_is_a_row_of_its_own_and_is_heard_tone_by_tone() {
    let plan = TonePlan { seed: 5, bots: 2, loud: 1, alternate: false };
    let prepare = |bots: &mut [BotMedia; 2], origin: Instant| {
        for (bot, place) in bots.iter_mut().zip(0..) {
            let role = ToneRole { plan, place, listens: true };
            let voice = Arc::new(ToneVoice::encode(place).unwrap());
            bot.set_tone(Tone { role, origin, voice });
        }
    };
    let mut world = World::prepared(30, |_| {}, prepare);
    let mix = SlotChange { mix: true, ..change("a0", None, None) };
    world.bots[0].map_slots(&[mix], world.now);
    world.run(31 * S);
    assert!(world.bots[0].speaks() && world.bots[1].speaks());
    let sample = world.bots[0].sample(world.now);
    let row = row(&sample.received, MIX);
    assert_eq!((row.participant.as_str(), row.packets_lost), ("", 0));
    assert!((1540..=1550).contains(&row.packets_received), "{}", row.packets_received);
    assert!(row.mos_lq.is_some_and(|mos| mos > 4.2));
    assert!(sample.join_to_first_audio_ms.is_some_and(|ms| ms < 50.0));

    let mut air = OnAir::default();
    air.begin(0, "bot-1", Duration::ZERO);
    air.begin(1, "bot-2", Duration::ZERO);
    let windows = world.bots[0].take_windows();
    assert_eq!(windows.len(), 15);
    let (mut right, mut wrong) = (0, 0);
    // In the first second nobody is on air for sure yet.
    for window in &windows[1..] {
        let mut heard = MixWindows::default();
        judge(&mut heard, &plan, 0, window, &air);
        let himself = plan.loud_in(plan.period(window.from)) == [0];
        assert_eq!(heard.wrong == 1, himself, "{heard:?}");
        if himself {
            assert_eq!(heard.examples[0].extra, ["bot-2"], "quiet, and should not be there");
            wrong += 1;
        } else {
            right += 1;
        }
    }
    assert!(right > 2 && wrong > 2, "{right} right, {wrong} wrong");
    // The level in the header is that of what is sent: loud and quiet are 14 dB apart.
    let audio = world.peers.1.negotiated.line("a").unwrap();
    let id = audio.extensions.audio_level.unwrap();
    let sent = world.opened(0);
    let mut levels: Vec<u8> = sent
        .of(audio.local.unwrap().ssrc)
        .iter()
        .filter_map(|(_, header, packet, _)| Some(header.find_extension(packet, id)?[0] & 0x7F))
        .collect();
    levels.sort_unstable();
    levels.dedup();
    assert!(levels.iter().all(|level| (18..=22).contains(level) || (24..=28).contains(level)));
    assert!(levels.len() >= 2, "{levels:?}");
    world.bots[0].stop(Kind::Audio);
    assert!(!world.bots[0].speaks());
}

#[test]
fn headers_alone_tell_what_opening_all_tells() {
    let run = |opening: Opening| {
        let reopen = |bots: &mut [BotMedia; 2], start: Instant| {
            bots[0] = BotMedia::new(Config { opening, ..config(31, start) });
        };
        let mut world = World::prepared(31, |_| {}, reopen);
        world.map();
        let lost = lossy(&mut world, "a0", 20);
        let mut samples = Vec::new();
        for _ in 0..14 {
            world.run(3 * S);
            samples.push(world.bots[0].sample(world.now));
        }
        assert!(lost.lock().unwrap().lost.len() > 50);
        (samples, world.bots[0].counters())
    };
    let (all, opened) = run(Opening::All);
    let (turns, closed) = run(Opening::InTurn { place: 3, of: 10 });
    assert_eq!(turns, all);
    assert_eq!(opened.received_closed, 0);
    // Of 14 turns of 3 s one was its own: sound in the others was left closed, but the first packet.
    let sound = all.iter().flat_map(|sample| &sample.received);
    let sound = sound.filter(|row| row.kind == MediaKind::Audio);
    let sound: u64 = sound.map(|row| row.packets_received).sum();
    let share = closed.received_closed as f64 / sound as f64;
    assert!((0.92..0.935).contains(&share), "{share} of {sound} packets closed");
    assert_eq!(closed.received, opened.received);
    assert_eq!((closed.drops, closed.seal_errors), (opened.drops, 0));
}
