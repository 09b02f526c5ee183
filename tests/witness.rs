//! An independent witness: plain str0m peers, with SRTP, RTP and RTCP that are not ours, in a room
//! of a real server.

use crate::peer::{Peer, Seat, assert_same, finish, meet, run, told_beginning};
use crate::raw::Raw;
use crate::target::{Server, Socket, eventually};
use lab::bot::fixtures::{Clip, Fixtures};
use lab::bots::{BotDriver, BotHandle, BotSpec, Media, SlotPool, VideoSource};
use rtp::negotiated::Kind;
use rtp::rtcp;
use serde_json::json;
use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use str0m::media::{KeyframeRequestKind, MediaData};
use transport::Lacks;
use wire::Event;
use wire::room::{self, Answer, Join, MediaKind, Offer, VideoCodec};

const KINDS: [MediaKind; 2] = [MediaKind::Audio, MediaKind::Video];

/// What the events since the last call put into each slot.
fn slots(seat: &mut Seat) -> BTreeMap<String, Option<String>> {
    let events = seat.socket.events().into_iter();
    let changes = events.flat_map(|event| match event {
        Event::Slots { slots } => slots,
        _ => Vec::new(),
    });
    changes.map(|change| (change.slot, change.track)).collect()
}

/// Each peer has heard so many frames of audio and of video.
fn heard(peers: &[&mut Peer], audio: usize, video: usize) -> bool {
    peers.iter().all(|peer| {
        KINDS.iter().zip([audio, video]).all(|(kind, count)| peer.heard_of(*kind).count() >= count)
    })
}

#[test]
fn two_plain_peers_get_each_others_frames_as_they_were_sent() {
    let server = Server::start("{}");
    let (mut ada, mut ada_seat) = Peer::join(&server, "witness", "ada", 1);
    let (mut min, mut min_seat) = Peer::join(&server, "witness", "min", 2);
    let others = &min_seat.joined.participants;
    assert_eq!((others.len(), others[0].name.as_str(), others[0].tracks.len()), (1, "ada", 2));
    meet(&mut [&mut ada, &mut min]);
    run(&mut [&mut ada, &mut min], "5 s of frames", |peers| heard(peers, 250, 100));

    // Keyframes by request: the publisher is asked, and his keyframe arrives.
    for turn in 0..2 {
        let (asking, asked) = if turn == 0 { (&mut ada, &mut min) } else { (&mut min, &mut ada) };
        let line = asking.heard_of(MediaKind::Video).next().unwrap().mid;
        let (requests, frames) = (asked.keyframe_requests.len(), asking.heard.len());
        asking.request_keyframe(line);
        run(&mut [asking, asked], "a keyframe by request", |peers| {
            peers[1].keyframe_requests.len() > requests
                && peers[0].heard[frames..].iter().any(MediaData::is_keyframe)
        });
    }
    for peer in [&ada, &min] {
        let [_, camera] = peer.lines();
        let pli = (camera, KeyframeRequestKind::Pli);
        assert!(peer.keyframe_requests.iter().all(|request| *request == pli));
    }

    // Reports: the server's reach the publishers, who read round trip and loss from them.
    run(&mut [&mut ada, &mut min], "reports on each line", |peers| {
        let told = |peer: &Peer, line| {
            peer.egress.iter().any(|s| s.mid == line && s.rtt.is_some() && s.remote.is_some())
        };
        peers.iter().all(|peer| peer.lines().iter().all(|line| told(peer, *line)))
    });
    finish(&mut [&mut ada, &mut min]);
    for peer in [&ada, &min] {
        for stats in &peer.egress {
            assert!(stats.rtt.is_none_or(|rtt| rtt < Duration::from_secs(1)), "{stats:?}");
            assert!(stats.loss.is_none_or(|loss| loss == 0.0), "{stats:?}");
            assert_eq!(stats.remote.as_ref().map_or(0, |remote| remote.packets_lost), 0);
        }
    }
    for (from, to) in [(&ada, &min), (&min, &ada)] {
        assert!(assert_same(from, to, MediaKind::Audio) > 250);
        assert!(assert_same(from, to, MediaKind::Video) > 100);
        assert!(to.heard_of(MediaKind::Video).next().unwrap().is_keyframe(), "a picture's start");
        // Sound and picture began at one moment, and the server's reports say so: within what
        // people do not notice (ITU-R BT.1359: 45 ms).
        let [sound, picture] = KINDS.map(|kind| told_beginning(from, to, kind));
        let apart = sound.duration_since(picture).or_else(|_| picture.duration_since(sound));
        assert!(apart.unwrap() < Duration::from_millis(45), "{sound:?} {picture:?}");
    }
    let [adas, mins] = [ada_seat.tracks.clone(), min_seat.tracks.clone()];
    for (seat, peer, tracks) in [(&mut ada_seat, &ada, mins), (&mut min_seat, &min, adas)] {
        let told = slots(seat);
        for (at, kind) in KINDS.into_iter().enumerate() {
            let line = peer.heard_of(kind).next().unwrap().mid;
            assert_eq!(line, seat.slots[at]);
            assert_eq!(told[&line.to_string()].as_ref(), Some(&tracks[at]), "told by an event");
        }
    }
    for reason in ["malformed", "authentication_failed", "unknown_ssrc", "replayed", "no_keys"] {
        assert_eq!(server.dropped("in", reason), 0, "{reason}");
    }
}

