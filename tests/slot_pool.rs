//! Joining and leaving re-maps slots by messages, never by SDP.

use engine::room::{Effects, Notice, Published, Room, RoomLimits, RoomSetup, Topology};
use engine::{Command, PersonKey, RoomKey, ShardIndex, TrackKey};
use rtp::negotiated::{Codec, Kind};
use std::net::SocketAddr;
use std::time::Instant;
use transport::{Fixed, IceDtls, OfferLine, Shared, VideoFormat};

/// m-lines and bytes of a participant's offer and answer.
fn size(offer: &str, answer: &str) -> [(usize, usize); 2] {
    [offer, answer].map(|sdp| (sdp.matches("\nm=").count(), sdp.len()))
}

fn pool() -> Vec<OfferLine> {
    let line = |kind, send| OfferLine { kind, send, layers: &[] };
    let mut lines = vec![line(Kind::Audio, true), line(Kind::Video, true)];
    lines.extend([line(Kind::Audio, false); 4]);
    lines.extend([line(Kind::Video, false); 12]);
    lines
}

fn published(negotiated: &rtp::negotiated::Negotiated, key: u64) -> Vec<Published> {
    let sending = &negotiated.lines[..2];
    let with_key = |(i, line): (usize, &rtp::negotiated::Line)| Published {
        mid: line.mid.clone(),
        name: String::new(),
        key: TrackKey(key + i as u64),
        layers: Vec::new(),
        opaque: false,
        music: false,
    };
    sending.iter().enumerate().map(with_key).collect()
}

#[test]
fn five_hundred_joins_and_leaves_leave_the_sdp_as_it_was() {
    let (shared, now) = (Shared::new().unwrap(), Instant::now());
    let here = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let format = Some(VideoFormat::Vp8);
    let mut client = IceDtls::client(&shared, format, here(1000), now).unwrap();
    let mut server = IceDtls::server(&shared, format, &[here(2000)], now).unwrap();
    let limits = RoomLimits { people: 10, roster: 10, audio_slots: 16, video_slots: 64 };
    let setup = RoomSetup::new(Topology::Sfu, Topology::Sfu, limits);
    let mut room = Room::new(RoomKey(1), setup);
    let watcher = PersonKey(1);
    room.join(watcher, "watcher".into(), ShardIndex(0), &mut Effects::default()).unwrap();

    let first = client.offer(&pool(), false).unwrap();
    let (answer, negotiated) = server.accept_offer(&first.sdp).unwrap();
    client.accept_answer(&answer).unwrap();
    let tracks = published(&negotiated, 1);
    room.negotiated(watcher, &negotiated, &tracks, &mut Effects::default()).unwrap();
    // A restart is the least that an offer can hold: the same lines, new credentials.
    let before = client.offer(&[], true).unwrap();
    let (answer_before, _) = server.accept_offer(&before.sdp).unwrap();
    client.accept_answer(&answer_before).unwrap();

    let mut shown = 0;
    for round in 0..500u64 {
        let guest = PersonKey(100 + round);
        let mut effects = Effects::default();
        room.join(guest, format!("guest {round}"), ShardIndex(0), &mut effects).unwrap();
        let session = Fixed {
            resends: true,
            red: false,
            red_first: false,
            feedback: true,
            lacks: transport::Lacks::default(),
            seed: round,
            video: Codec::Vp8,
            send_audio: true,
            send_video: true,
            layers: 1,
            audio_slots: 4,
            video_slots: 12,
        };
        let lines = session.pair().0.negotiated;
        room.negotiated(guest, &lines, &published(&lines, 1000 + 2 * round), &mut effects).unwrap();
        assert!(
            !effects.notices.iter().any(|n| matches!(n, Notice::SlotsWanted { .. })),
            "round {round}: the pool suffices"
        );
        let mapped = effects.commands.iter().filter(|command| {
            matches!(&command.1, Command::Map { person, track: Some(_), .. } if *person == watcher)
        });
        shown += mapped.count();
        let occupied = [Kind::Audio, Kind::Video].map(|kind| {
            room.person(watcher).unwrap().slot_contents(kind).filter(|s| s.1.is_some()).count()
        });
        assert_eq!(occupied, [1, 1], "round {round}");
        room.leave(guest, &mut Effects::default()).unwrap();
    }
    assert_eq!(shown, 1000, "each guest's sound and picture had a slot");

    let after = client.offer(&[], true).unwrap();
    let (answer_after, same) = server.accept_offer(&after.sdp).unwrap();
    assert_eq!(size(&after.sdp, &answer_after), size(&before.sdp, &answer_before));
    assert_eq!(same.lines.len(), 18);
}