/// A camera of 960 kbit/s at 20 frames a second, whose keyframes have so many bytes.
fn large_keyframes(bytes: usize) -> Clip {
    let frames: Vec<_> =
        (0..100).map(|nth| if nth == 0 { (bytes, true) } else { (6000, false) }).collect();
    Clip::of_sizes(&frames, &[], 20, (640, 360))
}

/// A receiver who says by REMB that their path carries 1.5 Mbit/s. Keyframes of 80 kB never got through: 3 of 149 frames came
/// whole, and the publisher was asked 15 times.
#[test]
fn keyframes_of_any_size_reach_who_estimates_their_path() {
    let server = Server::start("{}");
    for bytes in [40_000, 80_000, 200_000] {
        let room = format!("large-{bytes}");
        let (mut ada, _ada_seat) = Peer::join(&server, &room, "ada", 1);
        ada.show(large_keyframes(bytes));
        // Who gives feedback on packets estimates nothing.
        let lacks = Lacks { feedback: true, ..Lacks::default() };
        let place = ([127, 0, 0, 1], room.as_str());
        let (mut raw, _socket) = Raw::join_lacking(&server, place, &[], (1, 1), lacks);
        run(&mut [&mut ada], "a handshake", |_| {
            raw.step();
            raw.is_connected()
        });
        let mut said = Instant::now();
        let mut asked_again = false;
        let mut done = |raw: &mut Raw| {
            raw.step();
            let video = raw.slots(Kind::Video).next().unwrap().ssrc;
            let stream = raw.streams.get(&video).cloned().unwrap_or_default();
            if said.elapsed() > Duration::from_millis(100) {
                said = Instant::now();
                let mut compound = Vec::new();
                rtcp::remb(&mut compound, 1, 1_500_000, &[video]);
                if stream.frames >= 20 && !std::mem::replace(&mut asked_again, true) {
                    rtcp::pli(&mut compound, 1, video);
                }
                raw.send_rtcp(&compound);
            }
            assert_eq!(stream.gaps(), 0, "{bytes}");
            (stream.frames >= 60 && stream.frames_of(bytes) >= 2).then_some(stream)
        };
        run(&mut [&mut ada], "two keyframes, and what follows", |_| done(&mut raw).is_some());
        let asked = ada.keyframe_requests.len();
        println!("{bytes}: asked {asked} times");
        assert!(asked <= 4, "{bytes}: {asked}");
    }
}

/// Waits for a bot's answer; its threads make progress by themselves.
fn wait<T>(what: &str, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    eventually(what, || match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    })
}

#[test]
fn a_plain_peer_and_a_bot_get_each_others_frames() {
    let server = Server::start("{}");
    let driver = lab::bot::driver::start_for(server.media, 1, true, None).unwrap();
    let spec = BotSpec {
        name: "bot-1".into(),
        index: 1,
        media: Media::default(),
        video_codec: VideoCodec::Vp8,
        slots: SlotPool { audio: 1, video: 1 },
        ..BotSpec::default()
    };
    let bot = driver.add(spec).unwrap();
    let mut socket = Socket::connect(&server);
    let join = Join { room: "mixed".into(), name: "bot-1".into(), ..Join::default() };
    socket.ask(room::JOIN, json!(join));
    let offer = wait("an offer", bot.offer()).unwrap();
    let offer = Offer { sdp: offer.sdp, tracks: offer.tracks, session: None };
    let answer = socket.ask(room::OFFER, json!(offer));
    let answer: Answer = serde_json::from_value(answer).unwrap();
    wait("the answer taken", bot.answer(answer)).unwrap();
    wait("the bot's connection", bot.connected()).unwrap();

    let (mut ada, seat) = Peer::join(&server, "mixed", "ada", 3);
    let changes = socket.events().into_iter().flat_map(|event| match event {
        Event::Slots { slots } => slots,
        _ => Vec::new(),
    });
    bot.slots(changes.collect());
    run(&mut [&mut ada], "the bot's frames", |peers| heard(peers, 50, 20));
    wait("a sample", bot.sample()).unwrap(); // The next begins here.
    run(&mut [&mut ada], "more of the bot's frames", |peers| heard(peers, 200, 80));
    let sample = wait("a sample", bot.sample()).unwrap();

    let fixtures = Fixtures::embedded().unwrap();
    let (voice, clip) = (fixtures.voice(0), fixtures.clip(VideoSource::P360).unwrap());
    for sound in ada.heard_of(MediaKind::Audio) {
        assert!(sound.contiguous && voice.packets.iter().any(|packet| *packet.data == *sound.data));
    }
    let pictures: Vec<_> = ada.heard_of(MediaKind::Video).collect();
    let first = clip.frames.iter().position(|frame| *frame.data == *pictures[0].data).unwrap();
    assert!(clip.frames[first].keyframe);
    for (nth, picture) in pictures.iter().enumerate() {
        assert!(picture.contiguous, "picture {nth}");
        let sent = &clip.frames[(first + nth) % clip.frames.len()];
        assert!(*picture.data == *sent.data, "picture {nth}");
    }
    let row = |track: &str| sample.received.iter().find(|row| row.track == track).unwrap();
    let [sound, picture] = [row(&seat.tracks[0]), row(&seat.tracks[1])];
    assert_eq!((sound.packets_lost, picture.packets_lost), (0, 0));
    assert!(sound.packets_received > 100, "{sound:?}");
    assert!(picture.frames_per_second.is_some_and(|rate| rate > 15.0), "{picture:?}");
    assert_eq!(picture.frame_width, Some(640));
}
